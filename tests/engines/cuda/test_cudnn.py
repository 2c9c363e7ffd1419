"""cuDNN's layers: the recorded ones, on the emulated library; when they are chosen, and when they are not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
import golden_vectors as golden
from caffe import kernels
from conftest import use_gpu
from engines.cuda import support
from golden_vectors import Case
from test_golden_layers import test_layer as check_layer

LAYERS = ("Convolution", "Deconvolution", "Pooling", "LRN", "Softmax", "ReLU", "Sigmoid", "TanH")
CASES = [c for c in golden.cases("layers") if c.path.parent.name in LAYERS]
# What cuDNN does not compute, or does not promise to compute, as Caffe does (decision 0041).
OTHERWISE = """Convolution/nd4 ReLU/slope ReLU/inplace_slope ReLU/exact_zero Sigmoid/inplace TanH/inplace
LRN/within_3 LRN/within_5 LRN/within_k_ignored""".split()
# Means whose windows reach beyond the padding; and all maxima in training.
OVERHANGING = "ave_k2_s2 ave_k3_s2 ave_k3_s2_p1 ave_window_outside".split()


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    use_gpu()
    if not kernels.engine_ready("cudnn"):
        pytest.skip(kernels.engine_reason("cudnn"))
    monkeypatch.delenv("CAFFE_ENGINE", raising=False)
    caffe.set_mode_gpu()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_recorded_layers(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    check_layer(case, "cudnn", monkeypatch)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_which_recorded_layers_run_on_it(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.folder)
    net = caffe.Net(case.prototxt.name, getattr(caffe, case.meta["phase"]))
    kind, name = case.path.parent.name, case.path.stem
    [engine] = {s.kernel.engine for s in net._steps if s.layer.type == kind}
    own = "engine: CAFFE" in case.prototxt.read_text() or f"{kind}/{name}" in OTHERWISE
    if kind == "Pooling":
        own = own or not name.startswith("ave") or name in OVERHANGING
    assert (engine != "cudnn") == own, engine


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
    assert engines == {"x": "reference", "conv": chosen, "relu": "cudnn"}


def test_the_first_deterministic_algorithm_within_the_workspace_is_taken() -> None:
    support.emulated()
    step = net_of("CUDNN")._steps[1]
    assert step.kernel._forward == step.kernel._backward_data == (1, 128)


def test_threads_take_turns_with_the_handle() -> None:
    support.emulated()
    nets = [net_of("CUDNN") for _ in range(2)]
    for net in nets:
        net.blobs["x"].reshape(8, 2, 40, 40)

    def passes(net: caffe.Net) -> None:
        for _ in range(20):
            net.forward()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(passes, nets)) == [None, None]


@pytest.mark.parametrize("most", [65535, 65536])
@pytest.mark.parametrize(
    "layer", ['"Softmax"', '"LRN"', '"Pooling" pooling_param { pool: AVE kernel_size: 1 }']
)
def test_more_images_than_a_grid_has_run_on_our_kernels(layer: str, most: int) -> None:
    shape = f"shape {{ dim: [{most}, 1, 1, 1] }}"
    text = f"""layer {{ name: "x" type: "Input" top: "x" input_param {{ {shape} }} }}
               layer {{ name: "y" type: {layer} bottom: "x" top: "y" }}"""
    net = caffe.Net(text_format.Parse(text, caffe.proto.caffe_pb2.NetParameter()), caffe.TEST)
    assert support.engines_of(net)["y"] == ("cudnn" if most == 65535 else "cuda")


def forward_and_back(text: str, phase: int, x: np.ndarray, dy: np.ndarray) -> list[Any]:
    """The engine of layer "it", the top and the gradient of a net x -> it -> y."""
    dims = " ".join(f"dim: {d}" for d in x.shape)
    text = (
        f'force_backward: true layer {{ name: "x" type: "Input" top: "x" '
        f"input_param {{ shape {{ {dims} }} }} }} {text}"
    )
    net = caffe.Net(text_format.Parse(text, caffe.proto.caffe_pb2.NetParameter()), phase)
    net.blobs["x"].data[...] = x
    net.forward()
    net.blobs["y"].diff[...] = dy
    net.backward()
    return [support.engines_of(net)["it"], net.blobs["y"].data.copy(), net.blobs["x"].diff.copy()]


def beside_the_reference(
    text: str, phase: int, shape: tuple[int, ...], places: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuDNN runs layer "it" of the net, with the reference's numbers."""
    rng = np.random.default_rng(3)
    x, dy = rng.normal(size=shape), rng.normal(size=places)
    engine, *here = forward_and_back(text, phase, x, dy)
    assert engine == "cudnn"
    monkeypatch.setenv("CAFFE_ENGINE", "reference")
    _, *wanted = forward_and_back(text, phase, x, dy)
    for a, b in zip(here, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


# The last one works in place on the top: the gradient is from the values that Caffe's definition names.
IN_PLACE = (
    """layer { name: "after" type: "Power" bottom: "y" top: "y" power_param { scale: -2 shift: 0.5 } }"""
)


@pytest.mark.parametrize("kind", ["LRN", "ReLU", "Sigmoid", "TanH", "Softmax"])
def test_a_layer_in_place_on_the_top_does_not_spoil_the_gradient(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f'layer {{ name: "it" type: "{kind}" bottom: "x" top: "y" }} {IN_PLACE}'
    beside_the_reference(text, caffe.TRAIN, (2, 6, 3, 2), (2, 6, 3, 2), monkeypatch)


MAX = """
layer { name: "it" type: "Pooling" bottom: "x" top: "y" pooling_param { kernel_size: 3 stride: 2 pad: 1 } }
"""


@pytest.mark.parametrize("after", ["", IN_PLACE])
@pytest.mark.parametrize("spatial", [(5,), (5, 7), (3, 5, 7)])
def test_maxima_of_a_test_net(spatial: tuple[int, ...], after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    places = tuple((n + 1) // 2 for n in spatial)
    beside_the_reference(MAX + after, caffe.TEST, (2, 3, *spatial), (2, 3, *places), monkeypatch)


@pytest.mark.parametrize("spatial", [(5,), (3, 5, 7)])
def test_means_over_one_axis_and_three(spatial: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    text = MAX.replace("{ kernel_size", "{ pool: AVE kernel_size")
    places = tuple((n + 1) // 2 for n in spatial)
    beside_the_reference(text, caffe.TRAIN, (2, 3, *spatial), (2, 3, *places), monkeypatch)


@pytest.mark.parametrize(
    "fields",
    ["local_size: 17", "k: 0.000001 alpha: 2", "beta: 0.005", "norm_region: WITHIN_CHANNEL local_size: 3"],
)
def test_an_lrn_that_cudnn_refuses_runs_on_our_kernels(fields: str) -> None:
    text = f'layer {{ name: "it" type: "LRN" bottom: "x" top: "y" lrn_param {{ engine: CUDNN {fields} }} }}'
    x = np.ones((1, 4, 3, 3))
    assert forward_and_back(text, caffe.TRAIN, x, x)[0] == "cuda"


def test_blobs_without_elements() -> None:
    text = 'layer { name: "it" type: "ReLU" bottom: "x" top: "y" }'
    x = np.ones((0, 3))
    assert forward_and_back(text, caffe.TRAIN, x, x)[0] == "cuda"


def test_a_workspace_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAFFE_CUDNN_WORKSPACE_MB", "much")
    with pytest.raises(caffe.CaffeError, match="CAFFE_CUDNN_WORKSPACE_MB=much: it must be a whole number"):
        net_of("CUDNN")


def test_a_call_that_fails_says_what_to_do() -> None:
    from caffe.engines.cuda import cudnn

    support.emulated()
    with pytest.raises(caffe.CaffeError, match="LRNDescriptor failed: .* engine: CAFFE does without"):
        cudnn.cudnn().call("cudnnSetLRNDescriptor", cudnn.Descriptor("LRN").handle, 0)


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
