"""What a net is made of, counted by hand."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

import caffe
from caffe.net_summary import amount_text, shape_text, summarize, table
from caffe.proto import caffe_pb2


def net_of(text: str) -> caffe.Net:
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TEST)


def input_of(*dims: int, name: str = "x") -> str:
    shape = " ".join(f"dim: {d}" for d in dims)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {shape} }} }} }}'


CASES = {
    # 4 · (6/2) · 3 · 3 weights at 2 · 4 · 3 places
    "convolution": (
        [input_of(2, 6, 6, 5)],
        'type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 group: 2 }',
        (4 * 3 * 9 + 4, 108 * 2 * 4 * 3),
    ),
    # 2 · 3 · 2 · 2 weights at each of the 5 · 5 places of the bottom
    "deconvolution": (
        [input_of(1, 2, 5, 5)],
        'type: "Deconvolution" convolution_param { num_output: 3 kernel_size: 2 stride: 2 bias_term: false }',
        (24, 24 * 25),
    ),
    # 3 · 10 weights for each of 4 rows
    "inner product": (
        [input_of(4, 2, 5)],
        'type: "InnerProduct" inner_product_param { num_output: 3 }',
        (33, 4 * 30),
    ),
    # 7 rows of 5: axis 2 keeps what is before it
    "inner product over the last axis": (
        [input_of(7, 1, 5)],
        'type: "InnerProduct" inner_product_param { num_output: 3 axis: 2 }',
        (18, 7 * 15),
    ),
    # 3 steps of 2 streams; the four gates have 4 · 5 · 6 weights of the input and 4 · 5 · 5 of the state
    "LSTM": (
        [input_of(3, 2, 6), input_of(3, 2, name="c")],
        'type: "LSTM" bottom: "c" recurrent_param { num_output: 5 }',
        (120 + 20 + 100, (120 + 100) * 6),
    ),
    # a static input of 4 adds 4 · 5 · 4 weights, used once for each stream
    "LSTM with a static input": (
        [input_of(3, 2, 6), input_of(3, 2, name="c"), input_of(2, 4, name="s")],
        'type: "LSTM" bottom: "c" bottom: "s" recurrent_param { num_output: 5 }',
        (240 + 80, (120 + 100) * 6 + 80 * 2),
    ),
    "a layer that does not multiply by weights": ([input_of(2, 3)], 'type: "PReLU"', (3, 0)),
}


@pytest.mark.parametrize("case", CASES)
def test_parameters_and_multiply_adds(case: str) -> None:
    inputs, layer, wanted = CASES[case]
    row = summarize(net_of(f'{"".join(inputs)} layer {{ name: "l" bottom: "x" top: "y" {layer} }}'))[-1]
    assert (row.parameters, row.multiply_adds) == wanted


SHARED = (
    input_of(2, 4)
    + """
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } param { name: "b" }
        inner_product_param { num_output: 4 } }
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" param { name: "w" } param { name: "b" }
        inner_product_param { num_output: 4 } }
layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }
"""
)


def test_shared_parameters_count_once_and_splits_are_left_out() -> None:
    rows = summarize(net_of(SHARED))
    assert [row.name for row in rows] == ["x", "a", "b", "sum"]
    assert [row.parameters for row in rows] == [0, 20, 0, 0]
    assert [row.multiply_adds for row in rows] == [0, 32, 32, 0]
    assert rows[2].param_shapes == ((4, 4), (4,))
    assert rows[1].top_shapes == ((2, 4),)


def test_a_table_of_text() -> None:
    rows = table(net_of(SHARED))
    assert rows[0] == ("layer", "type", "tops", "shape", "parameters", "multiply-adds")
    assert rows[2] == ("a", "InnerProduct", "a", "2×4", "20", "32")
    assert rows[-1] == ("4 layers", "", "", "", "20", "64")


def test_numbers_as_text() -> None:
    assert [amount_text(n) for n in (0, 999, 1000, 61_100_832, 7.25e8, 1e15)] == [
        "0", "999", "1 k", "61.1 M", "725 M", "1e+03 T",
    ]  # fmt: skip
    assert (shape_text((1, 2)), shape_text(())) == ("1×2", "scalar")
