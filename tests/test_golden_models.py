"""Weights of every age (V0, V1, current; legacy dimensions; doubles) load as the original loads them."""

from __future__ import annotations

import pytest

import caffe
import golden_vectors as golden
from golden_vectors import Case, Comparison


@pytest.mark.parametrize("ending", [".caffemodel", ".upgraded.caffemodel"])
@pytest.mark.parametrize("case", golden.cases("models"), ids=str)
def test_model(case: Case, ending: str) -> None:
    net = caffe.Net(str(case.prototxt), caffe.TEST)
    net.copy_from(str(case.path.with_suffix(ending)))
    with Comparison() as compare:
        for name, blobs in net.params.items():
            for index, blob in enumerate(blobs):
                compare(f"{name}[{index}]", blob.data, case[f"{name}_{index}"], rtol=1e-6, atol=1e-7)
        net.blobs["data"].data[...] = case["input"]
        net.forward()
        output = net.blobs[case.meta["outputs"][0]].data
        compare("output", output, case["output"], rtol=1e-4, atol=1e-5)
