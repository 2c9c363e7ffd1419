"""The digits model: found by its path from any folder, trained, and used as a classifier."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import caffe
from caffe.resources import data_path

MODEL = data_path("models", "digits")


def test_trains_from_an_empty_folder_and_classifies(tmp_path: Path) -> None:
    solver = caffe.get_solver(str(MODEL / "solver.prototxt"))
    solver.step(120)
    test_net = solver.test_nets[0]
    right = 0.0
    for _ in range(solver.param.test_iter[0]):
        test_net.forward()
        right += float(test_net.blobs["accuracy"].data) * 99
    assert round(right) > 0.9 * 297

    state = solver.snapshot()
    weights = str(state).replace(".solverstate", ".caffemodel")
    net = caffe.Net(str(MODEL / "deploy.prototxt"), weights, caffe.TEST)
    net.blobs["data"].reshape(99, 1, 8, 8)
    prob = net.forward(data=test_net.blobs["data"].data)["prob"]
    np.testing.assert_allclose(prob.sum(axis=1), 1, rtol=1e-5)
    # The test net's last batch stands in its blobs.
    hits = (prob.argmax(axis=1) == test_net.blobs["label"].data).mean()
    assert abs(hits - float(test_net.blobs["accuracy"].data)) < 1e-6
    # The snapshot, and nothing of the data, lies in the working directory.
    assert Path(weights).is_relative_to(".") and (tmp_path / weights).is_file()
    assert all("digits_cnn" in p.name for p in tmp_path.iterdir()), list(tmp_path.iterdir())


def test_the_three_definitions_agree() -> None:
    trained = caffe.Net(str(MODEL / "train_test.prototxt"), caffe.TEST)
    deployed = caffe.Net(str(MODEL / "deploy.prototxt"), caffe.TEST)
    shapes = [
        {name: [b.shape for b in blobs] for name, blobs in n.params.items()} for n in (trained, deployed)
    ]
    assert shapes[0] == shapes[1]
