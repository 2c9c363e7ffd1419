"""Prototxt files: read_net and read_solver, writing, layer_lines, and files that are something else.

What the text may be is tests/proto/test_text_parser.py's.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from google.protobuf import text_format
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from caffe import proto_text
from caffe.errors import ParseError, ProtoError, WireError
from caffe.proto import caffe_pb2 as pb
from proto_strategies import messages

GOLDEN = Path(__file__).parent / "golden"

NET = 'name: "n"\nlayer { name: "a" type: "ReLU" }\n'
SOLVER = 'net: "n.prototxt"\nbase_lr: 0.5\n'


def write(folder: Path, content: str | bytes, name: str = "net.prototxt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_reads_a_net_and_a_solver(tmp_path: Path) -> None:
    path = write(tmp_path, NET)
    expected = pb.NetParameter(name="n", layer=[pb.LayerParameter(name="a", type="ReLU")])
    assert proto_text.read_net(path) == proto_text.read_net(str(path)) == expected
    path = write(tmp_path, SOLVER)
    assert proto_text.read_solver(path) == pb.SolverParameter(net="n.prototxt", base_lr=0.5)


def test_old_formats_are_read_as_they_stand() -> None:
    for name, field in (("v0_small", "layer"), ("v1_small", "bottom")):
        net = proto_text.read_net(GOLDEN / "proto" / f"{name}.in.prototxt")
        assert not net.layer
        assert any(getattr(layer, field) for layer in net.layers)


def test_fault_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, 'name: "n"\nlaier { }\n')
    with pytest.raises(ParseError, match="has no field named") as caught:
        proto_text.read_net(path)
    assert str(caught.value).startswith(f"{path}:2:1: ")
    assert (caught.value.path, caught.value.line, caught.value.column) == (str(path), 2, 1)


def test_both_formats_in_one_file_are_refused() -> None:
    with pytest.raises(ProtoError, match="the definition includes both 'layer' and 'layers' fields"):
        proto_text.read_net(GOLDEN / "proto" / "v1_and_v2.in.prototxt")


@pytest.mark.parametrize("read", [proto_text.read_net, proto_text.read_solver, proto_text.read_text])
def test_files_that_cannot_be_read(read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProtoError, match=r"File not found: net\.prototxt .*looked in"):
        read("net.prototxt")
    with pytest.raises(ProtoError, match="is a directory"):
        read(tmp_path)
    with pytest.raises(ProtoError, match="where a file's path is wanted"):
        read(NET)
    with pytest.raises(ProtoError, match="null"):
        read("net\0.prototxt")


def test_binary_form_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ProtoError, match="File not found"):
        proto_text.read_binary(tmp_path / "x", pb.Datum)


@pytest.mark.parametrize("text", ["", "\n \n", "# nothing\n", b"\xef\xbb\xbf"])
def test_empty_files(text: str | bytes, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ParseError, match="empty: there is no net in it"):
        proto_text.read_net(path)
    with pytest.raises(ParseError, match="empty: there is no solver in it"):
        proto_text.read_solver(path)


def test_binary_files_where_text_is_wanted(tmp_path: Path) -> None:
    for path in [*GOLDEN.glob("proto/*.caffemodel"), *GOLDEN.glob("proto/*.in.bin")]:
        with pytest.raises(ParseError, match=r"binary where a prototxt .*-weights"):
            proto_text.read_net(path)
    with pytest.raises(ParseError, match="HDF5"):
        proto_text.read_net(write(tmp_path, b"\x89HDF\r\n\x1a\n" + bytes(100)))
    with pytest.raises(ParseError, match="UTF-16"):
        proto_text.read_net(write(tmp_path, NET.encode("utf-16")))


def test_a_solver_as_net_and_a_net_as_solver(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="looks like a solver"):
        proto_text.read_net(write(tmp_path, SOLVER))
    with pytest.raises(ParseError, match="looks like a net"):
        proto_text.read_solver(write(tmp_path, NET))


def test_other_encodings_pass_in_comments_only(tmp_path: Path) -> None:
    latin = '# r\xe9seau\nname: "n"  # \xe9\n'.encode("latin-1")
    assert proto_text.read_net(write(tmp_path, latin)).name == "n"
    with pytest.raises(ParseError, match=r":2:7: String field .name. contains invalid UTF-8 data"):
        proto_text.read_net(write(tmp_path, '#\nname: "r\xe9seau"\n'.encode("latin-1")))
    with pytest.raises(ParseError, match=":1:1: Byte 0xE9 is not UTF-8"):
        proto_text.read_net(write(tmp_path, '\xe9: "n"\n'.encode("latin-1")))
    utf8 = write(tmp_path, b"\xef\xbb\xbf" + 'name: "r\xe9seau"\n'.encode())
    assert proto_text.read_net(utf8).name == "r\xe9seau"


def test_pipes_and_files_of_any_size(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pipe.write_text, NET)
        assert proto_text.read_net(pipe).name == "n"
        written.result()
    large = tmp_path / "large.prototxt"
    with large.open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(ProtoError, match=r"large\.prototxt: more bytes than protobuf's limit of 2147483647"):
        proto_text.read_net(large)


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("cls", [pb.NetParameter, pb.SolverParameter])
@given(data=st.data())
@settings(max_examples=50)
def test_what_is_written_is_read_again(cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(messages(cls))
    text = proto_text.write_text(message)
    assert proto_text.parse_text(text, cls) == message
    assert text_format.Parse(text, cls()) == message


def test_written_text_has_a_field_to_a_line() -> None:
    net = pb.NetParameter(name="n")
    net.layer.add(name="c", type="Convolution").convolution_param.kernel_size.append(3)
    assert proto_text.write_text(net) == (
        'name: "n"\n'
        "layer {\n"
        '  name: "c"\n'
        '  type: "Convolution"\n'
        "  convolution_param {\n"
        "    kernel_size: 3\n"
        "  }\n"
        "}\n"
    )
    assert proto_text.write_text(pb.SolverParameter(base_lr=0.01)) == "base_lr: 0.01\n"


def test_write_into_a_file(tmp_path: Path) -> None:
    net = pb.NetParameter(name="r\xe9seau")
    proto_text.write(net, tmp_path / "out.prototxt")
    assert proto_text.read_net(tmp_path / "out.prototxt") == net
    with pytest.raises(ProtoError, match="cannot be written"):
        proto_text.write(net, tmp_path / "no" / "out.prototxt")


# ---------------------------------------------------------------- lines


def test_layer_lines() -> None:
    text = (
        'name: "n"\n'
        "# layer { }\n"
        'layer { name: "a" param { name: "w" } }\n'
        "\n"
        "layer: {\n  type: \"X\"\n  name : 'b'\n}\n"
        'layers <\n layer { name: "c" weight_filler { type: "name" } } bottom: "x" > layer { }\n'
        'layer [\n { name: "d" },\n { name: "e" }\n]\n'
        'state { stage: "layer" }\n'
    )
    assert proto_text.layer_lines(text) == [(3, "a"), (5, "b"), (9, "c"), (10, ""), (12, "d"), (13, "e")]


def test_layer_lines_of_the_recorded_nets() -> None:
    """Independent count: each recorded net begins a top-level layer at the start of a line."""
    compared = 0
    for path in sorted(GOLDEN.glob("nets/*/net.prototxt")):
        text = path.read_text()
        net = text_format.Parse(text, pb.NetParameter())
        found = proto_text.layer_lines(text)
        assert [name for _, name in found] == [layer.name for layer in (net.layer or net.layers)]
        lines = text.split("\n")
        assert all(lines[line - 1].lstrip().startswith("layer") for line, _ in found)
        compared += 1
    assert compared >= 8


# ---------------------------------------------------------------- binary messages


def test_read_binary(tmp_path: Path) -> None:
    datum = pb.Datum(channels=1, data=b"x")
    assert proto_text.read_binary(write(tmp_path, datum.SerializeToString()), pb.Datum) == datum
    assert proto_text.read_binary(write(tmp_path, b""), pb.Datum) == pb.Datum()


def test_read_binary_of_something_else(tmp_path: Path) -> None:
    data = pb.NetParameter(name="a net with a name").SerializeToString()
    with pytest.raises(WireError, match=r"net\.prototxt: 18 bytes that are no caffe\.NetParameter"):
        proto_text.read_binary(write(tmp_path, data[:-1]), pb.NetParameter)
    with pytest.raises(WireError, match="looks like text"):
        proto_text.read_binary(write(tmp_path, NET), pb.NetParameter)
    clip = pb.ClipParameter(min=0).SerializePartialToString()
    with pytest.raises(WireError, match="missing required fields: max"):
        proto_text.read_binary(write(tmp_path, clip), pb.ClipParameter)
