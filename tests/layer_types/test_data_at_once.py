"""Data: batches that are made at once hold what they hold record by record.

A LevelDB is always read record by record, so that it says what the same records must give from an LMDB.
"""

from __future__ import annotations

import math
from pathlib import Path

import cv2
import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe.db import open_db
from caffe.errors import DataError
from caffe.layer_types.data import _Fill
from caffe.proto import caffe_pb2
from caffe.proto.caffe_pb2 import Datum

Shape = tuple[int, int, int]


def raw(rng: np.random.Generator, shape: Shape, label: int) -> bytes:
    channels, height, width = shape
    data = rng.bytes(math.prod(shape))
    return Datum(channels=channels, height=height, width=width, label=label, data=data).SerializeToString()


def odd(rng: np.random.Generator, shape: Shape, label: int, kind: str) -> bytes:
    """A record that is not like raw()'s."""
    channels, height, width = shape
    datum = Datum.FromString(raw(rng, shape, label))
    match kind:
        case "floats":
            values = rng.normal(0, 100, math.prod(shape)).tolist()
            return Datum(channels=channels, height=height, width=width, float_data=values).SerializeToString()
        case "encoded":
            image = rng.integers(0, 256, (height, width, channels), dtype=np.uint8)
            png = cv2.imencode(".png", image)[1].tobytes()
            return Datum(encoded=True, data=png, label=label).SerializeToString()
        case "larger":
            return raw(rng, (channels, height + 1, width + 2), label)
        case "turned":  # as many pixels
            return raw(rng, (channels, width, height), label)
        case "label first":
            return Datum(label=label).SerializeToString() + raw(rng, shape, label)[:-2]
        case "shape last":
            return raw(rng, shape, label) + Datum(height=width, width=height).SerializeToString()
        case "long label":
            datum.label = 1 << 20
        case "no label":
            datum.ClearField("label")
        case "said not to be encoded":
            datum.encoded = False
        case "cut off":
            return datum.SerializeToString()[: -int(rng.integers(1, 8))]
        case "garbage":
            return rng.bytes(len(datum.SerializeToString()))
    return datum.SerializeToString()


GOOD = ["floats", "encoded", "turned", "label first", "long label", "no label", "said not to be encoded"]
BAD = ["larger", "shape last", "cut off", "garbage"]


def write(records: list[bytes], each: int) -> None:
    """Both databases, `each` records a transaction, so that an LMDB's pages do not all lie in order."""
    for backend in ("lmdb", "leveldb"):
        with open_db(f"db_{backend}", backend, "new") as db:
            transaction = db.transaction()
            for i, value in enumerate(records):
                transaction.put(b"%06d" % i, value)
                if i % each == each - 1:
                    transaction.commit()
            transaction.commit()


def net(backend: str, batch_size: int, transform: str, phase: int, more: str = "") -> caffe.Net:
    caffe.set_random_seed(3)
    text = f"""layer {{ name: "d" type: "Data" top: "data" top: "label" transform_param {{ {transform} }}
        data_param {{ source: "db_{backend}" backend: {backend.upper()} batch_size: {batch_size} {more} }}
        }}"""
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), phase)


Batches = list[tuple[bytes, bytes, tuple[int, ...], int]]


def run(net: caffe.Net, count: int, back: int) -> tuple[Batches, str]:
    """What some batches hold, and what went wrong then. After half of them, `back` batches back."""
    out: Batches = []
    layer = net.layers[0]
    positions = [0]
    try:
        for i in range(count):
            if i == count // 2:
                layer.seek(positions[-1 - min(back, i)])
            net.forward()
            data, label = (net.blobs[name].data.copy() for name in ("data", "label"))
            positions.append(layer.position)
            out.append((data.tobytes(), label.tobytes(), data.shape, layer.position))
    except DataError as error:
        return out, str(error).replace("LevelDB", "LMDB").replace("leveldb", "lmdb")
    finally:
        layer.close()
    return out, ""


def transforms(rng: np.random.Generator, shape: Shape) -> str:
    channels, height, width = shape
    text = [f"crop_size: {rng.integers(1, min(height, width) + 1)}"] * int(rng.integers(2))
    text += ["mirror: true"] * int(rng.integers(2)) + [f"scale: {rng.random():.4f}"] * int(rng.integers(2))
    match rng.integers(4):
        case 0:
            text.append("mean_value: 33.7")
        case 1:
            text += [f"mean_value: {v:.3f}" for v in rng.uniform(0, 255, channels)]
        case 2:
            mean = caffe_pb2.BlobProto(num=1, channels=channels, height=height, width=width)
            mean.data.extend(rng.uniform(0, 255, math.prod(shape)).tolist())
            Path("mean").write_bytes(mean.SerializeToString())
            text.append('mean_file: "mean"')
    return " ".join(text)


@pytest.mark.parametrize("seed", range(60))
def test_batches_are_those_of_single_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.chdir(tmp_path)
    # Some stand in leaf pages, some on overflow pages.
    shape = (int(rng.choice([1, 3])), *map(int, rng.integers(2, 40 if seed % 3 == 0 else 16, 2)))
    kinds = (GOOD, GOOD + BAD, [])[seed % 3]
    share = rng.choice([0.003, 0.05, 0.5]) if kinds else 0.0
    count, labels = int(rng.integers(1, 500)), int(rng.choice([10, 120, 300]))
    records = [
        odd(rng, shape, int(rng.integers(labels)), str(rng.choice(kinds)))
        if i and rng.random() < share
        else raw(rng, shape, int(rng.integers(labels)))
        for i in range(count)
    ]
    write(records, int(rng.choice([7, 100, 1000])))
    batch_size, phase = int(rng.choice([1, 4, 17, 64])), int(rng.choice([caffe.TRAIN, caffe.TEST]))
    transform, skip = transforms(rng, shape), f"rand_skip: {int(rng.integers(50))}"
    steps, back = min(2 + 2 * count // batch_size, 60), int(rng.integers(4))
    found, wanted = (
        run(net(b, batch_size, transform, phase, skip), steps, back) for b in ("lmdb", "leveldb")
    )
    assert found[1] == wanted[1]
    assert len(found[0]) == len(wanted[0])
    for i, (ours, theirs) in enumerate(zip(found[0], wanted[0], strict=True)):
        assert ours == theirs, f"batch {i}"


@pytest.mark.parametrize("size", [10, 40])
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_nearly_all_batches_of_raw_images_are_made_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, size: int, num_ranks: int
) -> None:
    """Images of 300 bytes stand in leaf pages, of 4,800 on overflow pages."""
    monkeypatch.chdir(tmp_path)
    write([raw(rng, (3, size, size), i % 10) for i in range(700)], 1000)
    monkeypatch.setattr("caffe.layer_types.data.PrefetchingLayer.share", lambda self: share)
    singly: list[int] = []
    one_by_one = _Fill._one_by_one

    def note(self: _Fill, records: object, batch: object) -> None:
        singly.append(1)
        one_by_one(self, records, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(_Fill, "_one_by_one", note)
    for rank in range(num_ranks):
        share = {"rank": rank, "num_ranks": num_ranks}
        singly.clear()
        found = run(net("lmdb", 8, "crop_size: 9 mirror: true scale: 0.1", caffe.TRAIN), 400 // num_ranks, 0)
        assert len(singly) < 12  # where the database begins anew, or where leaves lie apart
        wanted = run(
            net("leveldb", 8, "crop_size: 9 mirror: true scale: 0.1", caffe.TRAIN), 400 // num_ranks, 0
        )
        assert found == wanted


def test_an_interrupted_batch_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Ctrl-C while records are read: the next forward gives the batch that this one would have been."""
    monkeypatch.chdir(tmp_path)
    write([raw(rng, (1, 4, 4), i) for i in range(50)], 1000)
    n = net("lmdb", 8, "mirror: true", caffe.TRAIN)
    wanted = run(net("lmdb", 8, "mirror: true", caffe.TRAIN), 8, 0)[0]
    whole = _Fill.__call__

    def interrupted(self: _Fill, records: object, batch: object) -> None:
        whole(self, records, batch)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    for i in range(8):
        if i % 3 == 1:
            with monkeypatch.context() as patch:
                patch.setattr(_Fill, "__call__", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    n.forward()
        n.forward()
        assert n.blobs["data"].data.tobytes() == wanted[i][0]
        assert n.layers[0].position == wanted[i][3]
