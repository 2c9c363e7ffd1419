"""Let a trained models/char_rnn write.

    python models/char_rnn/sample.py WEIGHTS [BEGINNING [LENGTH [TEMPERATURE]]]

TEMPERATURE below 1 (0.7 unless given) prefers likely characters.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import caffe


def write(weights: str, beginning: str, length: int, temperature: float) -> str:
    """beginning, and `length` characters that the net draws one by one."""
    net = caffe.Net(str(Path(__file__).with_name("deploy.prototxt")), weights, caffe.TEST)
    rng = np.random.default_rng(1701)
    text = beginning
    for index in range(len(beginning) + length - 1):
        net.blobs["data"].data[...] = ord(text[index])
        net.blobs["cont"].data[...] = index > 0
        chances = net.forward()["prob"].ravel().astype(np.float64) ** (1 / temperature)
        if index >= len(beginning) - 1:
            text += chr(rng.choice(len(chances), p=chances / chances.sum()))
    return text


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 5:
        sys.exit(f"usage: {sys.argv[0]} WEIGHTS [BEGINNING [LENGTH [TEMPERATURE]]]")
    beginning, length, temperature = [*sys.argv[2:], *("The ", "500", "0.7")[len(sys.argv) - 2 :]]
    print(write(sys.argv[1], beginning, int(length), float(temperature)))
