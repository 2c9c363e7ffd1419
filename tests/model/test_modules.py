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
        ("conv", "a layer function of caffe.model.learned"),
        ("power", "the function of layer type Power"),
        ("fit", "an attribute of every Model"),
        ("init_net", "an attribute of every Model"),
        ("engine", "an attribute of every Model"),
        ("training", "the module caffe.model.training"),
        ("current", "caffe.model.current"),
        ("register_module", "caffe.model.register_module"),
        ("Conv", r"the layers for a Sequential, as M.Conv\(...\)"),
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
    with pytest.raises(M.ModelError, match="register_module takes a module or its name, not 3"):
        M.register_module(3)  # type: ignore[arg-type]
    listed = module("listed_blocks", "__all__ = ['gone']\n")
    with pytest.raises(M.ModelError, match="'listed_blocks' has no 'gone', which its __all__ names"):
        M.register_module(listed)
    del sys.modules["listed_blocks"]


def test_the_model_may_come_first_as_the_function_takes_it(blocks: types.ModuleType) -> None:
    M.register_module(blocks)
    m = M.Model()
    x = m.input((1, 2))
    assert M.fc(m, x, 3).layer.type == M.Dense(3)(m, x).layer.type == "InnerProduct"
    with pytest.raises(M.ModelError, match=r"model= takes a caffe.model.Model, not int"):
        M.fc(x, 3, model=3)


def test_errors_of_a_block_name_the_line_where_it_was_written(blocks: types.ModuleType) -> None:
    M.register_module(blocks)
    line = sys._getframe().f_lineno
    layers = [
        M.Conv(4, 3),
        M.Conv(6, 3, group=4),
    ]
    m = M.Model()
    h = m.input((1, 4, 8, 8))
    for block in layers:
        h = block(h)
    with pytest.raises(caffe.CaffeError, match=rf"'conv2' \(Convolution, test_modules\.py:{line + 3}\)"):
        _ = h.shape


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
