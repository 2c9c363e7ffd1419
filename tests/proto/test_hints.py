"""What errors say about names that the schema lacks: where they come from, or what was meant."""

from __future__ import annotations

import pytest

from caffe.errors import ParseError
from caffe.proto import caffe_pb2 as pb
from caffe.proto_text import parse_text


def message_of(text: str, cls: type = pb.NetParameter) -> str:
    with pytest.raises(ParseError) as caught:
        parse_text(text, cls)
    return str(caught.value)


@pytest.mark.parametrize(
    ("inside", "message", "field", "fork"),
    [
        ("bn_param { }", "LayerParameter", "bn_param", "SegNet"),
        ("upsample_param { }", "LayerParameter", "upsample_param", "SegNet"),
        ("permute_param { }", "LayerParameter", "permute_param", "SSD"),
        ("prior_box_param { }", "LayerParameter", "prior_box_param", "SSD"),
        ("interp_param { }", "LayerParameter", "interp_param", "DeepLab"),
        ("roi_pooling_param { }", "LayerParameter", "roi_pooling_param", "Faster R-CNN"),
        ("forward_type: FLOAT16", "LayerParameter", "forward_type", "NVIDIA"),
        ("pooling_param { round_below: true }", "PoolingParameter", "round_below", "fork"),
        ("convolution_param { hole: 2 }", "ConvolutionParameter", "hole", "dilation"),
        ("transform_param { resize_param { } }", "TransformationParameter", "resize_param", "SSD"),
        ("batch_norm_param { scale_bias: true }", "BatchNormParameter", "scale_bias", "NVIDIA"),
        ("convolution_param { ceil_mode: true }", "ConvolutionParameter", "ceil_mode", "pooling_param"),
    ],
)
def test_fields_of_forks(inside: str, message: str, field: str, fork: str) -> None:
    text = message_of(f'layer {{ name: "l" {inside} }}')
    assert f'Message type "caffe.{message}" has no field named "{field}".' in text
    assert fork in text
    assert ("docs/migrate.md" in text) == (message == "LayerParameter")


def test_fields_of_forks_in_the_old_format_and_in_solvers() -> None:
    assert "SegNet" in message_of("layers { bn_param { } }")
    assert "NVIDIA" in message_of("min_lr: 0.1", pb.SolverParameter)


@pytest.mark.parametrize("engine", ["MKLDNN", "MKL2017"])
def test_engines_of_forks(engine: str) -> None:
    text = message_of(f"layer {{ convolution_param {{ engine: {engine} }} }}")
    assert f'Unknown enumeration value of "{engine}" for field "engine".' in text
    assert "Intel Caffe" in text


def test_close_names() -> None:
    assert "Did you mean 'kernel_size'" in message_of("layer { convolution_param { kernel_sise: 3 } }")
    assert "Did you mean 'type'" in message_of('layer { typ: "ReLU" }')
    text = message_of("layer { pooling_param { pool: MEAN } }")
    assert "PoolMethod is one of MAX, AVE, STOCHASTIC" in text
    assert "did you mean 'STOCHASTIC'" in message_of("layer { pooling_param { pool: Stochastik } }")


def test_names_that_nothing_resembles_get_the_list() -> None:
    assert "DropoutParameter has: dropout_ratio." in message_of("layer { dropout_param { xyzzy: 1 } }")


def test_a_field_one_level_too_high() -> None:
    text = message_of("layer { num_output: 10 }")
    assert "is a field inside of convolution_param" in text and "inner_product_param" in text


def test_a_missing_brace() -> None:
    text = message_of('layer {\n convolution_param {\n  num_output: 1\n}\nlayer { name: "b" }')
    assert text.startswith("<text>:5:1: ")
    assert "'layer' is a field of NetParameter: is a closing brace missing before it?" in text


def test_old_fields_in_the_current_format() -> None:
    assert "param { lr_mult: ... }" in message_of("layer { blobs_lr: 1 }")
    assert "param { decay_mult: ... }" in message_of("layer { weight_decay: 1 }")
    assert "layers { layer { } }" in message_of("layer { kernelsize: 1 }")


def test_types_of_the_other_format() -> None:
    text = message_of("layer { type: CONVOLUTION }")
    assert "Expected string, got: CONVOLUTION" in text and "This file mixes the two" in text
    text = message_of('layers { type: "Convolution" }')
    assert 'Expected integer or identifier, got: "Convolution"' in text and "This file mixes the two" in text


def test_quoted_enum_and_unquoted_string() -> None:
    text = message_of('layer { pooling_param { pool: "MAX" } }')
    assert "PoolMethod is one of MAX, AVE, STOCHASTIC, without quotes." in text
    assert 'Put it in quotes: source: "a"' in message_of("layer { data_param { source: a } }")


def test_solver_given_as_net_and_net_given_as_solver() -> None:
    text = message_of('net: "train_val.prototxt"\nbase_lr: 0.01\n')
    assert "this looks like a solver's file where a net's is wanted" in text
    text = message_of('name: "LeNet"\nlayer { }\n', pb.SolverParameter)
    assert "this looks like a net's file where a solver's is wanted" in text
