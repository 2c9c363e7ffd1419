"""The layer functions that people use daily. Every other layer type has one, too: see modules.py.

A layer function is a plain function that takes a model and tops, adds layers, and returns tops. These are
called as methods of a model, m.conv(x, 20, 5), or on the ambient one, M.conv(x, 20, 5).

All take `name`, `phase` ("train" or "test": the layer is there in that phase only) and further fields of the
layer's parameters or of LayerParameter, spelled as in a prototxt. Fillers are a type ("xavier"), a number, or
a dict of fields. `weight` and `bias` take parameters to share (see Model.create_parameter). `in_place=None`
lets the model work in place where nobody can tell; False and True say it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .graph import LayerCall, ModelError, Top
from .model import Model
from .parameters import FillerLike, Parameter, filler_message

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


def conv(
    model: Model,
    x: Top,
    num_output: int,
    kernel_size: Size = 3,
    stride: Size = 1,
    pad: Size = 0,
    *,
    dilation: int = 1,
    group: int = 1,
    weight: Parameter | None = None,
    bias: bool | Parameter = True,
    weight_filler: FillerLike = "xavier",
    bias_filler: FillerLike = 0,
    name: str = "",
    **more: Any,
) -> Top:
    """Convolution: x (N, C, H, W) -> (N, num_output, H', W'), H' = (H + 2 pad - kernel_size) // stride + 1.

    Sizes are a number or (height, width). bias: False for none.
    """
    return _convolution(
        model, "Convolution", "conv", x, num_output, kernel_size, stride, pad, dilation, group, weight, bias,
        weight_filler, bias_filler, name, more,
    )  # fmt: skip


def deconv(
    model: Model,
    x: Top,
    num_output: int,
    kernel_size: Size,
    stride: Size = 1,
    pad: Size = 0,
    *,
    dilation: int = 1,
    group: int = 1,
    weight: Parameter | None = None,
    bias: bool | Parameter = True,
    weight_filler: FillerLike = "xavier",
    bias_filler: FillerLike = 0,
    name: str = "",
    **more: Any,
) -> Top:
    """Deconvolution: x (N, C, H, W) -> (N, num_output, H', W'), H' = stride (H - 1) + kernel_size - 2 pad."""
    return _convolution(
        model, "Deconvolution", "deconv", x, num_output, kernel_size, stride, pad, dilation, group, weight,
        bias, weight_filler, bias_filler, name, more,
    )  # fmt: skip


def _convolution(
    model: Model,
    type: str,
    base: str,
    x: Top,
    num_output: int,
    kernel_size: Size,
    stride: Size,
    pad: Size,
    dilation: int,
    group: int,
    weight: Parameter | None,
    bias: bool | Parameter,
    weight_filler: FillerLike,
    bias_filler: FillerLike,
    name: str,
    more: dict[str, Any],
) -> Top:
    params = {
        "num_output": num_output,
        **_size("kernel", kernel_size, "kernel_size"),
        **_size("stride", stride, "stride", 1),
        **_size("pad", pad, "pad", 0),
        **({"dilation": dilation} if dilation != 1 else {}),
        **({"group": group} if group != 1 else {}),
    }
    return _learned(model, type, base, x, params, weight, bias, weight_filler, bias_filler, name, more)


def _learned(
    model: Model,
    type: str,
    base: str,
    x: Top,
    params: dict[str, Any],
    weight: Parameter | None,
    bias: bool | Parameter,
    weight_filler: FillerLike,
    bias_filler: FillerLike,
    name: str,
    more: dict[str, Any],
) -> Top:
    """A layer with a weight and perhaps a bias."""
    params["weight_filler"] = filler_message(weight_filler)
    if bias is False:
        params["bias_term"] = False
    elif bias_filler != 0:
        params["bias_filler"] = filler_message(bias_filler)
    call = model.add_layer(type, [x], {**params, **rest(more)}, name=name, base=base, **general(more))
    if weight is not None:
        model.share(call, 0, weight)
    if isinstance(bias, Parameter):
        model.share(call, 1, bias)
    return call.tops[0]


def fc(
    model: Model,
    x: Top,
    num_output: int,
    *,
    axis: int = 1,
    weight: Parameter | None = None,
    bias: bool | Parameter = True,
    weight_filler: FillerLike = "xavier",
    bias_filler: FillerLike = 0,
    name: str = "",
    **more: Any,
) -> Top:
    """Fully connected (InnerProduct): y = W x + b over all axes of x from `axis` on; y (N, num_output)."""
    params: dict[str, Any] = {"num_output": num_output}
    if axis != 1:
        params["axis"] = axis
    return _learned(
        model, "InnerProduct", "fc", x, params, weight, bias, weight_filler, bias_filler, name, more
    )


dense = fc


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
        **_size("kernel", kernel_size, "kernel_size"),
        **_size("stride", kernel_size if stride is None else stride, "stride", 1),
        **_size("pad", pad, "pad", 0),
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


def batch_norm(
    model: Model,
    x: Top,
    *,
    scale: bool = True,
    momentum: float = 0.999,
    eps: float = 1e-5,
    in_place: bool | None = None,
    name: str = "",
    **more: Any,
) -> Top:
    """Each channel to mean 0 and variance 1 over the batch (over running means when testing), then, with
    `scale`, a learned scale and bias per channel: the layers BatchNorm and Scale, which is called
    "<name>/scale". momentum: of the running means (moving_average_fraction)."""
    params = {"moving_average_fraction": momentum, "eps": eps, **rest(more)}
    call = model.add_layer("BatchNorm", [x], params, name=name, base="bn", in_place=in_place, **general(more))
    if not scale:
        return call.tops[0]
    inner = f"{name or call.name.rpartition('/')[2]}/scale"
    return model.add_layer(
        "Scale", call.tops, {"bias_term": True}, name=inner, in_place=in_place, **general(more)
    ).tops[0]


def embed(
    model: Model,
    x: Top,
    input_dim: int,
    num_output: int,
    *,
    weight: Parameter | None = None,
    bias: bool | Parameter = False,
    weight_filler: FillerLike = "xavier",
    bias_filler: FillerLike = 0,
    name: str = "",
    **more: Any,
) -> Top:
    """Row x[...] of a learned table: integers in [0, input_dim) of any shape -> (*shape, num_output)."""
    params = {"input_dim": input_dim, "num_output": num_output}
    return _learned(model, "Embed", "embed", x, params, weight, bias, weight_filler, bias_filler, name, more)


def lstm(
    model: Model,
    x: Top,
    cont: Top,
    num_output: int,
    *,
    static: Top | None = None,
    weight_filler: FillerLike = "xavier",
    bias_filler: FillerLike = 0,
    name: str = "",
    **more: Any,
) -> Top:
    """A long short-term memory: x (T, N, ...) -> (T, N, num_output).

    cont: (T, N), 0 where a sequence begins and 1 where it goes on. static: (N, ...), seen at every step.
    """
    return _recurrent(model, "LSTM", x, cont, num_output, static, weight_filler, bias_filler, name, more)


def rnn(
    model: Model,
    x: Top,
    cont: Top,
    num_output: int,
    *,
    static: Top | None = None,
    weight_filler: FillerLike = "xavier",
    bias_filler: FillerLike = 0,
    name: str = "",
    **more: Any,
) -> Top:
    """A recurrent layer of tanh units; x, cont and static as for lstm."""
    return _recurrent(model, "RNN", x, cont, num_output, static, weight_filler, bias_filler, name, more)


def _recurrent(
    model: Model,
    type: str,
    x: Top,
    cont: Top,
    num_output: int,
    static: Top | None,
    weight_filler: FillerLike,
    bias_filler: FillerLike,
    name: str,
    more: dict[str, Any],
) -> Top:
    params = {
        "num_output": num_output,
        "weight_filler": filler_message(weight_filler),
        "bias_filler": filler_message(bias_filler),
        **rest(more),
    }
    bottoms = [x, cont] if static is None else [x, cont, static]
    return model.add_layer(type, bottoms, params, name=name, base=type.lower(), **general(more)).tops[0]


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
        module, layer = layer.__module__, layer.__qualname__
        if "<locals>" in layer or "." in layer:
            raise ModelError(
                f"python: class {layer} must stand at the top of its module, to be found by name"
            )
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


def _size(prefix: str, value: Size, field: str, default: int | None = None) -> dict[str, int]:
    if isinstance(value, (tuple, list)):
        height, width = value
        if height != width:
            return {f"{prefix}_h": height, f"{prefix}_w": width}
        value = height
    return {} if value == default else {field: value}
