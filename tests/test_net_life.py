"""Nets in threads, over fork, and by the thousand."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe import kernels
from caffe.resources import data_path

DIGITS = data_path("models", "digits")
DEPLOY = str(DIGITS / "deploy.prototxt")
REAL_ENGINES = [kernels.REFERENCE, "onednn"]


@pytest.fixture(params=REAL_ENGINES)
def real_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Engines with threads of their own, too; not the one that only tests have."""
    name: str = request.param
    if not kernels.engine_ready(name):
        pytest.skip(kernels.engine_reason(name))
    monkeypatch.setenv("CAFFE_ENGINE", name)
    return name


def filled_net(path: str = DEPLOY) -> caffe.Net:
    net = caffe.Net(path, caffe.TEST)
    draw = np.random.default_rng(5)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = draw.standard_normal(blob.shape) * 0.1
    return net


# -- threads ----------------------------------------------------------------------------------------------

TRAINED = """
force_backward: true
layer { name: "in" type: "Input" top: "x" top: "t"
        input_param { shape { dim: 8 dim: 3 dim: 9 dim: 9 } shape { dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
        convolution_param { num_output: 6 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "lrn" type: "LRN" bottom: "conv" top: "lrn" }
layer { name: "pool" type: "Pooling" bottom: "lrn" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "t" top: "loss" }
"""


def passes(seed: int) -> list[np.ndarray]:
    """What several passes of a net of one's own give."""
    net, draw = filled_net("net.prototxt"), np.random.default_rng(seed)
    results = []
    for _ in range(20):
        net.clear_param_diffs()
        loss = net.forward(x=draw.standard_normal((8, 3, 9, 9)), t=draw.integers(0, 4, 8))["loss"]
        results += [loss.copy(), net.backward()["x"].copy(), net.params["conv"][0].diff.copy()]
    return results


def test_threads_do_not_disturb_each_other(real_engine: str) -> None:
    Path("net.prototxt").write_text(TRAINED)
    alone = [passes(seed) for seed in range(4)]
    together: dict[int, list[np.ndarray]] = {}

    def work(seed: int) -> None:
        together[seed] = passes(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, wanted in enumerate(alone):
        for ours, theirs in zip(together[seed], wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_thread_starts_with_the_processs_mode_and_keeps_its_own() -> None:
    modes: list[str] = []

    def work() -> None:
        modes.append(caffe.context.mode())
        caffe.set_mode_cpu()
        modes.append(caffe.context.mode())

    caffe.set_mode_gpu()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [*modes, caffe.context.mode()] == ["GPU", "CPU", "GPU"]


# -- fork -------------------------------------------------------------------------------------------------

FORK = """
import os, sys
import numpy as np
import caffe
from caffe.errors import ForkError

path, has_run = sys.argv[1], sys.argv[2] == "run"
net = caffe.Net(path, caffe.TEST)
def total():
    return repr(float(sum(np.abs(value).sum() for value in net.forward().values())))
if has_run:
    total()
read, write = os.pipe()
child = os.fork()
if not child:
    try:
        text = total()
    except ForkError as error:
        text = f"ForkError: {error}"
    os.write(write, text.encode())
    os._exit(0)
os.close(write)
print(os.fdopen(read).read())
print(total())
os.waitpid(child, 0)
"""


def over_fork(path: str, has_run: bool) -> tuple[str, str]:
    """What a net that the parent made gives in the child, and then in the parent."""
    arguments = [sys.executable, "-c", FORK, path, "run" if has_run else "new"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=True)
    child, parent = done.stdout.splitlines()
    return child, parent


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("has_run", [False, True])
def test_a_forked_child_goes_on_or_says_why_not(real_engine: str, has_run: bool) -> None:
    child, parent = over_fork(DEPLOY, has_run)
    assert child == parent or child.startswith("ForkError: ")
    if real_engine == kernels.REFERENCE or not has_run:
        assert child == parent


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("has_run", [False, True])
def test_a_reader_of_data_does_not_hang_in_a_child(has_run: bool) -> None:
    child, _ = over_fork(str(DIGITS / "train_test.prototxt"), has_run)
    assert child.startswith("ForkError: ") and "make the net in the child" in child


# -- thousands --------------------------------------------------------------------------------------------

MANY = """
import resource, sys
import numpy as np
import caffe

def build():
    net = caffe.Net(sys.argv[1], caffe.TEST)
    net.forward()
    net.blobs["data"].data[...] = 1
    return net

def kilobytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024

for _ in range(100):
    build()
before = kilobytes()
for _ in range(int(sys.argv[2])):
    build()
print(kilobytes() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.full)])
def test_dropped_nets_leave_memory_flat(real_engine: str, count: int) -> None:
    """Each net takes about 400 kB; what stays may be a little more than nothing, whatever their number."""
    arguments = [sys.executable, "-c", MANY, DEPLOY, str(count)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=900, check=True)
    assert int(done.stdout) < 4096


def test_dropped_nets_end_their_readers() -> None:
    gc.collect()
    before = threading.active_count()
    for _ in range(5):
        caffe.Net(str(DIGITS / "train_test.prototxt"), caffe.TEST).forward()
    gc.collect()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and "caffe" in thread.name:
            thread.join(timeout=10)
    assert threading.active_count() <= before
