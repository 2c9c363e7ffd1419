"""examples/finetuning: few images of each class, and which layers go from digits to clothes."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe.datasets import resolve_source
from caffe.db import open_db
from caffe.proto.caffe_pb2 import Datum
from caffe.resources import data_path

EXAMPLE = Path(__file__).parents[1] / "examples" / "finetuning"


def datums(path: str) -> list[Datum]:
    with open_db(path, "lmdb") as db:
        cursor, out = db.cursor(), []
        while cursor.valid():
            out.append(Datum.FromString(cursor.value()))
            cursor.next()
        return out


def test_few_images(tmp_path: Path) -> None:
    few_images = runpy.run_path(str(EXAMPLE / "few_images.py"))["few_images"]
    source = resolve_source("dataset://digits/train")
    assert few_images(source, "a", 7, seed=3) == 70
    few_images(source, "b", 7, seed=3)
    few_images(source, "c", 7, seed=4)
    a, b, c = map(datums, "abc")
    assert np.bincount([d.label for d in a]).tolist() == [7] * 10
    assert len({d.data for d in a}) == 70
    known = {(d.data, d.label) for d in datums(source)}
    assert {(d.data, d.label) for d in a} <= known
    assert a == b != c
    assert [d.label for d in a] != sorted(d.label for d in a)


def test_all_layers_but_the_last_are_copied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    few_images = runpy.run_path(str(EXAMPLE / "few_images.py"))["few_images"]
    few_images(resolve_source("dataset://digits/train"), "digits_lmdb", 5)
    text = (EXAMPLE / "train_test.prototxt").read_text()
    for name in ("few_lmdb", "fashion_mnist_test_lmdb"):
        assert f'"examples/finetuning/{name}"' in text
        text = text.replace(f'"examples/finetuning/{name}"', '"digits_lmdb"')
    # The digits have 8 x 8 pixels; as many weights as for 28 x 28 they get by padding.
    text = text.replace("num_output: 20\n", "num_output: 20\n    pad: 10\n")
    Path("clothes.prototxt").write_text(text)
    lenet = caffe.Net(str(data_path("models", "lenet", "deploy.prototxt")), caffe.TEST)
    for blobs in lenet.params.values():
        for blob in blobs:
            blob.data[...] = 3
    lenet.save("lenet.caffemodel")
    clothes = caffe.Net("clothes.prototxt", caffe.TRAIN)
    with caplog.at_level("INFO", "caffe"):
        clothes.copy_from("lenet.caffemodel")
    assert "Ignoring source layer ip2" in caplog.messages
    copied = {name: all((b.data == 3).all() for b in blobs) for name, blobs in clothes.params.items()}
    assert copied == {"conv1": True, "conv2": True, "ip1": True, "ip2_clothes": False}
