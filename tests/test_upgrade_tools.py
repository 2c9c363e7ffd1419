"""The three upgrade tools on every recorded case: what they write, and when they fail."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from google.protobuf import text_format
from google.protobuf.message import Message

from caffe.errors import CaffeError, ProtoError, WireError
from caffe.proto import caffe_pb2 as pb
from caffe_tools import upgrade_net_proto_binary, upgrade_net_proto_text, upgrade_solver_proto_text

PROTO = Path(__file__).parent / "golden" / "proto"
CODES = json.loads((PROTO / "returncodes.json").read_text())
NET = upgrade_net_proto_text.command
BINARY = upgrade_net_proto_binary.command
SOLVER = upgrade_solver_proto_text.command


def run(command: click.Command, *args: str | Path) -> Result:
    return CliRunner().invoke(command, [str(arg) for arg in args])


def parsed(path: Path, kind: type[Message]) -> Message:
    if path.suffix == ".prototxt":
        return text_format.Parse(path.read_text(), kind())
    return kind.FromString(path.read_bytes())


def jobs() -> list[tuple[click.Command, type[Message], str, str, int]]:
    found: list[tuple[click.Command, type[Message], str, str, int]] = []
    for case, codes in CODES.items():
        text = (f"{case}.in.prototxt", f"{case}.out.prototxt", codes["text_rc"])
        if "binary_rc" in codes:
            found.append((NET, pb.NetParameter, *text))
            found.append((BINARY, pb.NetParameter, f"{case}.in.bin", f"{case}.out.bin", codes["binary_rc"]))
        else:
            found.append((SOLVER, pb.SolverParameter, *text))
    for path in sorted(PROTO.glob("*.upgraded.caffemodel")):
        found.append((BINARY, pb.NetParameter, path.name.replace(".upgraded", ""), path.name, 0))
    return found


@pytest.mark.parametrize(
    ("command", "kind", "name", "expected", "code"), jobs(), ids=lambda value: str(value)
)
def test_recorded_case(
    command: click.Command, kind: type[Message], name: str, expected: str, code: int, tmp_path: Path
) -> None:
    output = tmp_path / expected
    result = run(command, PROTO / name, output)
    if code:
        assert isinstance(result.exception, CaffeError)
        assert name in str(result.exception)
        assert not output.exists()
    else:
        assert result.exception is None, result.exception
        assert parsed(output, kind) == parsed(PROTO / expected, kind)


@pytest.mark.parametrize("binary", [False, True])
def test_fields_left_behind_fail_after_the_rest_is_written(binary: bool, tmp_path: Path) -> None:
    net = text_format.Parse(
        'input: "a" layers { layer { type: "relu" num_output: 3 } bottom: "a" top: "b" }', pb.NetParameter()
    )
    source, output = tmp_path / "in", tmp_path / "out"
    if binary:
        source.write_bytes(net.SerializeToString())
    else:
        source.write_text(text_format.MessageToString(net))
    result = run(BINARY if binary else NET, source, output)
    assert isinstance(result.exception, ProtoError)
    assert "Encountered error(s) while upgrading" in str(result.exception)
    data = output.read_bytes()
    written = pb.NetParameter.FromString(data) if binary else text_format.Parse(data, pb.NetParameter())
    assert written == text_format.Parse('layer { type: "ReLU" bottom: "a" top: "b" }', pb.NetParameter())


@pytest.mark.parametrize("command", [NET, BINARY, SOLVER])
def test_file_that_is_not_there(command: click.Command, tmp_path: Path) -> None:
    result = run(command, tmp_path / "absent", tmp_path / "out")
    assert isinstance(result.exception, CaffeError)
    assert "absent" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    result = run(BINARY, PROTO / "current.in.bin", tmp_path)
    assert isinstance(result.exception, ProtoError)
    assert str(tmp_path) in str(result.exception)


@pytest.mark.parametrize("command", [NET, BINARY, SOLVER])
def test_empty_file(command: click.Command, tmp_path: Path) -> None:
    (tmp_path / "nothing").touch()
    result = run(command, tmp_path / "nothing", tmp_path / "out")
    assert isinstance(result.exception, ProtoError)
    assert "nothing: the file is empty" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_file_may_take_its_own_place_and_stays_if_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "net.caffemodel"
    before = (PROTO / "model_v1.caffemodel").read_bytes()
    place.write_bytes(before)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        result = run(BINARY, place, place)
    assert "net.caffemodel: cannot be written: No space left on device" in str(result.exception)
    assert place.read_bytes() == before
    assert run(BINARY, place, place).exception is None
    assert parsed(place, pb.NetParameter) == parsed(PROTO / "model_v1.upgraded.caffemodel", pb.NetParameter)


def test_truncated_binary(tmp_path: Path) -> None:
    source = tmp_path / "short.caffemodel"
    source.write_bytes((PROTO / "model_v1.caffemodel").read_bytes()[:-5])
    result = run(BINARY, source, tmp_path / "out")
    assert isinstance(result.exception, WireError)
    assert "short.caffemodel" in str(result.exception)


@pytest.mark.parametrize("command", [NET, BINARY, SOLVER])
def test_usage(command: click.Command) -> None:
    assert run(command, "only one").exit_code == 2
