"""Each way in which there is no GPU is told apart; contexts end with their threads and their process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda_emulation import build
from engines.cuda import support

READY = """
import caffe, caffe.engines
from caffe import kernels
print(kernels.engine_ready("cuda"), kernels.engine_reason("cuda"))
"""

NET = """
import sys, threading, os
import numpy as np
import caffe, caffe.engines
from google.protobuf import text_format
caffe.set_mode_gpu()
text = '''layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 } } }
          layer { name: "y" type: "AbsVal" bottom: "x" top: "y" }'''
param = text_format.Parse(text, caffe.proto.caffe_pb2.NetParameter())
def forward():
    net = caffe.Net(param, caffe.TEST)
    net.blobs["x"].data[...] = [-1, 2, -3, 4]
    net.forward()
    return net.blobs["y"].data.tolist()
"""


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"EMULATED_CUDA_DEVICES": "0"}, "there is no CUDA device here"),
        ({"EMULATED_CUDA_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES is ''; unset it"),
        ({"EMULATED_CUDA_INIT": "803"}, "NVIDIA's driver is installed but cannot be used"),
        ({"LD_LIBRARY_PATH": ""}, "PyCUDA is installed, but NVIDIA's driver is not"),
        ({"PYTHONPATH": ""}, "pip install 'pycaffe[cuda]'"),
    ],
)
def test_reason_and_cure(environment: dict[str, str], said: str) -> None:
    done = support.run_python(READY, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False") and said in done.stdout


def test_libraries_that_pip_has_brought_are_found(tmp_path: Path) -> None:
    """Where their folder is not among those that the system looks into."""
    if not build.built():
        pytest.skip("the emulated GPU is not built: python tests/cuda_emulation/build.py")
    system, packages = tmp_path / "system", tmp_path / "packages"
    for library in (build.cache() / "lib").iterdir():
        stem = library.name.removeprefix("lib").split(".")[0]
        folder = system if stem == "cuda" else packages / "nvidia" / stem / "lib"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / library.name).symlink_to(library)
    code = f"import sys; sys.path.append({str(packages)!r})" + NET
    code += "print(forward(), caffe.kernels.engine_ready('cudnn'), caffe.has_nccl())"
    done = support.run_python(code, LD_LIBRARY_PATH=str(system))
    assert done.stdout == "[1.0, 2.0, 3.0, 4.0] True True\n", done.stderr


def test_what_cudnn_opens_by_name_is_open_before_it() -> None:
    """pip brings each into a folder of its own, where no other looks."""
    code = (
        NET
        + """
from caffe.engines.cuda import cublas, cudnn
opened = []
CDLL = cublas.ctypes.CDLL
class Noting(CDLL):
    def __init__(self, name):
        opened.append(name)
        super().__init__(name)
cublas.ctypes.CDLL = Noting
cudnn.cudnn()
print([name.split("/")[-1].split(".")[0] for name in opened])
"""
    )
    done = support.run_python(code)
    assert done.stdout.startswith("['libcublas', 'libnvrtc'") and "'libcudnn'" in done.stdout, done.stderr


def test_import_caffe_loads_no_pycuda() -> None:
    code = "import sys, caffe, caffe.engines; print([m for m in sys.modules if 'cuda' in m])"
    done = support.run_python(code)
    assert done.stdout.strip() == "['caffe.engines.cuda']"


def test_a_device_that_is_not_there() -> None:
    done = support.run_python(NET + "caffe.set_device(3); forward()")
    assert "there is no GPU 3: this machine has 1" in done.stderr


def test_another_device_later_is_refused() -> None:
    done = support.run_python(NET + "forward(); caffe.set_device(1); forward()", EMULATED_CUDA_DEVICES="2")
    assert "this process uses GPU 0 already, so set_device(1) comes too late" in done.stderr


def test_an_uncaught_exception_ends_the_process_as_usual() -> None:
    done = support.run_python(NET + "forward(); raise ValueError('mine')")
    assert done.returncode == 1
    assert "ValueError: mine" in done.stderr and "PyCUDA" not in done.stderr


def test_a_kernel_that_fails_is_told_and_the_process_ends_as_usual() -> None:
    """Everything after it fails, too: what is freed on the way out, and what the process does next."""
    code = """
forward()
net = caffe.Net(param, caffe.TEST)
net.blobs["x"].data[...] = 1
net.forward()
from caffe.engines.cuda import base, compiler, place
address = place.write(caffe.synced_mem.SyncedMem(100))
ahead, dropped = (place.Upload([np.ones(4, np.float32)]) for _ in range(2))
try:
    base.arithmetic().fill.elements(1 << 20, address, 1.0)
except caffe.CaffeError as error:
    print(error)
for again in (
    lambda: place.copy(address, address + 4, 1), lambda: place.clear(address, 1), forward, net.forward,
    lambda: base.upload(np.ones(3, np.float32)), lambda: place.Buffer(1 << 20),
    lambda: place.Upload([np.ones(4, np.float32)]), lambda: ahead.give([caffe.synced_mem.SyncedMem(4)])
):
    try:
        again()
        print("went on")
    except caffe.CaffeError as error:
        print("EngineError", error)
forward()
"""
    done = support.run_python(NET + code, EMULATED_CUDA_STICKY="1")
    said = done.stdout.splitlines()
    assert said[0].startswith("GPU: kernel math.fill failed: ") and "compute-sanitizer" in said[0]
    assert [line.split()[0] for line in said[1:]] == ["EngineError"] * 8, done.stdout
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("EngineError: GPU: ") == 1 and "PyCUDA ERROR" not in done.stderr, done.stderr
    assert "ignored" not in done.stderr


def test_a_net_that_does_not_fit_is_told_and_the_next_one_runs() -> None:
    code = """
big = caffe.proto.caffe_pb2.NetParameter()
big.CopyFrom(param)
big.layer[0].input_param.shape[0].dim[0] = 1 << 20
net = caffe.Net(big, caffe.TEST)
net.blobs["x"].data[...] = 1
for _ in range(2):
    try:
        net.forward()
    except caffe.CaffeError as error:
        print(error)
del net
print(forward())
"""
    done = support.run_python(NET + code, EMULATED_CUDA_MEMORY=str(6 << 20))
    assert done.returncode == 0, done.stderr
    *said, last = done.stdout.splitlines()
    assert len(said) == 2 and last == "[1.0, 2.0, 3.0, 4.0]"
    for line in said:
        assert line.startswith(
            "out of memory on GPU 0 (emulated on the CPU): 4 MiB more were needed, 2 MiB of 6 MiB"
        )
        assert "Use a smaller batch_size with a larger iter_size" in line


def test_nets_alive_at_the_end_disturb_nobody() -> None:
    code = """
net = caffe.Net(param, caffe.TEST)
net.blobs["x"].data[...] = 1
net.forward()
solver_like = [net, net.blobs["y"].data]
print("done")
"""
    done = support.run_python(NET + code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_threads_of_their_own() -> None:
    code = """
results = []
threads = [threading.Thread(target=lambda: results.append(forward())) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(results, forward())
"""
    done = support.run_python(NET + code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[1.0, 2.0, 3.0, 4.0]") == 4


@pytest.mark.parametrize("first", ["", "forward()"])
def test_a_thread_that_lives_at_the_end_disturbs_nobody(first: str) -> None:
    code = f"""
{first}
done = threading.Event()
def work():
    forward()
    done.set()
    threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
done.wait()
"""
    done = support.run_python(NET + code)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_is_told_what_to_do() -> None:
    code = """
forward()
child = os.fork()
if child == 0:
    try:
        forward()
    except caffe.CaffeError as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(forward())
"""
    done = support.run_python(NET + code)
    assert "ForkError this process was forked after the GPU was used" in done.stdout
    assert "[1.0, 2.0, 3.0, 4.0]" in done.stdout


def test_a_forked_child_forgets_what_its_parent_has_pinned_and_sent() -> None:
    code = """
forward()
from caffe.engines.cuda import place
array = np.zeros(place.PINNED, np.float32)
for _ in range(2):
    place.PLACE.sent(array)
assert place.PLACE._pins[id(array)].registered
upload = place.Upload([np.ones(4, np.float32)])
child = os.fork()
del array, upload
if child == 0:
    os._exit(0)
print(os.waitpid(child, 0)[1], forward())
"""
    done = support.run_python(NET + code)
    assert (done.stdout, done.stderr) == ("0 [1.0, 2.0, 3.0, 4.0]\n", "")


def test_device_query_shows_the_device() -> None:
    code = "import caffe.engines; from caffe_tools.device_query import report; print(report())"
    done = support.run_python(code)
    assert "emulated on the CPU, compute capability 9.0, 2 multiprocessors, 8 GiB" in done.stdout


def test_an_engine_that_was_asked_for_and_is_not_there_is_warned_of() -> None:
    code = (
        "import logging; logging.basicConfig()" + NET.replace("caffe.set_mode_gpu()", "") + "print(forward())"
    )
    done = support.run_python(code, EMULATED_CUDA_DEVICES="0", CAFFE_ENGINE="cuda")
    assert done.stdout == "[1.0, 2.0, 3.0, 4.0]\n"
    assert "WARNING:caffe.net:engine cuda is not used: there is no CUDA device here" in done.stderr
