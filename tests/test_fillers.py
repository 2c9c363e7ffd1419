"""Fillers against the original's recorded moments and exact values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from caffe.errors import FillerError
from caffe.fillers import fill, filler_types, register_filler, unregister_filler
from caffe.proto import caffe_pb2

GOLDEN = json.loads((Path(__file__).parent / "golden" / "fillers.json").read_text())


def filled(text: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    array = np.full(shape, np.nan, np.float32)
    fill(array, text_format.Parse(text, caffe_pb2.FillerParameter()), np.random.default_rng(seed))
    return array


@pytest.mark.parametrize("case", sorted(GOLDEN["exact"]))
def test_exact_values_of_the_original(case: str):
    record = GOLDEN["exact"][case]
    got = filled(record["filler"], tuple(record["shape"]))
    np.testing.assert_allclose(got, np.array(record["values"]).reshape(record["shape"]), atol=1e-6)


@pytest.mark.parametrize("case", sorted(GOLDEN["random"]))
def test_moments_of_the_original(case: str):
    record = GOLDEN["random"][case]
    got = filled(record["filler"], tuple(GOLDEN["shape"])).astype(np.float64)
    expected, tolerance = record["expected"], record["tol"]
    assert abs(got.mean() - expected["mean"]) <= tolerance["mean_abs"]
    assert got.std() == pytest.approx(expected["std"], rel=tolerance["std_rel"])
    if expected["dist"] == "uniform":
        width = expected["max"] - expected["min"]
        assert expected["min"] - 1e-6 <= got.min() < expected["min"] + 0.01 * width
        assert expected["max"] - 0.01 * width < got.max() <= expected["max"] + 1e-6
    if "nonzero_fraction" in expected:
        assert (got != 0).mean() == pytest.approx(expected["nonzero_fraction"], abs=0.01)
    if "row_sum" in expected:
        np.testing.assert_allclose(got.sum(axis=(1, 2, 3)), expected["row_sum"], rtol=1e-5)
        assert got.min() >= 0


@pytest.mark.parametrize(
    ("norm", "n"), [("FAN_IN", 3 * 2 * 5 * 4), ("FAN_OUT", 200 * 2 * 5 * 4), ("AVERAGE", (3 + 200) * 20)]
)
def test_fan_of_5d_weights(norm: str, n: float):
    shape = (200, 3, 2, 5, 4)
    std = filled(f'type: "msra" variance_norm: {norm}', shape).std()
    assert std == pytest.approx(np.sqrt(2 / n), rel=0.02)
    largest = np.abs(filled(f'type: "xavier" variance_norm: {norm}', shape)).max()
    assert largest == pytest.approx(np.sqrt(3 / n), rel=0.01)


@pytest.mark.parametrize("type", filler_types())
@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (0, 3), (2, 1, 3), (2, 3, 2, 2), (2, 2, 3, 3, 3)])
def test_any_number_of_axes(type: str, shape: tuple[int, ...]):
    if type == "bilinear" and len(shape) < 3:
        with pytest.raises(FillerError, match="Blob must be 4 dim"):
            filled('type: "bilinear"', shape)
    else:
        assert np.isfinite(filled(f'type: "{type}"', shape)).all()


def test_trilinear_is_the_product_of_its_axes():
    line = filled('type: "bilinear"', (1, 1, 4))[0, 0]
    np.testing.assert_allclose(line, [0.25, 0.75, 0.75, 0.25])
    cube = filled('type: "bilinear"', (1, 2, 4, 4, 4))
    np.testing.assert_allclose(cube[0, 1], np.einsum("i,j,k->ijk", line, line, line))


def test_the_generator_decides():
    same = [filled('type: "gaussian"', (3, 4), seed) for seed in (1, 1, 2)]
    assert np.array_equal(same[0], same[1])
    assert not np.array_equal(same[0], same[2])


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ('type: "xavir"', (2, 3), "Unknown filler name: xavir; did you mean 'xavier'"),
        ('type: ""', (2, 3), "known types: bilinear, constant, gaussian"),
        ('type: "uniform" min: 2 max: 1', (2, 3), r"min \(=2\) must be at most max \(=1\)"),
        ('type: "gaussian" std: 0', (2, 3), r"std \(=0\) must be above 0"),
        ('type: "gaussian" sparse: -2', (2, 3), r"sparse \(=-2\) must be at least 0"),
        ('type: "gaussian" sparse: 3', (2, 3), r"sparse \(=3\) must be at most shape\[0\] \(=2\)"),
        ('type: "bilinear"', (2, 3), "Blob must be 4 dim"),
        ('type: "bilinear"', (2, 3, 4, 5), "Filter must be square"),
    ],
)
def test_refusals(text: str, shape: tuple[int, ...], message: str):
    with pytest.raises(FillerError, match=message):
        filled(text, shape)


def test_own_filler():
    @register_filler("identity")
    def identity(array, param, generator):
        array[...] = param.value * np.eye(*array.shape)

    try:
        np.testing.assert_array_equal(filled('type: "identity" value: 2', (2, 3)), 2 * np.eye(2, 3))
        with pytest.raises(FillerError, match="registered already"):
            register_filler("identity")(identity)
    finally:
        unregister_filler("identity")
    assert "identity" not in filler_types()
