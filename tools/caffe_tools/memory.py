"""How much memory a command has needed, beside what the original announces."""

from __future__ import annotations

from caffe.execution import memory_text, peak_memory
from caffe.net import Net


def peak_memory_lines(net: Net) -> list[str]:
    """A line for the log: the peak of this process, if known, and the net's "Memory required"."""
    peak = peak_memory()
    if not peak:
        return []
    required = memory_text(net.memory_used)
    return [f"Peak memory of this process: {memory_text(peak)} (memory required for data: {required})"]
