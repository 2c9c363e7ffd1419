"""The layer functions that people use daily: those without parameters; the others are in learned.py. Every
other layer type has one, too: see modules.py.

A layer function is a plain function that takes a model and tops, adds layers, and returns tops. These are
called as methods of a model, m.conv(x, 20, 5), or on the ambient one, M.conv(x, 20, 5).

All take `name`, `phase` ("train" or "test": the layer is there in that phase only) and further fields of the
layer's parameters or of LayerParameter, spelled as in a prototxt. `in_place=None` lets the model work in
place where nobody can tell; False and True say it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..layer import Layer
from .graph import LayerCall, ModelError, Top
from .model import Model

Size = int | tuple[int, int]


def input(model: Model, shape: Sequence[int], *, name: str = "", **more: Any) -> Top:
    """A top that the program fills, of this shape, the batch first."""
    call = model.add_layer("Input", (), {"shape": {"dim": list(shape)}, **more}, name=name, base="data")
    return call.tops[0]


def layer(
    model: Model, type: str, *bottoms: Any, ntop: int | None = None, name: str = "", **params: Any
) -> Any:
    """A layer of any type, spelled as in a prototxt: its top, or a tuple of them.

    ntop: the number of tops; by default the fewest that the type can have. params: fields of its own
    parameters or of LayerParameter; in_place=True makes the first top the first bottom.
    """
    from .modules import add_by_type

    return add_by_type(model, type, bottoms, ntop=ntop, name=name, **params)


def max_pool(
    model: Model,
    x: Top,
    kernel_size: Size = 2,
    stride: Size | None = None,
    pad: Size = 0,
    *,
    name: str = "",
    **more: Any,
) -> Top:
    """The maximum of each window; stride is the window's size by default. Output sizes are rounded up."""
    return _pool(model, "MAX", x, kernel_size, stride, pad, name, more)


def avg_pool(
    model: Model,
    x: Top,
    kernel_size: Size = 2,
    stride: Size | None = None,
    pad: Size = 0,
    *,
    name: str = "",
    **more: Any,
) -> Top:
    """The mean of each window; stride is the window's size by default. Output sizes are rounded up."""
    return _pool(model, "AVE", x, kernel_size, stride, pad, name, more)


def _pool(
    model: Model,
    pool: str,
    x: Top,
    kernel_size: Size,
    stride: Size | None,
    pad: Size,
    name: str,
    more: dict[str, Any],
) -> Top:
    params = {
        "pool": pool,
        **size_fields("kernel", kernel_size, "kernel_size"),
        **size_fields("stride", kernel_size if stride is None else stride, "stride", 1),
        **size_fields("pad", pad, "pad", 0),
    }
    return model.add_layer(
        "Pooling", [x], {**params, **rest(more)}, name=name, base="pool", **general(more)
    ).tops[0]


def global_avg_pool(model: Model, x: Top, *, name: str = "", **more: Any) -> Top:
    """The mean of each channel: (N, C, H, W) -> (N, C, 1, 1)."""
    params = {"pool": "AVE", "global_pooling": True, **rest(more)}
    return model.add_layer("Pooling", [x], params, name=name, base="pool", **general(more)).tops[0]


def relu(
    model: Model,
    x: Top,
    negative_slope: float = 0.0,
    *,
    in_place: bool | None = None,
    name: str = "",
    **more: Any,
) -> Top:
    """max(0, x) + negative_slope min(0, x)"""
    params = {"negative_slope": negative_slope} if negative_slope else {}
    call = model.add_layer(
        "ReLU", [x], {**params, **rest(more)}, name=name, base="relu", in_place=in_place, **general(more)
    )
    return call.tops[0]


def dropout(
    model: Model, x: Top, ratio: float = 0.5, *, in_place: bool | None = None, name: str = "", **more: Any
) -> Top:
    """Training: each element is 0 with probability `ratio`, the others times 1 / (1 - ratio). Testing: x."""
    call = model.add_layer(
        "Dropout",
        [x],
        {"dropout_ratio": ratio, **rest(more)},
        name=name,
        base="drop",
        in_place=in_place,
        **general(more),
    )
    return call.tops[0]


def concat(model: Model, *xs: Top, axis: int = 1, name: str = "", **more: Any) -> Top:
    """The inputs one behind the other along `axis`; their other axes agree."""
    params = {"axis": axis, **rest(more)}
    return model.add_layer("Concat", xs, params, name=name, base="concat", **general(more)).tops[0]


def add(model: Model, *xs: Top, coeff: Sequence[float] = (), name: str = "", **more: Any) -> Top:
    """The sum of inputs of one shape, each times its coeff."""
    return _eltwise(model, "SUM", xs, coeff, name, more)


def multiply(model: Model, *xs: Top, name: str = "", **more: Any) -> Top:
    """The product, element by element, of inputs of one shape."""
    return _eltwise(model, "PROD", xs, (), name, more)


def maximum(model: Model, *xs: Top, name: str = "", **more: Any) -> Top:
    """The largest, element by element, of inputs of one shape."""
    return _eltwise(model, "MAX", xs, (), name, more)


def _eltwise(
    model: Model, operation: str, xs: Sequence[Top], coeff: Sequence[float], name: str, more: dict[str, Any]
) -> Top:
    params = {"operation": operation, **({"coeff": list(coeff)} if coeff else {}), **rest(more)}
    return model.add_layer("Eltwise", xs, params, name=name, base="eltwise", **general(more)).tops[0]


def reshape(model: Model, x: Top, shape: Sequence[int], *, name: str = "", **more: Any) -> Top:
    """x in another shape: 0 keeps that axis, -1 (once) is what remains."""
    params = {"shape": {"dim": list(shape)}, **rest(more)}
    return model.add_layer("Reshape", [x], params, name=name, base="reshape", **general(more)).tops[0]


def python(
    model: Model,
    *bottoms: Top,
    layer: type | str,
    module: str = "",
    param_str: str = "",
    ntop: int = 1,
    name: str = "",
    **more: Any,
) -> Any:
    """A layer that you wrote, by its class (or by the names of module and class): its top, or a tuple.

    Other processes find it by import, so a class must not be defined in a script or a notebook's cell if the
    files that are saved shall be trained elsewhere.
    """
    if isinstance(layer, type):
        if not issubclass(layer, Layer):
            raise ModelError(f"python: {layer.__name__} is no layer: it must inherit from caffe.Layer")
        module, layer = layer.__module__, layer.__qualname__
        if "<locals>" in layer or "." in layer:
            raise ModelError(
                f"python: class {layer} must stand at the top of its module, to be found by name"
            )
    elif not module or not isinstance(layer, str):
        raise ModelError(f"python: give a class, or the names of module and class, not {layer!r:.60}")
    params = {"python_param": {"module": module, "layer": layer, "param_str": param_str}, **rest(more)}
    call = model.add_layer(
        "Python", bottoms, params, name=name, base=str(layer).lower(), ntop=ntop, **general(more)
    )
    return _tops(call)


def _tops(call: LayerCall) -> Any:
    return call.tops[0] if len(call.tops) == 1 else call.tops


_GENERAL = ("phase",)


def general(more: dict[str, Any]) -> dict[str, Any]:
    """What add_layer itself takes."""
    return {key: more[key] for key in _GENERAL if key in more}


def rest(more: dict[str, Any]) -> dict[str, Any]:
    """Fields of the definition."""
    return {key: value for key, value in more.items() if key not in _GENERAL}


def size_fields(prefix: str, value: Size, field: str, default: int | None = None) -> dict[str, int]:
    """kernel_size=5 or (3, 5) as fields; none for the default. Raises ModelError for other lengths."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ModelError(f"{field} takes a number or (height, width), not {value!r:.60}")
        height, width = value
        if height != width:
            return {f"{prefix}_h": height, f"{prefix}_w": width}
        value = height
    return {} if value == default else {field: value}
