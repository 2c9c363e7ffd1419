"""caffe, its help, its names old and new, and its exit status."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import caffe
from caffe_tools import commands


def test_version_is_the_originals(cli, golden):
    done = cli("--version")
    assert (done.status, done.out) == (0, (golden / "solvers/logs/version.stdout").read_text())
    assert cli("-version").out == done.out


def test_no_arguments_give_the_help_in_the_originals_layout(cli, golden):
    done = cli()
    assert done.status == 0
    theirs = (golden / "solvers/logs/err_no_command.stdout").read_text().splitlines()
    ours = done.out.splitlines()
    assert ours[:4] == theirs[:4]
    flags = [re.match(r" {4}-\w+ \(", line) for line in theirs]
    for flag in filter(None, flags):
        assert any(line.startswith(flag.group()) for line in ours), flag.group()
    assert cli("--help").out == done.out == cli("help").out


@pytest.mark.parametrize("command", ["train", "test", "time", "device_query", "shim"])
def test_help_of_a_command(cli, command):
    done = cli(command, "-help")
    assert done.status == 0
    assert done.out.startswith(f"Usage: caffe {command}")
    assert cli("help", command).out == done.out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["fly"], "Unknown action: fly"),
        (["trian", "-solver", "x"], "did you mean 'train'?"),
        (["-solver", "x", "tset"], "did you mean 'test'?"),
        (["train", "-sover", "x"], "unknown command line flag 'sover'; did you mean 'solver'?"),
        (["train", "--sover=x"], "unknown command line flag 'sover'; did you mean 'solver'?"),
        (["-sover=x"], "unknown command line flag 'sover'"),
        (["--train", "-solver", "x"], "the command is a word without a dash; did you mean 'train'?"),
        (["-trian"], "unknown command line flag 'trian' (the command is a word without a dash; did you mean"),
        (["train"], "Need a solver definition to train."),
        (["test"], "Need a model definition to score."),
        (["test", "-model", "x"], "Need model weights to score."),
        (["time"], "Need a model definition to time."),
        (["time", "-model", "x", "-phase", "BOTH"], '-phase must be "TRAIN" or "TEST", not "BOTH"'),
        (["time", "-model", "x", "-iterations", "0"], "-iterations must be at least 1, not 0"),
        (["time", "-model", "x", "-iterations", "many"], "'many' is not a valid integer"),
        (["train", "-level", "2147483648"], "'2147483648' does not lie between -2147483648 and 2147483647"),
        (["convert_imageset", "-resize_width=99999999999", "a", "b", "c"], "'99999999999' does not lie"),
        (["convert_imageset", "-shuffle", "-seed=-1", "a", "b", "c"], "-1 is not in the range x>=0"),
        (["convert_mnist_siamese_data", "-seed", "-1", "a", "b", "c"], "-1 is not in the range x>=0"),
        (["train", "-solver", "x", "y"], "unexpected extra argument"),
        (["train", "-solver"], "flag '-solver' is missing its argument"),
        (["train", "-solver", "x", "-sigint_effect", "die"], "the signal effect 'die' is unknown"),
        (["train", "-solver", "x", "-snapshot", "s", "-weights", "w"], "but not both"),
    ],
)
def test_a_command_line_that_means_nothing(cli, argv, message):
    done = cli(*argv)
    assert done.status == 2
    assert message in done.error


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("train_net s.prototxt", "caffe train -solver s.prototxt"),
        ("train_net s.prototxt x.solverstate", "caffe train -solver s.prototxt -snapshot x.solverstate"),
        ("finetune_net s.prototxt w", "caffe train -solver s.prototxt -weights w"),
        ("finetune_net", "caffe train -solver SOLVER -weights WEIGHTS"),
        ("test_net n w 10 GPU 1", "caffe test -model n -weights w -iterations 10 -gpu 1"),
        ("net_speed_benchmark n 5 CPU", "caffe time -model n -iterations 5"),
    ],
)
def test_deprecated_names_say_what_to_type(cli, line, advice):
    done = cli(*line.split())
    assert done.status == 2
    assert done.error.rstrip().endswith(f"Use this instead: {advice}")


def test_device_query(cli):
    done = cli("device_query")
    assert done.status == 0
    shown = dict(re.split(r":\s+", line, maxsplit=1) for line in done.out.splitlines())
    assert shown["compatible with Caffe"] == caffe.__version__ == "1.0.0"
    assert shown["engine reference"] == "ready (NumPy)"
    assert "BLAS" in shown["NumPy"]
    assert int(shown["CPU threads"]) > 0


def test_unknown_exceptions_are_one_message_unless_debug(cli, monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(commands, "find", broken)
    done = cli("train")
    assert done.status == 1
    assert re.fullmatch(
        r"ZeroDivisionError: surprise\nat .*test_main\.py:\d+, in broken; --debug shows the way there\n",
        done.error,
    )
    done = cli("train", "--debug")
    assert "Traceback" in done.err and done.status == 1


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError("4.00 GiB for an array"), 1, "out of memory: 4.00 GiB for an array"),
        (MemoryError(), 1, "out of memory: no more can be had"),
        (caffe.CaffeError("two\nlines"), 1, "two\nlines"),
    ],
)
def test_how_errors_end(cli, monkeypatch, raised, status, message):
    def broken(*_: object) -> None:
        raise raised

    monkeypatch.setattr(commands, "find", broken)
    done = cli("train")
    assert done.status == status
    assert done.error.startswith(message)


def test_an_error_in_a_python_layer_tells_where(cli, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "faulty_layer.py").write_text(
        "import caffe\n"
        "class Faulty(caffe.Layer):\n"
        "    def setup(self, bottom, top): pass\n"
        "    def reshape(self, bottom, top): top[0].reshape(1)\n"
        "    def forward(self, bottom, top): {}['missing']\n"
    )
    (tmp_path / "net").write_text(
        'layer { name: "p" type: "Python" top: "p" python_param { module: "faulty_layer" layer: "Faulty" } }'
    )
    done = cli("time", "-model", "net")
    assert done.status == 1
    for words in ("KeyError: 'missing'", "layer 'p'", "faulty_layer.py:5, in forward"):
        assert words in done.error


def test_an_interrupt_while_it_is_still_being_imported():
    code = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'numpy': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from caffe_tools import entry\n"
        "entry.caffe()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_closed_stdout_is_no_traceback(start):
    read, write = os.pipe()
    os.close(read)
    process = start(stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert err == ""


@pytest.mark.parametrize("closed", ["2>&-", ">&-", ">&- 2>&-"])
def test_closed_streams_stop_nothing(tiny, closed):
    command = f"{sys.executable} -m caffe_tools train -solver solver.prototxt {closed}"
    subprocess.run(command, shell=True, check=True, capture_output=True, timeout=60)
    assert (tiny / "tiny_iter_10.solverstate").is_file()


def test_shim_makes_the_tree_that_scripts_expect(cli, tmp_path):
    for _ in range(2):  # again over its own
        assert cli("shim", "root").status == 0
    root = tmp_path / "root"
    for tools in ("build/tools", ".build_release/tools"):
        version = subprocess.run(
            [root / tools / "caffe", "--version"], capture_output=True, text=True, timeout=60
        )
        assert version.stdout == "caffe version 1.0.0\n", version.stderr
        assert os.access(root / tools / "convert_imageset", os.X_OK)
        assert os.access(root / tools / "caffe.bin", os.X_OK)
    for example in (
        "mnist/convert_mnist_data",
        "siamese/convert_mnist_siamese_data",
        "cifar10/convert_cifar_data",
    ):
        done = subprocess.run(
            [root / "build/examples" / f"{example}.bin", "--help"], capture_output=True, text=True, timeout=60
        )
        assert example.partition("/")[2] in done.stdout
    (tmp_path / "net.prototxt").write_text('name: "n" input: "x" input_shape { dim: 1 }')
    for script, words in (
        ("python/draw_net.py", ["net.prototxt", "net.dot"]),
        ("python/classify.py", ["--help"]),
        ("python/detect.py", ["--help"]),
        ("python/train.py", ["--help"]),
        ("tools/extra/parse_log.py", ["--help"]),
        ("tools/extra/summarize.py", ["--help"]),
    ):
        argv = [sys.executable, root / script, *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "net.dot").is_file()
    code = f"import sys; sys.path.insert(0, {str(root / 'python')!r}); import caffe; print(caffe.__file__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == str(root / "python/caffe/__init__.py"), found.stderr


def test_shim_overwrites_nobody(cli, tmp_path):
    (tmp_path / "real/build/tools").mkdir(parents=True)
    (tmp_path / "real/build/tools/caffe").write_text("\x7fELF")
    assert "not of this command's making" in cli("shim", "real").error
    assert (tmp_path / "real/build/tools/caffe").read_text() == "\x7fELF"
    (tmp_path / "other/python/caffe").mkdir(parents=True)
    assert "not of this command's making" in cli("shim", "other").error


def test_log_flags_reach_the_log(cli, tiny):
    done = cli("-minloglevel=1", "time", "-model", "net.prototxt", "-iterations", "1", "-log_dir", ".")
    assert (done.status, done.err) == (0, "")
    done = cli("time", "-model", "net.prototxt", "-iterations=1", "-logtostderr=0", "--log_dir=.")
    assert "*** Benchmark ends ***" in done.err
    assert "*** Benchmark ends ***" in (tiny / "caffe.INFO").read_text()


def test_a_flag_without_effect_is_warned_of(cli, tiny):
    done = cli("train", "-solver", "solver.prototxt", "-iterations", "3", "-minloglevel", "1")
    assert done.status == 0
    assert done.err.count("\n") == 1
    assert "the flag -iterations has no effect in caffe train" in done.err


@pytest.mark.parametrize("command", ["train", "test", "time", "device_query"])
def test_gpu_as_an_order_without_a_gpu_is_an_error(cli, tiny, command):
    if "cuda" in caffe.kernels.engine_names() and caffe.kernels.engine_ready("cuda"):
        pytest.skip("there is a GPU")
    argv = {
        "train": ["-solver", "solver.prototxt"],
        "test": ["-model", "net.prototxt", "-weights", "x"],
        "time": ["-model", "net.prototxt"],
        "device_query": [],
    }[command]
    done = cli(command, "-gpu", "0", *argv)
    assert done.status == 1
    assert "-gpu 0: " in done.error and "Leave -gpu out to run on the CPU" in done.error


@pytest.mark.parametrize(("gpu", "status"), [("all", 1), ("0,1", 1), ("first", 2)])
def test_gpu_names_one_device(cli, tiny, gpu, status):
    if gpu == "all" and caffe.kernels.engine_ready("cuda"):
        pytest.skip("there is one GPU, so that all are one")
    assert cli("time", "-model", "net.prototxt", "-gpu", gpu).status == status


def test_solver_mode_gpu_is_a_wish(cli, tiny):
    if "cuda" in caffe.kernels.engine_names() and caffe.kernels.engine_ready("cuda"):
        pytest.skip("there is a GPU")
    with open(tiny / "solver.prototxt", "a") as file:
        file.write("solver_mode: GPU")
    done = cli("train", "-solver", "solver.prototxt")
    assert done.status == 0
    assert len(re.findall(r"^W.*solver_mode: GPU, but .*Running on the CPU$", done.err, re.M)) == 1
    assert "Use CPU." in done.err
