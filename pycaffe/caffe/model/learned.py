"""The daily layer functions of layers with parameters: convolution, fully connected, recurrent ...

As all layer functions (functions.py). Fillers are a type ("xavier"), a number, or a dict of fields. `weight`
and `bias` take parameters to share (see Model.create_parameter).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .functions import Size, general, rest, size_fields
from .graph import Top
from .model import Model
from .parameters import FillerLike, Parameter, filler_message


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
        **size_fields("kernel", kernel_size, "kernel_size"),
        **size_fields("stride", stride, "stride", 1),
        **size_fields("pad", pad, "pad", 0),
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
    if weight is not None:
        model.check_parameter("weight", weight)
    if not isinstance(bias, (bool, np.bool_)):
        model.check_parameter("bias (True and False apart)", bias)
    params["weight_filler"] = filler_message(weight_filler)
    if not isinstance(bias, Parameter) and not bias:
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
