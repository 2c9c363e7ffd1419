"""Blocks of layers that many nets are made of. Each adds layers to a NetSpec and returns the last top."""

from __future__ import annotations

from typing import Any

from caffe import NetSpec
from caffe import layers as L
from caffe import params as P
from caffe.net_spec import Top

# Weights at the solver's rate; biases at twice that and without decay.
LEARN = [dict(lr_mult=1, decay_mult=1), dict(lr_mult=2, decay_mult=0)]
# As LEARN, for a layer that is new in a net whose other layers are fine-tuned.
LEARN_FAST = [dict(lr_mult=10, decay_mult=1), dict(lr_mult=20, decay_mult=0)]
# Weights of a convolution without a bias.
WEIGHTS = [dict(lr_mult=1, decay_mult=1)]


def gaussian(std: float) -> dict[str, Any]:
    return dict(type="gaussian", std=std)


def constant(value: float) -> dict[str, Any]:
    return dict(type="constant", value=value)


def relu(n: NetSpec, name: str, bottom: Top) -> Top:
    """A rectifier in place."""
    n[name] = L.ReLU(bottom, in_place=True)
    return n[name]


def max_pool(n: NetSpec, name: str, bottom: Top, kernel: int, stride: int, **more: Any) -> Top:
    n[name] = L.Pooling(bottom, pool=P.Pooling.MAX, kernel_size=kernel, stride=stride, **more)
    return n[name]


def ave_pool(n: NetSpec, name: str, bottom: Top, kernel: int, stride: int, **more: Any) -> Top:
    n[name] = L.Pooling(bottom, pool=P.Pooling.AVE, kernel_size=kernel, stride=stride, **more)
    return n[name]


def global_pool(n: NetSpec, name: str, bottom: Top) -> Top:
    """The mean of each channel."""
    n[name] = L.Pooling(bottom, pool=P.Pooling.AVE, global_pooling=True)
    return n[name]


def conv(
    n: NetSpec, name: str, bottom: Top, num_output: int, kernel: int, *, top: str = "", **more: Any
) -> Top:
    """A convolution with a bias, filled as xavier unless told otherwise. top: where it is not called as the
    layer."""
    settings: dict[str, Any] = dict(param=LEARN, weight_filler=dict(type="xavier"), bias_filler=constant(0))
    settings |= dict(name=name, num_output=num_output, kernel_size=kernel)
    n[top or name] = L.Convolution(bottom, **{**settings, **more})
    return n[top or name]


def conv_relu(
    n: NetSpec, name: str, relu_name: str, bottom: Top, num_output: int, kernel: int, **more: Any
) -> Top:
    return relu(n, relu_name, conv(n, name, bottom, num_output, kernel, **more))


def inner_product(n: NetSpec, name: str, bottom: Top, num_output: int, **more: Any) -> Top:
    settings: dict[str, Any] = dict(param=LEARN, weight_filler=dict(type="xavier"), bias_filler=constant(0))
    n[name] = L.InnerProduct(bottom, num_output=num_output, **{**settings, **more})
    return n[name]


def norm_conv(
    n: NetSpec,
    name: str,
    bottom: Top,
    num_output: int,
    kernel: int | tuple[int, int],
    *,
    bn: str,
    scale: str,
    relu_name: str | None = None,
    in_place: bool = True,
    eps: float = 1e-5,
    **more: Any,
) -> Top:
    """A convolution without a bias, then BatchNorm, Scale and, with relu_name, a rectifier.

    kernel: (height, width) for one that is not square. bn, scale: names of these layers. in_place: False
    gives BatchNorm a blob of its own, named as the layer. more: the convolution's parameters, pad for one.
    """
    shape = (
        dict(kernel_size=kernel) if isinstance(kernel, int) else dict(kernel_h=kernel[0], kernel_w=kernel[1])
    )
    settings: dict[str, Any] = dict(param=WEIGHTS, bias_term=False, weight_filler=dict(type="msra"))
    n[name] = L.Convolution(bottom, num_output=num_output, **shape, **{**settings, **more})
    return norm(n, n[name], bn, scale, relu_name, in_place=in_place, eps=eps)


def norm(
    n: NetSpec, bottom: Top, bn: str, scale: str, relu_name: str | None, *, in_place: bool, eps: float = 1e-5
) -> Top:
    """BatchNorm, its learned scale and offset, and a rectifier if it has a name."""
    n[bn] = L.BatchNorm(bottom, in_place=in_place, batch_norm_param=dict(eps=eps))
    # Neither scale nor offset decays.
    n[scale] = L.Scale(n[bn], in_place=True, bias_term=True, param=[dict(decay_mult=0), dict(decay_mult=0)])
    return relu(n, relu_name, n[scale]) if relu_name else n[scale]
