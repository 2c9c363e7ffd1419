"""Data layers: batch by batch what the original read from databases, images, HDF5 files and memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import caffe
import golden_vectors as golden
from caffe.proto import caffe_pb2
from golden_vectors import Case, Comparison


@pytest.fixture(scope="module")
def data_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording's working folder, where readers may create lock files."""
    folder = tmp_path_factory.mktemp("golden") / "data"
    shutil.copytree(golden.GOLDEN / "data", folder)
    return folder


@pytest.mark.parametrize("case", golden.cases("data"), ids=str)
def test_batches(case: Case, data_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data_copy)
    meta = case.meta
    net = caffe.Net(case.prototxt.name, getattr(caffe, meta["phase"]))
    if meta["type"] == "MemoryData":
        net.set_input_arrays(case["data"], case["labels"])
    tolerance = meta.get("tol", {"rtol": 1e-5, "atol": 1e-5})
    with Comparison() as compare:
        for batch in range(meta["batches"]):
            net.forward()
            for index, name in enumerate(meta["tops"]):
                wanted = case[f"batch_{batch}_top_{index}"]
                compare(f"batch {batch}, {name}", net.blobs[name].data, wanted, **tolerance)


def _by_hand(name: str) -> Case:
    return Case("data", golden.GOLDEN / "data" / f"{name}.npz")


def test_hdf5_output_writes_what_the_original_wrote(data_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data_copy)
    case = _by_hand("hdf5_output")
    Path("hdf5_output.h5").unlink()
    net = caffe.Net("hdf5_output.prototxt", caffe.TEST)
    net.forward()
    del net  # closes the file
    with h5py.File("hdf5_output.h5") as file, Comparison() as compare:
        for name, (shape, dtype) in case.meta["datasets"].items():
            compare.equal(name, (list(file[name].shape), str(file[name].dtype)), (shape, dtype))
            compare(name, file[name][...], case[f"file_{name}"], rtol=0, atol=1e-6)


def test_random_crop_and_mirror(data_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each item is its image less the mean, cropped somewhere and perhaps mirrored; all of it happens."""
    monkeypatch.chdir(data_copy)
    case = _by_hand("data_train_crop_mirror")
    with np.load("db/raw_lmdb.npz") as archive:
        images = [archive[f"array_{i}"] for i in range(len(json.loads(str(archive["meta"]))["records"]))]
    mean = caffe_pb2.BlobProto.FromString(Path("mean_raw.binaryproto").read_bytes())
    images = [image - np.reshape(mean.data, image.shape).astype(np.float32) for image in images]

    net = caffe.Net("data_train_crop_mirror.prototxt", caffe.TRAIN)
    offsets, mirrored, count = set(), 0, 0
    for _ in range(case.meta["batches"]):
        net.forward()
        for item in net.blobs["data"].data:
            row, column, mirror = _find(item, images[count % len(images)])
            offsets.add((row, column))
            mirrored += mirror
            count += 1
    assert len(offsets) >= 6
    assert 0.15 * count < mirrored < 0.85 * count


def _find(item: np.ndarray, image: np.ndarray) -> tuple[int, int, bool]:
    size = item.shape[-1]
    for row in range(image.shape[1] - size + 1):
        for column in range(image.shape[2] - size + 1):
            crop = image[:, row : row + size, column : column + size]
            for mirror in (False, True):
                if np.allclose(item, crop[:, :, ::-1] if mirror else crop, rtol=0, atol=1e-3):
                    return row, column, mirror
    raise AssertionError("an item that is no crop of its image")
