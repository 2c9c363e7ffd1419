"""Whatever is given to the command line: one message that says what is wrong, no traceback, no crash."""

from __future__ import annotations

import os
from pathlib import Path

import lmdb
import pytest

import caffe
from caffe.execution import memory_limit
from caffe.proto import caffe_pb2

INPUT = (
    'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }\n'
)
DATA = (
    'layer { name: "data" type: "Data" top: "data" top: "label" '
    'data_param { source: "db" backend: LMDB batch_size: 2 } }\n'
)


def ip(num_output: int = 2, name: str = "ip", bottom: str = "data") -> str:
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" '
        f"inner_product_param {{ num_output: {num_output} }} }}\n"
    )


def loss(bottom: str = "ip") -> str:
    return (
        f'layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "{bottom}" bottom: "label" top: "loss" }}\n'
    )


def dims_of(shape: str) -> str:
    return " ".join(f"dim: {d}" for d in shape.split())


def dummy(shape: str) -> str:
    param = f"dummy_data_param {{ shape {{ {dims_of(shape)} }} }}"
    return f'layer {{ name: "d" type: "DummyData" top: "data" {param} }}\n'


def database(labels: list[int], size: int = 6, corrupt: int | None = None) -> None:
    with lmdb.open("db", map_size=2**20) as env, env.begin(write=True) as transaction:
        for i, label in enumerate(labels):
            datum = caffe_pb2.Datum(channels=1, height=2, width=3, data=bytes(size), label=label)
            value = b"\xff\xff\xff" if i == corrupt else datum.SerializeToString()
            transaction.put(f"{i:08d}".encode(), value)


# -- files that are not what they should be ----------------------------------------------------------------

SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 2 snapshot_prefix: "x"\n'

FILES: list[tuple[str, str, str | bytes | None, str]] = [
    # (what, file, its content or None for a folder, words of the message)
    ("empty", "solver", "", "solver: the file is empty"),
    ("only comments", "solver", "# nothing\n", "solver: the file is empty"),
    ("folder", "solver", None, "is a directory"),
    ("binary", "solver", bytes(range(256)), "binary"),
    ("net as solver", "solver", INPUT + ip(), "solver"),
    ("parse error", "solver", "base_lr: 0.1\nlr_polcy: 'fixed'\n", "solver:2:"),
    ("unknown field", "solver", "lr_polcy: 'fixed'\n", "Did you mean 'lr_policy'"),
    ("type of value", "solver", "max_iter: 'many'\n", "max_iter"),
    (
        "no net",
        "solver",
        "base_lr: 0.1 lr_policy: 'fixed'\n",
        "must specify a train net using one of these fields",
    ),
    ("two nets", "solver", SOLVER + "train_net: 'net.prototxt'\n", "more than one of these fields"),
    ("policy", "solver", SOLVER.replace("fixed", "fixd"), "Unknown learning rate policy: fixd"),
    ("type", "solver", SOLVER + "type: 'Adma'\n", "Unknown solver type: Adma"),
    ("no net file", "solver", SOLVER.replace("net.prototxt", "nothing"), "File not found: nothing"),
    ("test_iter", "solver", SOLVER + "test_net: 'net.prototxt' test_interval: 1\n", "test_iter must be"),
    ("test_interval", "solver", SOLVER + "test_iter: 1\n", "test_interval must be positive"),
    ("test_iter 0", "solver", SOLVER + "test_iter: 0 test_interval: 1\n", "test_iter must be positive"),
    ("iter_size", "solver", SOLVER + "iter_size: 0\n", "iter_size must be at least 1"),
    ("prefix", "solver", SOLVER.replace('"x"', '"no/where/x"'), "there is no directory 'no/where'"),
    ("empty", "net", "", "net: the file is empty"),
    ("folder", "net", None, "is a directory"),
    ("binary", "net", b"\x00\xff\x10", "binary"),
    ("solver as net", "net", SOLVER, "solver"),
    ("both formats", "net", INPUT + "layers { name: 'x' type: RELU }", "both 'layer' and 'layers'"),
    ("empty", "weights", "", "weights"),
    ("folder", "weights", None, "directory"),
    ("text", "weights", INPUT + ip(), "weights"),
    ("garbage", "weights", b"\xff" * 100, "weights"),
    ("empty", "snapshot.solverstate", "", "snapshot.solverstate: the file is empty"),
    ("folder", "snapshot.solverstate", None, "snapshot.solverstate"),
    ("text", "snapshot.solverstate", "iter: 5", "snapshot.solverstate"),
    ("garbage", "snapshot.solverstate.h5", b"\xff" * 100, "solver state"),
]


def argv_for(file: str) -> list[str]:
    if file == "solver":
        return ["train", "-solver", "solver"]
    if file == "net":
        return ["time", "-model", "net", "-iterations", "1"]
    if file == "weights":
        return ["test", "-model", "net.prototxt", "-weights", "weights"]
    return ["train", "-solver", "solver.prototxt", "-snapshot", file]


@pytest.mark.parametrize(("what", "file", "content", "message"), FILES, ids=lambda x: str(x)[:24])
def test_a_file_that_is_not_what_it_should_be(cli, tiny, what, file, content, message):
    if content is None:
        Path(file).mkdir()
    elif isinstance(content, bytes):
        Path(file).write_bytes(content)
    else:
        Path(file).write_text(content)
    done = cli(*argv_for(file))
    assert done.status == 1, done.err
    assert message in done.error


@pytest.mark.parametrize("file", ["solver", "net", "weights", "snapshot.solverstate"])
def test_a_file_that_is_not_there(cli, tiny, file):
    done = cli(*argv_for(file))
    assert done.status == 1
    assert file in done.error


def test_weights_given_as_a_snapshot(cli, tiny):
    caffe.Net("net.prototxt", caffe.TRAIN).save("w.caffemodel")
    done = cli("train", "-solver", "solver.prototxt", "-snapshot", "w.caffemodel")
    assert done.status == 1
    assert "holds weights, not a solver's state: give the .solverstate" in done.error


def test_a_snapshot_of_another_net(cli, tiny):
    assert cli("train", "-solver", "solver.prototxt").status == 0
    Path("net.prototxt").write_text(
        Path("net.prototxt").read_text().replace("num_output: 2", "num_output: 5")
    )
    done = cli("train", "-solver", "solver.prototxt", "-snapshot", "tiny_iter_10.solverstate")
    assert "history blob 0 has shape (2, 3), this solver needs (5, 3)" in done.error


def test_a_snapshot_without_its_weights(cli, tiny):
    assert cli("train", "-solver", "solver.prototxt").status == 0
    Path("tiny_iter_10.caffemodel").unlink()
    done = cli("train", "-solver", "solver.prototxt", "-snapshot", "tiny_iter_10.solverstate")
    assert "continues from tiny_iter_10.caffemodel, which is neither there" in done.error


def test_truncated_weights(cli, tiny):
    caffe.Net("net.prototxt", caffe.TRAIN).save("w.caffemodel")
    whole = Path("w.caffemodel").read_bytes()
    for cut in (1, 10, len(whole) // 2, len(whole) - 1):
        Path("cut.caffemodel").write_bytes(whole[:cut])
        done = cli("test", "-model", "net.prototxt", "-weights", "cut.caffemodel", "-iterations", "1")
        assert done.status == 1
        assert "cut.caffemodel" in done.error


def test_weights_of_other_shapes_in_the_originals_words(cli, tiny):
    caffe.Net("net.prototxt", caffe.TRAIN).save("w.caffemodel")
    Path("net.prototxt").write_text(
        Path("net.prototxt").read_text().replace("num_output: 2", "num_output: 5")
    )
    done = cli("test", "-model", "net.prototxt", "-weights", "w.caffemodel")
    assert (
        "Cannot copy param 0 weights from layer 'ip'; shape mismatch.  Source param shape is 2 3 (6); "
        "target param shape is 5 3 (15)." in done.error
    )


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_a_snapshot_folder_that_cannot_be_written_is_refused_at_the_start(cli, tiny):
    Path("locked").mkdir(mode=0o500)
    Path("solver.prototxt").write_text(SOLVER.replace('"x"', '"locked/x"'))
    done = cli("train", "-solver", "solver.prototxt")
    assert "Cannot write to snapshot prefix 'locked/x'" in done.error
    assert "Iteration" not in done.err


# -- nets that make no sense ---------------------------------------------------------------------------------

NETS: list[tuple[str, str, list[str]]] = [
    ("unknown type", INPUT + 'layer { name: "x" type: "Relu" bottom: "data" top: "x" }', ["Relu", "'ReLU'"]),
    (
        "a fork's type",
        INPUT + 'layer { name: "x" type: "Permute" bottom: "data" top: "x" }',
        ["Unknown layer type: Permute", "SSD fork"],
    ),
    ("no type", INPUT + 'layer { name: "x" bottom: "data" top: "x" }', ["Unknown layer type"]),
    ("unknown bottom", INPUT + ip(bottom="dta"), ["Unknown bottom blob 'dta'", "did you mean 'data'"]),
    ("label in a deploy net", INPUT + ip() + loss(), ["Unknown bottom blob 'label'", "deployed"]),
    ("top twice", INPUT + INPUT, ["Top blob 'data' produced by multiple sources"]),
    ("circle", INPUT + ip(name="a", bottom="b") + ip(name="b", bottom="a"), ["Unknown bottom blob 'b'"]),
    ("num_output 0", INPUT + ip(0), ["'ip'", "num_output"]),
    (
        "kernel 0",
        INPUT + 'layer { name: "c" type: "Convolution" bottom: "data" top: "c" '
        "convolution_param { num_output: 1 kernel_size: 0 } }",
        ["'c'", "Filter dimensions must be nonzero"],
    ),
    (
        "stride 0",
        INPUT + 'layer { name: "c" type: "Convolution" bottom: "data" top: "c" '
        "convolution_param { num_output: 1 kernel_size: 3 stride: 0 } }",
        ["'c'", "Stride dimensions must be nonzero"],
    ),
    (
        "kernel too large",
        INPUT + 'layer { name: "c" type: "Convolution" bottom: "data" top: "c" '
        "convolution_param { num_output: 1 kernel_size: 11 } }",
        ["'c'", "11"],
    ),
    ("negative shape", dummy("2 -3"), ["-3"]),
    ("huge shape", dummy("99999999999999 99999999999"), ["'d'"]),
    ("batch_size 0", DATA.replace("batch_size: 2", "batch_size: 0"), ["'data'", "batch_size"]),
    ("no database", DATA, ["db"]),
    (
        "shapes of an Eltwise",
        INPUT
        + dummy("2 3 8 9").replace('"data"', '"other"')
        + 'layer { name: "sum" type: "Eltwise" bottom: "data" bottom: "other" top: "sum" }',
        ["'sum'", "2 3 8 8", "2 3 8 9"],
    ),
    ("include and exclude", INPUT + ip().replace("inner", "include {} exclude {} inner"), ["not both"]),
    (
        "too many params",
        INPUT + ip().replace("inner", "param {} param {} param {} inner"),
        ["Too many params"],
    ),
]


@pytest.mark.parametrize(("what", "text", "words"), NETS, ids=[n[0] for n in NETS])
def test_a_net_that_makes_no_sense(cli, tmp_path, what, text, words):
    Path("net").write_text(text)
    done = cli("time", "-model", "net", "-iterations", "1")
    assert done.status == 1, done.err
    for word in words:
        assert word in done.error


# -- data --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [-1, 2, 12345])
def test_a_label_out_of_range(cli, tmp_path, label):
    database([0, 1, label, 0])
    Path("net").write_text(DATA + ip(2) + loss())
    done = cli("time", "-model", "net", "-iterations", "3")
    assert done.status == 1
    for word in ("'loss'", f"(={label})", "[0, 2)", "net:3"):
        assert word in done.error


def test_a_corrupt_datum(cli, tmp_path):
    database([0, 1, 0, 1], corrupt=2)
    Path("net").write_text(DATA + ip())
    done = cli("time", "-model", "net", "-iterations", "3")
    assert done.status == 1
    assert "'data'" in done.error and "00000002" in done.error


def test_a_datum_whose_data_is_too_short(cli, tmp_path):
    database([0, 1], size=5)
    Path("net").write_text(DATA + ip())
    done = cli("time", "-model", "net", "-iterations", "3")
    assert done.status == 1
    assert "00000000" in done.error


def test_an_empty_database(cli, tmp_path):
    database([])
    Path("net").write_text(DATA + ip())
    done = cli("time", "-model", "net")
    assert done.status == 1
    assert "db" in done.error and "empty" in done.error


@pytest.mark.parametrize("keep", [0, 100, 4096, 9000])
def test_a_truncated_lmdb(cli, tmp_path, keep):
    database(list(range(2)) * 200)
    with open("db/data.mdb", "r+b") as file:
        file.truncate(keep)
    Path("net").write_text(DATA + ip())
    done = cli("time", "-model", "net", "-iterations", "300")
    assert done.status == 1
    assert "db" in done.error


# -- sizes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", ["2000000 1000000", "100000 100000 100"])
def test_a_batch_larger_than_memory_says_how_much_is_needed(cli, tmp_path, dims):
    Path("net").write_text(INPUT.replace("dim: 2 dim: 3 dim: 8 dim: 8", dims_of(dims)) + ip())
    done = cli("time", "-model", "net", "-iterations", "1")
    assert done.status == 1
    assert "layer 'data' (Input, net:1): up to this layer the net needs" in done.error
    assert "TiB of memory" in done.error and "batch_size" in done.error


def test_many_blobs_larger_than_memory_together(cli, tmp_path):
    third = int(memory_limit() * 0.4 / 4 / 1000)
    param = f"input_param {{ shape {{ dim: 1000 dim: {third} }} }}"
    Path("net").write_text(
        "".join(f'layer {{ name: "{x}" type: "Input" top: "{x}" {param} }}\n' for x in "abc")
    )
    done = cli("time", "-model", "net", "-iterations", "1")
    assert done.status == 1
    assert "layer 'c' (Input, net:3): up to this layer" in done.error


@pytest.mark.parametrize("filler", ["", 'weight_filler { type: "xavier" } '])
def test_a_parameter_larger_than_memory(cli, tmp_path, filler):
    Path("net").write_text(INPUT + ip(2000000000).replace("num_output", f"{filler}num_output"))
    done = cli("time", "-model", "net", "-iterations", "1")
    assert done.status == 1
    assert (
        "layer 'ip' (InnerProduct, net:2): parameter 0: 384000000000 numbers need 1.397 TiB of memory"
        in done.error
    )


def test_deep_nesting_is_refused_not_followed(cli, tmp_path):
    Path("net").write_text("layer { name: 'x' " + "inner_product_param { " * 200000)
    done = cli("time", "-model", "net")
    assert done.status == 1


def test_a_string_of_ten_megabytes(cli, tmp_path):
    Path("net").write_text(f"name: '{'x' * 10_000_000}'\n" + INPUT + ip())
    assert cli("time", "-model", "net", "-iterations", "1", "-minloglevel", "1").status == 0


@pytest.mark.full
def test_a_hundred_thousand_layers(cli, tmp_path):
    relu = 'layer {{ name: "r{0}" type: "ReLU" bottom: "data" top: "data" }}\n'
    Path("net").write_text(dummy("1 2") + "".join(relu.format(i) for i in range(100_000)))
    assert cli("time", "-model", "net", "-iterations", "1", "-minloglevel", "1").status == 0


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ('type: "Deconvolution" convolution_param { num_output: 1 kernel_size: 300000 }', "parameter 0: "),
        ('type: "Deconvolution" convolution_param { num_output: 1 kernel_size: 1 stride: 2147483647 }', ""),
        ('type: "Convolution" convolution_param { num_output: 1 kernel_size: 1 pad: 2147483647 }', ""),
        ('type: "Pooling" pooling_param { kernel_size: 2147483647 pad: 2147483646 }', "the top: "),
        ('type: "Im2col" convolution_param { kernel_size: 1 pad: 2147483647 }', ""),
    ],
)
def test_a_window_larger_than_memory(cli, tmp_path, layer, message):
    Path("net").write_text(INPUT + f'layer {{ name: "w" {layer} bottom: "data" top: "w" }}')
    done = cli("time", "-model", "net", "-iterations", "1")
    assert done.status == 1
    assert f"net:2): {message}" in done.error and "TiB of memory" in done.error


def test_a_window_far_larger_than_its_image_costs_no_more_than_its_top(cli, tmp_path):
    window = 'type: "Pooling" pooling_param { pool: AVE kernel_size: 500 pad: 499 }'
    Path("net").write_text(INPUT + f'layer {{ name: "w" {window} bottom: "data" top: "w" }}')
    assert cli("time", "-model", "net", "-iterations", "1").status == 0
