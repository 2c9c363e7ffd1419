"""The committed caffe_pb2: loads under every supported protobuf runtime, and is what users import."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from caffe.proto import caffe_pb2

ROOT = Path(__file__).parents[2]
SOURCE = Path(caffe_pb2.__file__).read_text()


def test_generator_is_older_than_every_supported_runtime() -> None:
    """A runtime refuses code from a newer generator, and from 5 on the code itself checks the runtime."""
    version = re.search(r"^# Protobuf Python Version: (\d+)\.(\d+)\.(\d+)$", SOURCE, re.MULTILINE)
    assert version is not None
    assert int(version[1]) == 4
    assert "runtime_version" not in SOURCE


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_import_without_a_warning(implementation: str) -> None:
    """In a fresh interpreter, with warnings as errors, on both implementations of the runtime."""
    code = (
        "from caffe.proto import caffe_pb2 as pb\n"
        "net = pb.NetParameter(name='n')\n"
        "net.layer.add(name='conv').convolution_param.kernel_size.append(3)\n"
        "assert pb.NetParameter.FromString(net.SerializeToString()) == net\n"
        "from google.protobuf.internal import api_implementation\n"
        "print(api_implementation.Type())\n"
    )
    env = os.environ | {
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation,
        "PYTHONPATH": str(Path(caffe_pb2.__file__).parents[2]),
    }
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == implementation


def test_messages_can_be_pickled() -> None:
    """Their module must be importable by its name; worker processes get NetParameters this way."""
    net = caffe_pb2.NetParameter(name="n", force_backward=True)
    assert type(net).__module__ == "caffe.proto.caffe_pb2"
    assert pickle.loads(pickle.dumps(net)) == net


def test_stub_declares_every_message() -> None:
    stub = Path(caffe_pb2.__file__).with_suffix(".pyi").read_text()
    declared = set(re.findall(r"^class (\w+)\(_message\.Message\)", stub, re.MULTILINE))
    assert declared == set(caffe_pb2.DESCRIPTOR.message_types_by_name)


@pytest.mark.network
def test_committed_code_is_what_the_schema_gives() -> None:
    subprocess.run([ROOT / "scripts" / "proto", "--check"], check=True, timeout=600)
