"""caffe time and caffe test: whole passes, and the memory that they need."""

from __future__ import annotations

import re
from pathlib import Path

DEEP = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 8 dim: 16 dim: 64 dim: 64 } } }
""" + "".join(
    f'''
layer {{ name: "c{i}" type: "Convolution" bottom: "{f"c{i - 1}" if i else "x"}" top: "c{i}"
        convolution_param {{ num_output: 16 kernel_size: 3 pad: 1 weight_filler {{ type: "msra" }} }} }}
'''
    for i in range(60)
)
SIZE = 8 * 16 * 64 * 64 * 4 / 2**20  # MiB of one blob


def mib(line: str) -> tuple[float, float]:
    """Peak and required memory, of the line that tells them."""
    units = {"KiB": 2**-10, "MiB": 1, "GiB": 2**10}
    numbers = re.findall(r"([\d.]+) (KiB|MiB|GiB)", line)
    peak, required = (float(number) * units[unit] for number, unit in numbers)
    return peak, required


def test_a_deploy_net_is_timed_with_memory_used_again(start, tmp_path: Path) -> None:
    Path("deep.prototxt").write_text(DEEP)
    # In a process of its own, whose peak is this net's.
    process = start("time", "-model", "deep.prototxt", "-iterations", "1")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    (line,) = [line for line in err.splitlines() if "Peak memory" in line]
    peak, required = mib(line)
    assert abs(required - 61 * SIZE) < 0.1
    assert peak < 120 + 8 * SIZE  # an interpreter with its libraries, and a few blobs instead of 61
    assert re.search(r"Whole Forward pass: [\d.]+ ms\.", err)
    assert "Whole Backward pass" not in err
    # The layers by themselves afterwards.
    assert re.search(r"c59\tforward: [\d.]+ ms\.", err)


def test_a_training_net_is_timed_both_ways(cli, tiny) -> None:
    done = cli("time", "-model", "net.prototxt", "-iterations", "2")
    assert done.status == 0
    assert re.search(r"Whole Forward pass: [\d.]+ ms\.", done.err)
    assert re.search(r"Whole Backward pass: [\d.]+ ms\.", done.err)
