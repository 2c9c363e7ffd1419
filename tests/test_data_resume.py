"""A training that is interrupted, restored and finished ends in the same bits as one that was not, on each
kind of data."""

from __future__ import annotations

from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest

import caffe
from caffe import resume_file
from caffe.db import open_db
from caffe.proto import caffe_pb2

COUNT = 7  # not a multiple of the batch size 3
TRANSFORM = "transform_param { crop_size: 4 mirror: true }"
LAYERS = {
    "Data": f'{TRANSFORM} data_param {{ source: "db" backend: LMDB batch_size: 3 rand_skip: 5 }}',
    "ImageData": f'{TRANSFORM} image_data_param {{ source: "list.txt" batch_size: 3 shuffle: true }}',
    "WindowData": f'{TRANSFORM} window_data_param {{ source: "windows.txt" batch_size: 3 fg_fraction: 0.4 }}',
    "HDF5Data": 'hdf5_data_param { source: "hdf5.txt" batch_size: 3 shuffle: true }',
}


@pytest.fixture(autouse=True)
def data(rng: np.random.Generator) -> None:
    """The same images in every form."""
    images = [rng.integers(0, 256, (6, 6, 3), dtype=np.uint8) for _ in range(COUNT)]
    with open_db("db", "lmdb", "new") as db:
        transaction = db.transaction()
        for i, image in enumerate(images):
            datum = caffe_pb2.Datum(channels=3, height=6, width=6, label=i % 2)
            datum.data = image.transpose(2, 0, 1).tobytes()
            transaction.put(b"%d" % i, datum.SerializeToString())
        transaction.commit()
    for i, image in enumerate(images):
        cv2.imwrite(f"{i}.png", image)
    Path("list.txt").write_text("".join(f"{i}.png {i % 2}\n" for i in range(COUNT)))
    windows = "2\n1 1 0 1 4 5\n0 0 1 1 5 5\n"
    Path("windows.txt").write_text("".join(f"# {i}\n{i}.png\n3\n6\n6\n{windows}" for i in range(COUNT)))
    with h5py.File("x.h5", "w") as file:
        file["data"] = np.array(images, np.float32).transpose(0, 3, 1, 2)[:, :, :4, :4]
        file["label"] = np.arange(COUNT) % 2
    Path("hdf5.txt").write_text("x.h5\n")


def train(layer: str, folder: str, resume: str = "") -> np.ndarray:
    """The parameters after ten iterations, from the beginning or from the snapshot of the fifth."""
    Path(folder).mkdir()
    Path("net.prototxt").write_text(f"""
        layer {{ name: "d" type: "{layer}" top: "data" top: "label" {LAYERS[layer]} }}
        layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
                 inner_product_param {{ num_output: 2 weight_filler {{ type: "gaussian" std: 0.001 }} }} }}
        layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}""")
    Path("solver.prototxt").write_text(f"""
        net: "net.prototxt" base_lr: 0.0001 lr_policy: "fixed" momentum: 0.9 max_iter: 10 snapshot: 5
        snapshot_prefix: "{folder}/s" random_seed: 3""")
    solver = caffe.get_solver("solver.prototxt")
    solver.solve(resume or None)
    found = np.concatenate([blob.data.ravel() for blob in solver.net.params["ip"]])
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_a_resumed_training_ends_in_the_same_bits(layer: str) -> None:
    whole = train(layer, "a")
    resumed = train(layer, "b", "a/s_iter_5.solverstate")
    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(resumed, whole)
    # The place in the data matters: from the same snapshot, but at their beginning, it ends in other bits.
    Path(resume_file.path_beside("a/s_iter_5.solverstate")).unlink()
    assert not np.array_equal(train(layer, "c", "a/s_iter_5.solverstate"), whole)
