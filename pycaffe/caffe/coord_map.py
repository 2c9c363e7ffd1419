"""Coordinates between the blobs of a NetSpec's net, for cropping the outputs of FCNs to their inputs.

    n.score = crop(n.upscore, n.data)

A layer that moves windows maps a coordinate of its bottom to one of its top: x_top = a·x_bottom + b. Maps of
a chain of layers are composed; where two chains meet in a blob, they give the map between their tops.
Source: pycaffe's coord_map.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .errors import CaffeError
from .net_spec import Function, Top
from .net_spec import layers as L

# Layers whose tops have the coordinates of their bottoms.
PASS_THROUGH_LAYERS = """
    AbsVal BatchNorm Bias BNLL Clip Concat Dropout Eltwise ELU Exp Log LRN MVN Power PReLU ReLU Scale Sigmoid
    Softmax Split Swish TanH Threshold
""".split()


class UndefinedMapException(CaffeError):
    """A layer that keeps no coordinates: InnerProduct, Flatten, ..."""


class AxisMismatchException(CaffeError):
    """Maps over different axes cannot be composed."""


class UnconnectedError(CaffeError, RuntimeError):
    """No path of layers with coordinates joins two tops."""


class CropError(CaffeError, AssertionError):
    """Two tops that differ by more than a shift by whole pixels."""


class Map(NamedTuple):
    """x_top = a·x_bottom + b on the axes after `axis`. axis: None where the layer moves no window. a, b: a
    number for all axes, or one for each."""

    axis: int | None
    a: Any
    b: Any


IDENTITY = Map(None, 1, 0)


def coord_map(fn: Function) -> Map:
    """The map of a layer from its (first) bottom to its top. Raises UndefinedMapException."""
    if fn.type_name in ("Convolution", "Pooling", "Im2col"):
        axis, stride, kernel, pad = conv_params(fn)
        return Map(axis, 1 / stride, (pad - (kernel - 1) / 2) / stride)
    if fn.type_name == "Deconvolution":
        axis, stride, kernel, pad = conv_params(fn)
        return Map(axis, stride, (kernel - 1) / 2 - pad)
    if fn.type_name in PASS_THROUGH_LAYERS:
        return IDENTITY
    if fn.type_name == "Crop":
        axis, offset = crop_params(fn)
        return Map(axis - 1, 1, -offset)
    raise UndefinedMapException(f"{fn.type_name} layers keep no coordinates")


def conv_params(fn: Function) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """(axis, stride, kernel, pad) of a layer that moves windows; the kernel as dilation spreads it. Each
    holds one number, or one for each axis. Raises UndefinedMapException for global pooling."""
    params = {**fn.params, **fn.params.get("convolution_param", {}), **fn.params.get("pooling_param", {})}
    if params.get("global_pooling"):
        raise UndefinedMapException("global pooling keeps no coordinates")
    kernel = _windows(fn, params, "kernel_size", "kernel", None)
    stride = _windows(fn, params, "stride", "stride", 1)
    pad = _windows(fn, params, "pad", "pad", 0)
    dilation = np.array(params.get("dilation", 1), ndmin=1)
    return params.get("axis", 1), stride, (kernel - 1) * dilation + 1, pad


def _windows(
    fn: Function, params: Mapping[str, Any], name: str, side: str, default: int | None
) -> np.ndarray:
    """A field given once, for each axis, or as _h and _w."""
    value = params.get(name, default)
    sides = [params.get(f"{side}_{axis}") for axis in "hw"]
    if sides != [None, None]:
        value = [default if number is None else number for number in sides]
    if value is None or (isinstance(value, list) and None in value):
        raise CaffeError(f"{fn.type_name}: {name} must be given, so that coordinates can be mapped")
    return np.array(value, ndmin=1)


def crop_params(fn: Function) -> tuple[int, np.ndarray]:
    """(axis, offset) of a Crop layer."""
    params = {**fn.params, **fn.params.get("crop_param", {})}
    return params.get("axis", 2), np.array(params.get("offset", 0), ndmin=1)


def compose(base_map: Map, next_map: Map) -> Map:
    """x -> base_map(next_map(x)). Raises AxisMismatchException."""
    base, following = Map(*base_map), Map(*next_map)
    if None not in (base.axis, following.axis) and base.axis != following.axis:
        raise AxisMismatchException(
            f"maps over the axes after {base.axis} and over those after {following.axis} cannot be composed"
        )
    axis = following.axis if base.axis is None else base.axis
    return Map(axis, base.a * following.a, base.a * following.b + base.b)


def inverse(coord_map: Map) -> Map:
    """From top to bottom."""
    axis, a, b = coord_map
    return Map(axis, 1 / a, -b / a)


def coord_map_from_to(top_from: Top, top_to: Top) -> Map:
    """The map from one top's coordinates to another's. Raises UnconnectedError, AxisMismatchException."""
    down = _maps_down(top_from)
    for top, mapping in _maps_down(top_to).items():
        if top in down:
            return compose(mapping, inverse(down[top]))
    raise UnconnectedError("Could not compute map between tops; are they connected by spatial layers?")


def _maps_down(top: Top) -> dict[Top, Map]:
    """For each blob below, nearest first, the map from its coordinates to the top's."""
    maps, waiting = {top: IDENTITY}, [top]
    for blob in waiting:
        fn = blob.fn
        try:
            bottoms = fn.inputs[:1] if fn.type_name == "Crop" else fn.inputs
            mapping = compose(maps[blob], coord_map(fn)) if bottoms else IDENTITY
        except UndefinedMapException:
            continue
        for bottom in bottoms:
            if bottom not in maps:
                maps[bottom] = mapping
                waiting.append(bottom)
    return maps


def crop(top_from: Top, top_to: Top) -> Top:
    """A Crop layer that cuts out of top_from what lies over top_to. Raises CropError when it would have to
    scale, to move by half a pixel or to reach beyond top_from, and what coord_map_from_to does."""
    for top in (top_from, top_to):
        if not isinstance(top, Top):
            raise TypeError(f"crop(n.score, n.data) takes tops of a NetSpec, not {type(top).__name__}")
    axis, a, b = coord_map_from_to(top_from, top_to)
    if axis is None:
        raise CropError("no layer between these tops moves over an axis; there is nothing to crop")
    if not np.all(a == 1):
        raise CropError(f"scale mismatch on crop (a = {a})")
    if not np.all(b <= 0):
        raise CropError(f"cannot crop negative offset (b = {b})")
    if not np.all(np.round(b) == b):
        raise CropError(f"cannot crop noninteger offset (b = {b})")
    offset = [int(-shift) for shift in np.round(np.atleast_1d(b))]
    return L.Crop(top_from, top_to, crop_param={"axis": axis + 1, "offset": offset})
