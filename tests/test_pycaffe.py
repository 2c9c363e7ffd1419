"""The names that scripts rely on, where they find them, and what importing them costs."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe.errors import NetError

TINY = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 } } }'

# Of the original's package; what came to it stands below.
ORIGINAL = """
    AdaDeltaSolver AdaGradSolver AdamSolver Classifier Detector Layer NCCL Net NesterovSolver NetSpec
    RMSPropSolver SGDSolver TEST TRAIN Timer __version__ get_solver has_nccl init_log io layer_type_list
    layers log params set_device set_logging_disabled set_mode_cpu set_mode_gpu set_multiprocess
    set_random_seed set_solver_count set_solver_rank solver_count solver_rank to_proto
""".split()
OURS = """
    Blob CaffeError Sequential Solver SolverAction SolverCallback layer_types register_layer
    register_solver root_solver
""".split()


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


# -- the surface ------------------------------------------------------------------------------------------


def test_the_public_names() -> None:
    assert sorted(caffe.__all__) == sorted(ORIGINAL + OURS)
    for name in caffe.__all__:
        assert getattr(caffe, name) is not None


def test_star_import_gives_them() -> None:
    names: dict[str, object] = {}
    exec("from caffe import *", names)
    assert set(caffe.__all__) <= set(names)


def test_modules_of_the_original() -> None:
    """What scripts import by its full name, beside what `import caffe` brings."""
    code = """
import caffe
from caffe.errors import NetError
import caffe.classifier, caffe.coord_map, caffe.detector, caffe.draw, caffe.io, caffe.net_spec, caffe.pycaffe
import caffe.proto.caffe_pb2
from caffe import layers as L, params as P
from caffe.proto import caffe_pb2
from caffe._caffe import BlobVec, Layer, LayerParameter, Net, NCCL, SolverParameter, has_nccl, layer_type_list
from caffe.pycaffe import Net, SGDSolver, Timer
assert caffe._caffe.Net is caffe.pycaffe.Net is caffe.Net
assert caffe.io.caffe_pb2 is caffe.proto.caffe_pb2
"""
    run(code)
    # What `import caffe` alone brought there, since its parts imported each other.
    for module in ("caffe.pycaffe.Net", "caffe._caffe.Net", "caffe.classifier.Net", "caffe.detector.Net"):
        run(f"import caffe\nassert {module} is caffe.Net")


def test_import_brings_no_more_than_it_needs() -> None:
    code = """
import sys
import numpy, google.protobuf.text_format, h5py
before = {name.partition(".")[0] for name in sys.modules}
import caffe
from caffe.errors import NetError
print(*sorted({name.partition(".")[0] for name in sys.modules} - before))
"""
    heavy = {
        "cv2",
        "matplotlib",
        "lmdb",
        "click",
        "rich",
        "PIL",
        "scipy",
        "skimage",
        "pandas",
        "IPython",
        "torch",
    }
    brought = set(run(code).split())
    assert not brought & heavy
    assert {name for name in brought if name not in sys.stdlib_module_names} == {"caffe"}


def test_layers_and_engines_wait_for_a_net() -> None:
    code = "import sys, caffe; print(*(n for n in sys.modules if n.startswith('caffe.')))"
    modules = run(code).split()
    assert "caffe.net" in modules
    assert not [n for n in modules if n.startswith(("caffe.model.", "caffe.sequential", "caffe.estimator"))]
    assert not [n for n in modules if n.startswith(("caffe.layer_types.", "caffe.engines.onednn."))]


# -- settings ---------------------------------------------------------------------------------------------


# In a process of its own: here, tests of the GPU engine may have put something in the place of a GPU.
WITHOUT_GPU = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.pop("CAFFE_ENGINE", None)
import caffe
from caffe.errors import NetError
"""


def test_gpu_mode_without_a_gpu_says_how_to_go_on() -> None:
    Path("net.prototxt").write_text(TINY)
    code = """
caffe.set_mode_gpu()
caffe.set_device(0)
try:
    caffe.Net("net.prototxt", caffe.TEST)
except caffe.CaffeError as error:
    print(type(error).__name__, error)
caffe.set_mode_cpu()
print(caffe.Net("net.prototxt", caffe.TEST))
"""
    *said, net = run(WITHOUT_GPU + code).splitlines()
    assert re.match(
        r"EngineError Cannot use GPU in CPU-only Caffe: check mode\..*set_mode_cpu\(\)", " ".join(said)
    )
    assert net.startswith("<caffe.Net")


def test_solvers_of_several_processes() -> None:
    caffe.set_multiprocess(True)
    caffe.set_solver_count(4)
    caffe.set_solver_rank(3)
    assert (caffe.solver_count(), caffe.solver_rank(), caffe.root_solver()) == (4, 3, False)


def test_nccl_without_a_gpu_says_why() -> None:
    code = """
print(caffe.has_nccl())
for call in (caffe.NCCL.new_uid, lambda: caffe.NCCL(None, "uid")):
    try:
        call()
    except caffe.CaffeError as error:
        print(type(error).__name__, " ".join(str(error).split()))
"""
    has, new_uid, nccl = run(WITHOUT_GPU + code).splitlines()
    assert has == "False"
    assert new_uid.startswith("EngineError ") and "iter_size" in new_uid
    assert nccl.startswith("EngineError ") and "has_nccl() is False" in nccl


# -- the log ----------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_log():
    logger = logging.getLogger("caffe")
    handlers, level = logger.handlers[:], logger.level
    yield logger
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_log_lines_and_silence(fresh_log, capfd: pytest.CaptureFixture[str]) -> None:
    Path("net.prototxt").write_text(TINY)
    caffe.init_log()
    caffe.log("hello")
    caffe.set_logging_disabled(True)
    caffe.set_logging_disabled(True)
    caffe.log("unheard")
    caffe.Net("net.prototxt", caffe.TEST)
    caffe.set_logging_disabled(False)
    caffe.set_logging_disabled(False)
    caffe.log("again")
    lines = [line.partition("] ")[2] for line in capfd.readouterr().err.splitlines()]
    assert lines == ["hello", "again"]


def test_log_from_a_severity_on_and_into_files(
    fresh_log, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caffe.init_log(1)
    caffe.log("information")
    logging.getLogger("caffe.net").warning("a warning")
    assert [line[0] for line in capfd.readouterr().err.splitlines()] == ["W"]
    monkeypatch.setenv("GLOG_log_dir", str(tmp_path))
    caffe.init_log(0, False)
    caffe.log("into a file")
    assert capfd.readouterr().err == ""
    assert "into a file" in (tmp_path / "caffe.INFO").read_text()


def test_underscored_names() -> None:
    """Which other people's tools use all the same."""
    Path("net.prototxt").write_text(
        TINY + 'layer { name: "y" type: "Power" bottom: "x" top: "y" power_param { scale: 2 } }'
    )
    net = caffe.Net("net.prototxt", caffe.TEST)
    net.blobs["x"].data[...] = 3
    assert net._forward(0, 1) == 0
    assert net.blobs["y"].data.tolist() == [6, 6]
    net._backward(1, 0)
    assert (net._inputs, net._outputs) == ([0], [1])
    assert net._blobs[1] is net.blobs["y"] and net._blob_names == ["x", "y"]
    assert (net._bottom_ids(1), net._top_ids(1)) == ([0], [1])
    with pytest.raises(NetError, match="first layer is a MemoryDataLayer"):
        net._set_input_arrays(np.zeros((1, 1, 1, 1)), np.zeros(1))


def test_a_net_of_ones_own_with_a_solvers_weights() -> None:
    Path("net.prototxt").write_text(
        TINY.replace("dim: 2", "dim: 2 dim: 1")
        + 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y"'
        + "        inner_product_param { num_output: 1 } }"
    )
    Path("solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 1 lr_policy: "fixed" snapshot_prefix: "s"'
    )
    solver = caffe.get_solver("solver.prototxt")
    net = caffe.Net("net.prototxt", caffe.TEST)
    solver.share_weights(net)
    solver.net.params["ip"][0].data[...] = 4
    net.blobs["x"].data[...] = 1
    assert net.forward()["y"].tolist() == [[4], [4]]


def test_the_documentation_knows_every_name_and_a_test_of_it() -> None:
    root = Path(__file__).parents[1]
    text = (root / "docs" / "pycaffe.md").read_text()
    rows = [row.split("|") for row in text.splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"\w+", row[1])}
    assert not [name for name in ORIGINAL if name not in named]
    new = text.partition("New: ")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", new)) == set(OURS)
    file = ""
    for row in rows:
        names = re.findall(r"`([^`]+)`", row[3])
        assert names, row
        for name in names:
            path, _, function = name.partition("::")
            file = path or file
            assert (root / file).exists(), name
            assert not function or f"def {function}(" in (root / file).read_text(), name


# -- modules that are not worth a file of their own -------------------------------------------------------


def test_weights_in_and_out_by_the_names_of_the_compiled_module() -> None:
    from caffe._caffe import BlobVec

    blobs = BlobVec()
    blob = blobs.add_blob(2, 3)
    blob.data[...] = 1
    assert len(blobs) == 1 and blobs[0].data.sum() == 6 and isinstance(blob, caffe.Blob)
    assert np.asarray(blobs[0].diff).shape == (2, 3)
