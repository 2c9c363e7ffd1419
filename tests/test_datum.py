"""Datum's wire bytes, against protobuf's own reading of them."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from caffe.datum import DatumParser
from caffe.errors import DataError
from caffe.proto import caffe_pb2

INT32 = st.integers(-(2**31), 2**31 - 1)


def message(data: bytes = b"", floats: list[float] | None = None, **fields: int) -> caffe_pb2.Datum:
    out = caffe_pb2.Datum(**fields)
    if data:
        out.data = data
    out.float_data.extend(floats or [])
    return out


def assert_same(value: bytes, parser: DatumParser) -> None:
    datum, wanted = parser.parse(value), caffe_pb2.Datum.FromString(value)
    assert datum.data == wanted.data
    assert (datum.channels, datum.height, datum.width) == (wanted.channels, wanted.height, wanted.width)
    assert (datum.label, datum.encoded) == (wanted.label, wanted.encoded)
    floats = [] if datum.float_data is None else datum.float_data
    np.testing.assert_array_equal(floats, np.array(wanted.float_data, np.float32))


@st.composite
def raw_datums(draw: st.DrawFn) -> bytes:
    c, h, w = (draw(st.integers(1, 5)) for _ in range(3))
    size = c * h * w
    out = message(channels=c, height=h, width=w)
    kind = draw(st.sampled_from(["data", "floats", "encoded"]))
    if kind == "floats":
        out.float_data.extend(draw(st.lists(st.floats(width=32), min_size=size, max_size=size)))
    else:
        out.data = draw(st.binary(min_size=size, max_size=size))
    if kind == "encoded":
        out.encoded = True
    if draw(st.booleans()):
        out.label = draw(INT32)
    return out.SerializeToString()


@given(st.lists(raw_datums(), min_size=1, max_size=8))
def test_one_parser_for_many_records(values: list[bytes]) -> None:
    """Whatever it remembers of one record must not colour the next."""
    parser = DatumParser()
    for value in values + values[::-1]:
        assert_same(value, parser)


@given(st.lists(raw_datums(), min_size=2, max_size=2))
def test_fields_in_any_order_and_more_than_once(values: list[bytes]) -> None:
    """Concatenated messages merge: the last scalar counts, repeated fields add up."""
    first, second = (caffe_pb2.Datum.FromString(v) for v in values)
    for name in ("channels", "height", "width"):
        setattr(first, name, getattr(second, name))
    first.ClearField("float_data")
    if not second.data:
        first.ClearField("data")
    joined = first.SerializeToString() + second.SerializeToString()
    parser = DatumParser()
    for _ in range(2):
        assert_same(joined, parser)


@given(st.lists(raw_datums(), min_size=1, max_size=5), st.data())
def test_many_records_at_once(values: list[bytes], data: st.DataObject) -> None:
    """images() gives what parse() gives, or nothing; not nothing where only pixels and labels differ."""
    parser = DatumParser()
    parser.parse(values[0])
    size = len(values[0])
    others = [v for v in values if len(v) == size]
    alike = []
    first = caffe_pb2.Datum.FromString(values[0])
    for _ in range(data.draw(st.integers(0, 5))):
        other = caffe_pb2.Datum.FromString(values[0])
        if len(other.data):
            other.data = data.draw(st.binary(min_size=len(other.data), max_size=len(other.data)))
        if first.HasField("label") and 0 <= first.label < 128:
            other.label = data.draw(st.integers(0, 127))
        alike.append(other.SerializeToString())
    for rows in ([values[0], *alike], [*others, *alike], [values[0], *(v[::-1] for v in others)]):
        if not parser.size:  # no raw record has come yet
            break
        found = parser.images(np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), size))
        if found is None:
            assert rows[1:] != alike or first.encoded or first.float_data
            continue
        images, labels = found
        for image, label, value in zip(images, labels, rows, strict=True):
            wanted = caffe_pb2.Datum.FromString(value)
            assert image.shape == (wanted.channels, wanted.height, wanted.width)
            assert image.tobytes() == wanted.data and not wanted.encoded and not wanted.float_data
            assert label == np.float32(wanted.label)


def test_a_shape_that_is_changed_after_the_pixels() -> None:
    """The last dimensions count, whatever the bytes before the pixels say."""
    plain = message(b"123456", channels=1, height=2, width=3, label=4).SerializeToString()
    turned = plain + message(height=3, width=2).SerializeToString()
    for first, then in ((plain, turned), (turned, plain)):
        parser = DatumParser()
        for value in (first, then, then, first):
            assert_same(value, parser)
        parser.parse(first)
        found = parser.images(np.frombuffer(first * 2, np.uint8).reshape(2, -1))
        assert found is not None
        assert found[0].shape == ((2, 1, 2, 3) if first is plain else (2, 1, 3, 2))
    rows = [turned, plain + message(height=2, width=3).SerializeToString()]
    parser = DatumParser()
    parser.parse(plain)
    assert parser.images(np.frombuffer(b"".join(rows), np.uint8).reshape(2, -1)) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_protobuf_does_or_refused(value: bytes) -> None:
    try:
        wanted = caffe_pb2.Datum.FromString(value)
    except DecodeError:
        wanted = None
    try:
        DatumParser().parse(value)
    except DataError:
        return
    assert wanted is not None
    assert_same(value, DatumParser())


@given(raw_datums(), st.integers(0, 200), st.integers(0, 255))
def test_damaged_records(value: bytes, place: int, byte: int) -> None:
    parser = DatumParser()
    parser.parse(value)
    damaged = bytearray(value)
    damaged[place % len(value)] = byte
    for candidate in (bytes(damaged), value[: place % len(value)]):
        try:
            parser.parse(candidate)
        except DataError:
            continue
        assert_same(candidate, parser)


@pytest.mark.parametrize(
    "unknown",
    [
        b"\x78\x96\x01",  # 15, varint
        b"\x79" + bytes(8),  # 15, 64 bits
        b"\x7d" + bytes(4),  # 15, 32 bits
        b"\x7a\x03abc",  # 15, bytes
        b"\x7b\x08\x01\x7b\x7c\x12\x01x\x7c",  # 15, a group with a number, a group and bytes in it
        b"\xfa\xff\xff\xff\x0f\x00",  # the largest field number
        b"\x22\x03abc",  # data, which the later one replaces
    ],
)
def test_unknown_fields_are_passed_over(unknown: bytes) -> None:
    value = message(b"\x01\x02", channels=1, height=1, width=2, label=7).SerializeToString()
    parser = DatumParser()
    for candidate in (unknown + value, value + unknown) if unknown[0] != 0x22 else (unknown + value,):
        for _ in range(2):
            datum = parser.parse(candidate)
            assert (datum[:5], bytes(datum.data)) == ((1, 1, 2, 7, False), b"\x01\x02")


def test_packed_and_single_floats() -> None:
    values = np.array([1.5, -2.25, 0.0], np.float32)
    dims = b"\x08\x01\x10\x01\x18\x03"
    packed = dims + b"\x32\x0c" + values.tobytes()
    single = dims + b"".join(b"\x35" + v.tobytes() for v in values)
    mixed = dims + b"\x35" + values[:1].tobytes() + b"\x28\x05" + b"\x32\x08" + values[1:].tobytes()
    for value in (packed, single, mixed):
        float_data = DatumParser().parse(value).float_data
        assert float_data is not None and float_data.tolist() == values.tolist()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "0 x 0 x 0 .* has no pixels"),
        (message(b"abc").SerializeToString(), "has no pixels but 3 bytes.*without encoded: true"),
        (message(b"abc", channels=1, height=2, width=2).SerializeToString(), "must have 4 values, not 3"),
        (
            message(floats=[1.0], channels=1, height=1, width=2).SerializeToString(),
            "must have 2 values, not 1",
        ),
        (message(b"x", channels=-1, height=-1, width=1).SerializeToString(), "-1 x -1 x 1"),
        (message(b"abcd", channels=1, height=2, width=2).SerializeToString()[:-1], "no Datum"),
        (b"\x0b" * 3000, "no Datum: it ends too early"),  # 3,000 groups within each other
        (b"\x0b\x14", "field 2 of wire type 4 out of place"),
        (b"\x00\x00", "number 0"),
        (b"\x0f", "wire type 7"),
        (b"\x22\xff\xff\xff\xff\x0f", "of 4294967295 bytes"),
        (b"\x08" + b"\xff" * 11, "more than 64 bits"),
    ],
)
def test_what_is_no_datum_is_refused(value: bytes, text: str) -> None:
    with pytest.raises(DataError, match=text):
        DatumParser().parse(value)


def test_a_shorter_record_is_not_taken_for_a_known_one() -> None:
    parser = DatumParser()
    value = message(b"abcdef", channels=1, height=2, width=3).SerializeToString()  # nothing after the data
    parser.parse(value)
    with pytest.raises(DataError):
        parser.parse(value[:-1])
    assert bytes(parser.parse(value).data) == b"abcdef"
