"""Which layers run on the GPU: every type that the original had a GPU version of, with what it was
recorded with."""

from __future__ import annotations

import pytest

import caffe
import golden_vectors as golden
from caffe import kernels
from conftest import use_gpu
from engines.cuda import support
from golden_vectors import Case

# Python layers are the host's by nature; of data layers those that read ahead send their batches themselves.
ON_GPU = """AbsVal Accuracy BNLL BatchNorm BatchReindex Bias Clip Concat ContrastiveLoss Convolution Crop
Deconvolution Dropout ELU Eltwise Embed EuclideanLoss Exp Filter Flatten Im2col InnerProduct LRN LSTM LSTMUnit
Log MVN PReLU Pooling Power RNN ReLU Reduction Reshape SPP Scale Sigmoid SigmoidCrossEntropyLoss Silence Slice
Softmax SoftmaxWithLoss Split Swish TanH Threshold Tile""".split()


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    use_gpu()
    monkeypatch.setenv("CAFFE_ENGINE", "cuda")


def test_all_types_have_rows() -> None:
    assert kernels.engine_ready("cuda")
    rows = {layer_type for layer_type, engine in kernels._kernels if engine == "cuda"}
    solvers = {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"}
    assert rows == {*ON_GPU, *solvers, "Data", "ImageData", "WindowData"}


@pytest.mark.parametrize("case", [c for c in golden.cases("layers") if c.path.parent.name in ON_GPU], ids=str)
def test_recorded_layers_run_there(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.folder)
    net = caffe.Net(case.prototxt.name, getattr(caffe, case.meta["phase"]))
    used = {step.layer.type: step.kernel.engine for step in net._steps}
    # More than three spatial axes are the host's.
    wanted = kernels.REFERENCE if case.path.stem == "nd4" else "cuda"
    assert used[case.path.parent.name] == wanted


def test_more_spatial_axes_than_kernels_know_run_on_the_host() -> None:
    param = caffe.proto.caffe_pb2.NetParameter()
    data = param.layer.add(name="x", type="Input", top=["x"])
    data.input_param.shape.add(dim=[1, 1, 2, 2, 2, 2])
    conv = param.layer.add(name="conv", type="Convolution", bottom=["x"], top=["y"])
    conv.convolution_param.num_output = 1
    conv.convolution_param.kernel_size.append(1)
    net = caffe.Net(param, caffe.TEST)
    assert support.engines_of(net)["conv"] == kernels.REFERENCE
    net.forward()
