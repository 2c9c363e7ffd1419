"""Layer functions that users add."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import pytest

import caffe
from caffe import model as M

SOURCE = '''
"""Blocks of ours."""
from caffe.model import Model, Top

def my_block(model: Model, x: Top, width: int, depth: int = 2) -> Top:
    """depth layers of `width`."""
    with model.scope("block"):
        for _ in range(depth):
            x = model.relu(model.fc(x, width))
    return x

def helper(x):
    return x

def _hidden(model):
    return None
'''


def module(name: str, source: str) -> types.ModuleType:
    made = types.ModuleType(name)
    sys.modules[name] = made
    exec(source, made.__dict__)
    return made


@pytest.fixture
def blocks() -> Iterator[types.ModuleType]:
    made = module("our_blocks", SOURCE)
    yield made
    M.unregister_module(made)
    del sys.modules["our_blocks"]


def test_functions_become_methods(blocks: types.ModuleType) -> None:
    assert M.register_module(blocks) == ["my_block"]
    m = M.Model()
    x = m.input((1, 2))
    a = m.my_block(x, 5)
    b = M.my_block(a, 3, depth=1)
    assert (a.name, b.name) == ("block/relu2", "block/relu3")
    assert m.my_block.__doc__ == "depth layers of `width`."
    assert "my_block" in dir(m) and "my_block" in dir(M)
    net = caffe.Sequential([M.MyBlock(5), M.Dense(2)])
    net.build((2,))
    assert net.layers[0] == M.MyBlock(5) and repr(net.layers[0]) == "M.MyBlock(5)"
    assert M.register_module("our_blocks") == ["my_block"], "again, after a reload"
    M.unregister_module(blocks)
    with pytest.raises(AttributeError, match="no layer function 'my_block'"):
        m.my_block(x, 5)


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("conv", "a layer function of caffe.model.functions"),
        ("power", "the function of layer type Power"),
        ("fit", "an attribute of every Model"),
        ("training", "the module caffe.model.training"),
        ("my_block", "a function of module 'our_blocks'"),
    ],
)
def test_clashes(blocks: types.ModuleType, name: str, owner: str) -> None:
    M.register_module(blocks)
    other = module("other_blocks", f"def {name}(model, x):\n    return x\n")
    with pytest.raises(M.ModelError, match=f"'other_blocks.{name}' clashes with {owner}"):
        M.register_module(other)
    del sys.modules["other_blocks"]


def test_a_module_without_any() -> None:
    empty = module("empty_blocks", "x = 1\n")
    with pytest.raises(
        M.ModelError, match="has no layer functions: functions whose first parameter is `model`"
    ):
        M.register_module(empty)
    del sys.modules["empty_blocks"]


def test_types_of_ones_own_have_functions() -> None:
    from caffe.layer_registry import unregister_layer

    @caffe.register_layer("DoubleIt")
    class DoubleIt(caffe.Layer):
        """y = 2 x"""

        exact_num_top = 1

        def reshape(self, bottom, top):
            top[0].reshape_like(bottom[0])

        def forward(self, bottom, top):
            top[0].data[...] = 2 * bottom[0].data

    try:
        m = M.Model()
        x = m.input((1, 2))
        assert m.run(m.double_it(x), {x: [[1, 2]]}).tolist() == [[2, 4]]
        assert "y = 2 x" in M.double_it.__doc__
    finally:
        unregister_layer("DoubleIt")
