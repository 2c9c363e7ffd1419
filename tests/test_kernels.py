"""The table of kernels, engines that are absent, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from caffe import kernels
from caffe.blob import Blob
from caffe.errors import EngineError
from caffe.kernels import Engine, Kernel
from caffe.layer import Layer
from caffe.proto import caffe_pb2


class Double(Layer):
    type = "Double"


@pytest.fixture
def layer() -> Layer:
    return Double(caffe_pb2.LayerParameter(name="d", type="Double"))


@pytest.fixture
def quick() -> Iterator[str]:
    loads = []
    kernels.register_engine(Engine("quick", load=lambda: loads.append(1)))

    @kernels.kernel("Double", engine="quick")
    class QuickDouble(Kernel):
        @classmethod
        def supports(cls, layer: Layer, bottom: list[Blob]) -> bool:
            return bottom[0].num_axes == 2

    yield "quick"
    kernels.unregister_engine("quick")
    assert len(loads) <= 1


def test_the_first_engine_that_supports_the_case(layer: Layer, quick: str) -> None:
    assert kernels.select(layer, [Blob((2, 2))], (quick,)).engine == "quick"
    assert kernels.select(layer, [Blob((2,))], (quick,)) is kernels.ReferenceKernel
    assert kernels.select(layer, [Blob((2, 2))], ()) is kernels.ReferenceKernel


def test_an_absent_engine_keeps_its_reason(layer: Layer) -> None:
    def load() -> None:
        raise EngineError("no such library; install it")

    kernels.register_engine(Engine("ghost", load=load))
    try:
        assert not kernels.engine_ready("ghost")
        assert kernels.engine_reason("ghost") == "no such library; install it"
        assert kernels.select(layer, [Blob((2, 2))], ("ghost",)) is kernels.ReferenceKernel
    finally:
        kernels.unregister_engine("ghost")


def test_rows_and_engines_have_one_owner(quick: str) -> None:
    with pytest.raises(EngineError, match="registered already"):
        kernels.register_engine(Engine("quick", load=lambda: None))
    with pytest.raises(EngineError, match="registered already, by .*QuickDouble"):
        kernels.kernel("Double", engine="quick")(Kernel)


def test_the_environment_overrides(quick: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAFFE_ENGINE", "quick")
    assert kernels.preferences() == ("quick",)
    monkeypatch.setenv("CAFFE_ENGINE", "reference")
    assert kernels.preferences() == ()
    monkeypatch.setenv("CAFFE_ENGINE", "quack")
    with pytest.raises(EngineError, match="CAFFE_ENGINE=quack: no such engine; known: reference.*quick"):
        kernels.preferences()


def test_unknown_engines_are_named() -> None:
    with pytest.raises(EngineError, match="unknown engine 'none'"):
        kernels.engine_ready("none")


def test_python_layers_run_by_themselves(layer: Layer, quick: str) -> None:
    layer.is_python = True  # type: ignore[misc]
    assert kernels.select(layer, [Blob((2,))], (quick,)) is kernels.PythonKernel
    assert np.array_equal(Blob((2,)).data, [0, 0])
