"""What kernels say of the values that their backward reads: everything else may become anything before."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import net_memory
from caffe.proto import caffe_pb2
from caffe.synced_mem import SyncedMem

# 20 channels fill no blocks of 16 or 8.
IMAGES = (2, 20, 6, 6)
SUM_OF_TWO = 'bottom: "x" bottom: "z" top: "y"'
ONE, IN_PLACE = 'bottom: "x" top: "y"', 'bottom: "x" top: "x"'


def layer(type: str, blobs: str = ONE, fields: str = "", name: str = "") -> str:
    return f'layer {{ name: "{name or type}" type: "{type}" {blobs} {fields} }}\n'


def filled(param: str, fields: str) -> str:
    return f'{param} {{ {fields} weight_filler {{ type: "xavier" }} bias_filler {{ value: 0.1 }} }}'


CONVOLUTION = filled("convolution_param", "num_output: 20 kernel_size: 3 pad: 1")
POOLING = "pooling_param {{ pool: {} kernel_size: 3 stride: 2 {} }}"
BIAS_TERM = "scale_param { bias_term: true filler { value: 0.7 } }"
NORMALIZED = layer("BatchNorm", 'bottom: "c" top: "c"') + layer("Scale", 'bottom: "c" top: "c"', BIAS_TERM)
BESIDE = layer("BatchNorm", 'bottom: "c" top: "n"') + layer("Scale", 'bottom: "n" top: "n"', BIAS_TERM)

CASES = {
    "Convolution": layer("Convolution", fields=CONVOLUTION),
    "Convolution, shared": layer("Convolution", 'bottom: "x" bottom: "z" top: "y" top: "w"', CONVOLUTION),
    "Deconvolution": layer("Deconvolution", fields=CONVOLUTION),
    "InnerProduct": layer("InnerProduct", fields=filled("inner_product_param", "num_output: 7")),
    "LRN": layer("LRN"),
    "LRN within": layer("LRN", fields="lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 }"),
    "Pooling MAX": layer("Pooling", fields=POOLING.format("MAX", "")),
    "Pooling AVE": layer("Pooling", fields=POOLING.format("AVE", "")),
    "Pooling AVE, padded": layer("Pooling", fields=POOLING.format("AVE", "pad: 1")),
    "Pooling STOCHASTIC": layer("Pooling", fields=POOLING.format("STOCHASTIC", "")),
    "Dropout": layer("Dropout"),
    "Dropout in place": layer("Dropout", IN_PLACE),
    "ReLU": layer("ReLU"),
    "ReLU in place": layer("ReLU", IN_PLACE),
    "ReLU in place, leaky": layer("ReLU", IN_PLACE, "relu_param { negative_slope: 0.1 }"),
    "ELU in place": layer("ELU", IN_PLACE),
    "Sigmoid": layer("Sigmoid"),
    "TanH in place": layer("TanH", IN_PLACE),
    "Softmax": layer("Softmax"),
    "BatchNorm": layer("BatchNorm"),
    "BatchNorm in place": layer("BatchNorm", IN_PLACE),
    "BatchNorm, global": layer("BatchNorm", fields="batch_norm_param { use_global_stats: true }"),
    "BatchNorm in place, global": layer("BatchNorm", IN_PLACE, "batch_norm_param { use_global_stats: true }"),
    "Scale": layer("Scale", fields=BIAS_TERM),
    "Scale in place": layer("Scale", IN_PLACE, BIAS_TERM),
    "Scale in place, fixed": layer("Scale", IN_PLACE, BIAS_TERM + " param { lr_mult: 0 }"),
    "Scale by a blob": layer("Scale", SUM_OF_TWO, "scale_param { axis: 0 num_axes: 4 }"),
    "Scale by a blob in place": layer("Scale", 'bottom: "x" bottom: "z" top: "x"', "scale_param { axis: 0 }"),
    "Bias": layer("Bias"),
    "Bias in place": layer("Bias", IN_PLACE),
    "Bias from a blob": layer("Bias", SUM_OF_TWO, "bias_param { axis: 0 }"),
    "Eltwise SUM": layer("Eltwise", SUM_OF_TWO),
    "Eltwise SUM, weighted": layer("Eltwise", SUM_OF_TWO, "eltwise_param { coeff: 2 coeff: -1 }"),
    "Eltwise PROD": layer("Eltwise", SUM_OF_TWO, "eltwise_param { operation: PROD }"),
    "Eltwise PROD, quotient": layer(
        "Eltwise", SUM_OF_TWO, "eltwise_param { operation: PROD stable_prod_grad: false }"
    ),
    "Eltwise MAX": layer("Eltwise", SUM_OF_TWO, "eltwise_param { operation: MAX }"),
    "Concat": layer("Concat", SUM_OF_TWO),
    "Slice": layer("Slice", 'bottom: "x" top: "y" top: "w"'),
    "Split": layer("Split", 'bottom: "x" top: "y" top: "w"'),
    "Flatten": layer("Flatten"),
    "Reshape": layer("Reshape", fields="reshape_param { shape { dim: 0 dim: -1 } }"),
    "Power": layer("Power", fields="power_param { power: 2 shift: 3 }"),
    "PReLU in place": layer("PReLU", IN_PLACE),
    "Convolution, ReLU": layer("Convolution", 'bottom: "x" top: "c"', CONVOLUTION)
    + layer("ReLU", 'bottom: "c" top: "c"'),
    "BatchNorm, Scale": layer("Convolution", 'bottom: "x" top: "c"', CONVOLUTION) + NORMALIZED,
    "BatchNorm, Scale, ReLU": layer("Convolution", 'bottom: "x" top: "c"', CONVOLUTION)
    + NORMALIZED
    + layer("ReLU", 'bottom: "c" top: "c"'),
    "BatchNorm beside, Scale, ReLU": layer("Convolution", 'bottom: "x" top: "c"', CONVOLUTION)
    + BESIDE
    + layer("ReLU", 'bottom: "n" top: "n"'),
    "BatchNorm, Scale, sum, ReLU": layer("Convolution", 'bottom: "x" top: "c"', CONVOLUTION)
    + NORMALIZED
    + layer("Eltwise", 'bottom: "c" bottom: "z" top: "s"')
    + layer("ReLU", 'bottom: "s" top: "s"'),
}


def spoil(mem: SyncedMem) -> None:
    """Leave an array's state as it is, and write nan into all its memory."""
    values = np.full(mem.size, np.nan, np.float32)
    for (place, layout), buffer in mem._copies.items():
        place.from_host(values, layout, buffer)
    if mem.host is not None:
        mem.host[...] = np.nan


def build(text: str) -> caffe.Net:
    shape = "shape { " + " ".join(f"dim: {d}" for d in IMAGES) + " }"
    tops, shapes = 'top: "x"', shape
    if '"z"' in text:
        tops, shapes = tops + ' top: "z"', shapes + shape
    head = f'force_backward: true layer {{ name: "in" type: "Input" {tops} input_param {{ {shapes} }} }}\n'
    caffe.set_random_seed(3)
    return caffe.Net(text_format.Parse(head + text, caffe_pb2.NetParameter()), caffe.TRAIN)


def gradients(net: caffe.Net, rng: np.random.Generator, spoiled: bool, whole: bool) -> list[np.ndarray]:
    for name in net.inputs:
        net.blobs[name].overwrite_cpu_data()[...] = np.abs(rng.standard_normal(IMAGES)) + 0.1
        net.blobs[name].mutable_cpu_data()[:, ::3] *= -1
    net.clear_param_diffs()
    net.run_forward()
    for name in net.outputs:
        blob = net.blobs[name]
        blob.overwrite_cpu_diff()[...] = rng.standard_normal(blob.shape)
    read = net_memory.read_in_backward(net._steps, net._wiring.layer_need_backward)
    if spoiled:
        for mem in {blob.data_mem for blob in net._wiring.blobs} - read:
            spoil(mem)
    if whole:
        net.run_backward()
    else:
        for i in reversed(range(len(net.layers))):
            net.run_backward(i, i)
    found = [net.blobs[name].cpu_diff().copy() for name in net.inputs]
    return found + [p.blob.cpu_diff().copy() for p in net.learnable]


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "one by one"])
@pytest.mark.parametrize("case", CASES)
def test_backward_reads_no_more_than_it_says(engine: str, case: str, whole: bool) -> None:
    plain, spoiled = build(CASES[case]), build(CASES[case])
    for k in range(2):
        expected = gradients(plain, np.random.default_rng(k), False, whole)
        for a, b in zip(gradients(spoiled, np.random.default_rng(k), True, whole), expected, strict=True):
            assert np.isfinite(b).all()
            assert np.array_equal(a, b)
