"""Tools that were separate programs before Caffe 1.0; each says what to type today."""

from __future__ import annotations

from collections.abc import Sequence

# Old name -> the command, and the flags that its words were, in order.
NAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "train_net": ("train", ("solver", "snapshot")),
    "finetune_net": ("train", ("solver", "weights")),
    "test_net": ("test", ("model", "weights", "iterations")),
    "net_speed_benchmark": ("time", ("model", "iterations")),
}
_NEEDED = ("solver", "model", "weights")


def advice(name: str, argv: Sequence[str]) -> str:
    """What to type instead of the old tool with these words."""
    command, flags = NAMES[name]
    words = [word for word in argv if not word.startswith("-")]
    typed = ["caffe", command]
    for i, flag in enumerate(flags):
        if i < len(words):
            typed += [f"-{flag}", words[i]]
        elif flag in _NEEDED:
            typed += [f"-{flag}", flag.upper()]
    # … [CPU/GPU] [device]
    more = words[len(flags) :]
    if more[:1] == ["GPU"]:
        typed += ["-gpu", more[1] if len(more) > 1 else "0"]
    return f"{name} is deprecated. Use this instead: {' '.join(typed)}"
