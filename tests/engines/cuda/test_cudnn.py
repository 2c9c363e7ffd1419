"""cuDNN's convolutions: the recorded ones, on the emulated library, and when they are chosen."""

from __future__ import annotations

import pytest

import caffe
import golden_vectors as golden
from caffe import kernels
from conftest import use_gpu
from engines.cuda import support
from golden_vectors import Case
from test_golden_layers import test_layer as check_layer

CASES = [c for c in golden.cases("layers") if c.path.parent.name in ("Convolution", "Deconvolution")]


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    use_gpu()
    if not kernels.engine_ready("cudnn"):
        pytest.skip(kernels.engine_reason("cudnn"))
    monkeypatch.delenv("CAFFE_ENGINE", raising=False)
    caffe.set_mode_gpu()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_recorded_convolutions(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    check_layer(case, "cudnn", monkeypatch)


def net_of(engine: str) -> caffe.Net:
    param = caffe.proto.caffe_pb2.NetParameter()
    data = param.layer.add(name="x", type="Input", top=["x"])
    data.input_param.shape.add(dim=[1, 2, 5, 5])
    conv = param.layer.add(name="conv", type="Convolution", bottom=["x"], top=["y"])
    conv.convolution_param.num_output = 2
    conv.convolution_param.kernel_size.append(3)
    conv.convolution_param.engine = getattr(caffe.proto.caffe_pb2.ConvolutionParameter, engine)
    param.layer.add(name="relu", type="ReLU", bottom=["y"], top=["y"])
    return caffe.Net(param, caffe.TEST)


@pytest.mark.parametrize(("engine", "chosen"), [("DEFAULT", "cudnn"), ("CUDNN", "cudnn"), ("CAFFE", "cuda")])
def test_it_is_the_default_where_it_is(engine: str, chosen: str) -> None:
    engines = support.engines_of(net_of(engine))
    assert engines["conv"] == chosen
    assert engines["relu"] == "cuda"


def test_the_first_deterministic_algorithm_within_the_workspace_is_taken() -> None:
    support.emulated()
    step = net_of("CUDNN")._steps[1]
    assert step.kernel._forward == step.kernel._backward_data == (1, 128)


def test_without_the_library_the_engine_is_absent_with_its_cure() -> None:
    code = """
import caffe
from caffe import kernels
from caffe.engines.cuda import cublas
find, cublas.ctypes.CDLL = cublas.ctypes.CDLL, None
def without(name, *rest):
    if "cudnn" in str(name):
        raise OSError(f"{name}: cannot open shared object file")
    return find(name, *rest)
cublas.ctypes.CDLL = without
print(kernels.engine_ready("cudnn"), kernels.engine_reason("cudnn"), kernels.engine_ready("cuda"))
"""
    done = support.run_python(code)
    assert done.stdout.startswith("False") and done.stdout.strip().endswith("True"), done.stderr
    assert "libcudnn.so.9: cannot open shared object file" in done.stdout
    assert "pip install nvidia-cudnn" in done.stdout
