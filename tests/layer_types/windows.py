"""Definitions of the convolutions in plain loops, and shapes to try them on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st


@dataclass
class Case:
    """Arguments of one convolution over any number of spatial axes; images are (N, C, *S)."""

    num: int
    channels: int
    num_output: int
    group: int
    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def text(self) -> str:
        """The fields of convolution_param."""
        fields = [f"num_output: {self.num_output} group: {self.group}"]
        for name in ("kernel", "stride", "pad", "dilation"):
            field = "kernel_size" if name == "kernel" else name
            fields += [f"{field}: {value}" for value in getattr(self, name)]
        return " ".join(fields)

    def convolved(self) -> tuple[int, ...]:
        zipped = zip(self.sizes, self.extent, self.stride, self.pad, strict=True)
        return tuple((n + 2 * p - e) // s + 1 for n, e, s, p in zipped)

    def deconvolved(self) -> tuple[int, ...]:
        zipped = zip(self.sizes, self.extent, self.stride, self.pad, strict=True)
        return tuple(s * (n - 1) + e - 2 * p for n, e, s, p in zipped)

    def pairs(self, small: tuple[int, ...], large: tuple[int, ...]) -> Iterator[tuple]:
        """(place, tap, pixel) for each pixel of the large image that a tap sees at a place of the small."""
        for place in itertools.product(*map(range, small)):
            for tap in itertools.product(*map(range, self.kernel)):
                pixel = tuple(
                    o * s + t * d - p
                    for o, t, s, d, p in zip(place, tap, self.stride, self.dilation, self.pad, strict=True)
                )
                if all(0 <= i < n for i, n in zip(pixel, large, strict=True)):
                    yield place, tap, pixel


def convolve(x: np.ndarray, w: np.ndarray, case: Case) -> np.ndarray:
    y = np.zeros((len(x), case.num_output, *case.convolved()))
    inputs, outputs = case.channels // case.group, case.num_output // case.group
    for place, tap, pixel in case.pairs(y.shape[2:], x.shape[2:]):
        for n, k, c in itertools.product(range(len(x)), range(case.num_output), range(inputs)):
            y[(n, k, *place)] += w[(k, c, *tap)] * x[(n, k // outputs * inputs + c, *pixel)]
    return y


def deconvolve(x: np.ndarray, w: np.ndarray, case: Case) -> np.ndarray:
    y = np.zeros((len(x), case.num_output, *case.deconvolved()))
    inputs, outputs = case.channels // case.group, case.num_output // case.group
    for place, tap, pixel in case.pairs(x.shape[2:], y.shape[2:]):
        for n, c, k in itertools.product(range(len(x)), range(case.channels), range(outputs)):
            y[(n, c // inputs * outputs + k, *pixel)] += w[(c, k, *tap)] * x[(n, c, *place)]
    return y


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small convolutions of 1 to 3 spatial axes whose windows fit."""
    axes = draw(st.integers(1, 3))
    group = draw(st.integers(1, 3))

    def per_axis(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=axes, max_size=axes)))

    kernel, dilation, pad = per_axis(1, 3), per_axis(1, 2), per_axis(0, 2)
    extent = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    # Large enough for a convolution to have a place, and for a deconvolution to keep a pixel.
    extra = per_axis(0, 2)
    sizes = tuple(max(1, e - 2 * p, 2 * p) + more for e, p, more in zip(extent, pad, extra, strict=True))
    return Case(
        num=draw(st.sampled_from([0, 1, 2, 9])),
        channels=group * draw(st.integers(1, 2)),
        num_output=group * draw(st.integers(1, 2)),
        group=group,
        sizes=sizes,
        kernel=kernel,
        stride=per_axis(1, 3),
        pad=pad,
        dilation=dilation,
    )
