"""caffe model: lists, copies that train, and weights from a server on this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import caffe
import file_server
from caffe import models
from caffe.download import RemoteFile
from caffe.proto import caffe_pb2
from caffe.upgrade_proto import read_net_upgraded, read_solver_upgraded
from caffe_tools import model
from caffe_tools.public_models import WEIGHTS, PublicWeights
from file_server import FileServer

_LAYER = caffe_pb2.LayerParameter(name="ip", blobs=[caffe_pb2.BlobProto(data=range(20000))])
CONTENT = caffe_pb2.NetParameter(name="weights", layer=[_LAYER]).SerializeToString()
SHA1, SHA256 = hashlib.sha1(CONTENT).hexdigest(), hashlib.sha256(CONTENT).hexdigest()
PAGE = "https://example.org/vgg"


def test_list(cli: Callable) -> None:
    done = cli("model", "list")
    assert done.status == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["model", "parameters", "multiply-adds", "fetch"]
    assert [line[0] for line in lines[1:]] == models.list()
    assert ["vgg16", "138,357,544", "15,470,264,320", "weights"] in lines
    assert "Initializing net" not in done.err


def test_show(cli: Callable) -> None:
    done = cli("model", "show", "lenet")
    rows = [line.split() for line in done.out.splitlines()]
    assert ["conv2", "Convolution", "conv2", "64×50×8×8", "25,050", "102", "M"] in rows
    assert "LeNet: 431,080 parameters, 2,293,000 multiply-adds" in done.out
    assert cli("model", "show", "lenett").error.startswith("no model 'lenett'; did you mean 'lenet'?")


def test_without_a_word_the_words_are_told(cli: Callable) -> None:
    assert cli("model").error == "caffe model: Missing command: list, show, new, fetch\n"
    assert cli("model", "-help").status == 0


# -- new ----------------------------------------------------------------------------------------------------


def test_a_copy_trains_and_is_used_where_it_lies(cli: Callable) -> None:
    assert cli("model", "new", "digits", "my/net").status == 0
    text = Path("my/net/solver.prototxt").read_text()
    assert 'net: "my/net/train_test.prototxt"' in text
    Path("my/net/solver.prototxt").write_text(text.replace("max_iter: 600", "max_iter: 2"))
    assert cli("train", "-solver", "my/net/solver.prototxt").status == 0
    (weights,) = Path("my/net").glob("*_iter_2.caffemodel")
    caffe.Net("my/net/deploy.prototxt", str(weights), caffe.TEST)


def files_of(layer: caffe_pb2.LayerParameter) -> Iterator[tuple[Any, str]]:
    """Messages and fields of a layer that name files."""
    for field, value in layer.ListFields():
        if field.message_type is not None and field.name.endswith("_param"):
            for name in {"source", "mean_file"} & set(field.message_type.fields_by_name):
                if value.HasField(name) and "://" not in getattr(value, name):
                    yield value, name


@pytest.mark.parametrize("name", models.list())
def test_every_copy_says_what_its_model_says(name: str, cli: Callable) -> None:
    assert cli("model", "new", name, "a/b", "--data", "/d").status == 0
    solver = read_solver_upgraded("a/b/solver.prototxt")
    assert Path(solver.net).parent == Path("a/b") == Path(solver.snapshot_prefix).parent
    for file in ("deploy.prototxt", Path(solver.net).name):
        original = read_net_upgraded(models.path(name, file))
        for layer in original.layer:
            for message, field in files_of(layer):
                setattr(message, field, f"/d/{Path(getattr(message, field)).name}")
        assert read_net_upgraded(Path("a/b", file)) == original
    for path in Path("a/b").iterdir():
        assert f"models/{name}" not in path.read_text()


def test_data_of_one_model_do_not_share_names(cli: Callable) -> None:
    """Else a copy would read one file for two."""
    for name in models.list():
        texts = [path.read_text() for path in models.path(name).glob("*.prototxt")]
        sources = {match[2] for text in texts for match in model._SOURCE.finditer(text)}
        assert len({Path(source).name for source in sources}) == len(sources)


def test_the_commands_of_a_copy_are_led_there(cli: Callable) -> None:
    assert cli("model", "new", "char_rnn", "net", "--data", "text").status == 0
    readme = Path("net/readme.md").read_text()
    assert "python net/make_data.py TEXT_FILE" in readme
    assert "caffe train -solver net/solver.prototxt" in readme
    assert 'else "text")' in Path("net/make_data.py").read_text()


def test_folders_with_odd_names(cli: Callable) -> None:
    done = cli("model", "new", "digits", "my net's")
    assert """caffe train -solver 'my net'"'"'s/solver.prototxt'""" in done.err
    assert read_solver_upgraded("my net's/solver.prototxt").net == "my net's/train_test.prototxt"
    assert """caffe train -solver 'my net'"'"'s'/solver.prototxt""" in Path("my net's/readme.md").read_text()
    for name in ('a"b', "a\\b", "a\nb"):
        error = cli("model", "new", "digits", name).error
        assert "a prototxt cannot well name a path with" in error
        assert "a prototxt cannot well name" in cli("model", "new", "digits", "x", "--data", name).error
    assert {path.name for path in Path.cwd().iterdir()} == {"my net's"}


def test_nothing_is_written_over(cli: Callable, tmp_path: Path) -> None:
    Path("full").mkdir()
    Path("full/mine").write_text("mine")
    assert cli("model", "new", "lenet", "full").error.startswith("full is there already and is not an empty")
    assert cli("model", "new", "lenet", "full/mine").status == 1
    assert [path.name for path in Path("full").iterdir()] == ["mine"]
    assert "cannot write" in cli("model", "new", "lenet", "full/mine/deeper").error


# -- fetch --------------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "*")
    with file_server.running() as server:
        server.answers["/w/weights.caffemodel"] = file_server.whole(CONTENT)
        yield server


def publish(monkeypatch: pytest.MonkeyPatch, *mirrors: str, **checksums: str) -> None:
    file = RemoteFile("weights.caffemodel", 0, **checksums)  # type: ignore[arg-type]
    monkeypatch.setitem(WEIGHTS, "vgg16", PublicWeights(file, PAGE, mirrors))


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_weights_with_a_stated_checksum(
    cli: Callable, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, server.url("none/"), server.url("w/"), sha1=SHA1)
    assert cli("model", "fetch", "vgg16").status == 0
    assert Path("models/vgg16/weights.caffemodel").read_bytes() == CONTENT
    assert names("models/vgg16") == ["weights.caffemodel"]
    asked = len(server.requests)
    assert cli("model", "fetch", "vgg16").status == 0
    assert len(server.requests) == asked


def test_the_beginning_of_a_checksum_and_a_query(
    cli: Callable, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["/w/weights.caffemodel?dl=1"] = server.answers.pop("/w/weights.caffemodel")
    publish(monkeypatch, server.url("w/"), sha256=SHA256[:8].upper(), query="?dl=1")
    assert cli("model", "fetch", "vgg16", "here").status == 0
    assert names("here") == ["weights.caffemodel"]


def test_an_altered_file_is_refused(
    cli: Callable, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, server.url("w/"), sha1="0" * 40)
    error = cli("model", "fetch", "vgg16", "here").error
    assert f"its SHA1 is not {'0' * 40}: the file was altered" in error
    assert f"put weights.caffemodel into here. Its page: {PAGE}" in error
    assert names("here") == []


def test_without_a_stated_checksum_the_first_is_recorded(
    cli: Callable, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, server.url("w/"))
    done = cli("model", "fetch", "vgg16", "here")
    assert f"Nobody states a checksum of weights.caffemodel; its SHA-256, now in here/weights.caffemodel.sha256: {SHA256}" in done.err  # fmt: skip # noqa: E501
    assert Path("here/weights.caffemodel.sha256").read_text() == f"{SHA256}  weights.caffemodel\n"
    Path("here/weights.caffemodel").write_bytes(b"damaged")
    assert cli("model", "fetch", "vgg16", "here").status == 0
    assert Path("here/weights.caffemodel").read_bytes() == CONTENT
    Path("here/weights.caffemodel").unlink()
    server.answers["/w/weights.caffemodel"] = file_server.whole(CONTENT[:-1] + b"x")
    error = cli("model", "fetch", "vgg16", "here").error
    assert f"its SHA256 is not {SHA256}" in error
    assert "from here/weights.caffemodel.sha256: remove it if the weights were renewed" in error


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"<html>Please log in</html>", "the file looks like text"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "the file looks like text"),
        (b"", "the file is empty"),
        (caffe_pb2.NetParameter(name="no weights").SerializeToString(), "a net without weights"),
        (CONTENT[:-2000], "weights.caffemodel"),
    ],
)
def test_without_a_stated_checksum_it_must_be_weights(
    cli: Callable, server: FileServer, monkeypatch: pytest.MonkeyPatch, sent: bytes, reason: str
) -> None:
    """Else a page that a server shows instead would be recorded as what is right."""
    server.answers["/w/weights.caffemodel"] = file_server.whole(sent)
    publish(monkeypatch, server.url("w/"))
    error = cli("model", "fetch", "vgg16", "here").error
    assert "what came under the name of weights.caffemodel is something else" in error
    assert reason in error and f"Its page: {PAGE}" in error
    assert names("here") == []
    server.answers["/w/weights.caffemodel"] = file_server.whole(CONTENT)
    assert cli("model", "fetch", "vgg16", "here").status == 0


def test_a_damaged_record_of_a_checksum(
    cli: Callable, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, server.url("w/"))
    Path("here").mkdir()
    Path("here/weights.caffemodel.sha256").write_bytes(b"\xff\xfe")
    assert "remove it" in cli("model", "fetch", "vgg16", "here").error
    Path("here/weights.caffemodel.sha256").write_bytes(b"")
    assert cli("model", "fetch", "vgg16", "here").status == 0
    assert Path("here/weights.caffemodel.sha256").read_text().startswith(SHA256)


def test_goes_on_where_it_broke_off(
    cli: Callable, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, server.url("w/"), sha1=SHA1)
    Path("here").mkdir()
    Path("here/weights.caffemodel.part").write_bytes(CONTENT[:1000])
    assert cli("model", "fetch", "vgg16", "here").status == 0
    assert server.requests[-1] == ("/w/weights.caffemodel", "bytes=1000-")
    assert Path("here/weights.caffemodel").read_bytes() == CONTENT


def test_offline_the_error_says_which_file_to_put_where(
    cli: Callable, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, server.url("nowhere/"))
    error = cli("model", "fetch", "vgg16").error
    assert "HTTP status 404" in error
    assert f"put weights.caffemodel into models/vgg16. Its page: {PAGE}" in error
    Path("models/vgg16").mkdir(parents=True)
    Path("models/vgg16/weights.caffemodel").write_bytes(b"by hand")
    assert "is something else" in cli("model", "fetch", "vgg16").error
    assert names("models/vgg16") == ["weights.caffemodel"]
    Path("models/vgg16/weights.caffemodel").write_bytes(CONTENT)
    assert cli("model", "fetch", "vgg16").status == 0


def test_a_server_that_states_no_size(
    cli: Callable, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["/w/weights.caffemodel"] = file_server.endless
    publish(monkeypatch, server.url("w/"))
    assert "it does not say how long the file is" in cli("model", "fetch", "vgg16").error


def test_weights_for_browsers_only(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch)
    assert cli("model", "fetch", "vgg16").error == (
        "weights.caffemodel has to be fetched with a browser\n"
        f"Without a network: put weights.caffemodel into models/vgg16. Its page: {PAGE}\n"
    )


def test_models_without_public_weights(cli: Callable) -> None:
    assert cli("model", "fetch", "lenet").error.startswith("no public weights are known for lenet")
    assert cli("model", "fetch", "vgg").error.startswith("no model 'vgg'")


def test_the_table_is_of_models_and_safe_sources() -> None:
    assert set(WEIGHTS) <= set(models.list())
    for name, (file, page, mirrors) in WEIGHTS.items():
        assert page.startswith("https://")
        assert {len(file.sha1), len(file.sha256)} <= {0, 8, 40, 64}
        for mirror in mirrors:
            assert mirror.endswith("/")
            assert mirror.startswith("https://") or file.sha1, f"{name}: plain HTTP and no checksum"
        assert file.name in models.path(name, "readme.md").read_text()
