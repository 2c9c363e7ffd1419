"""Whole nets: wiring, loading of weights in both formats, every blob and every diff."""

from __future__ import annotations

import pytest

import caffe
import golden_vectors as golden
from golden_vectors import Case, Comparison


@pytest.mark.parametrize("weights", ["weights.caffemodel", "weights.caffemodel.h5"])
@pytest.mark.parametrize("case", golden.cases("nets"), ids=str)
def test_net(case: Case, weights: str, engine: str) -> None:
    meta = case.meta
    phase = getattr(caffe, meta["phase"])
    net = caffe.Net(str(case.prototxt), phase, level=meta["level"], stages=meta["stages"])
    net.copy_from(str(case.folder / weights))
    _check_wiring(net, meta["info"])
    with Comparison() as compare:
        for name, blobs in net.params.items():
            for index, blob in enumerate(blobs):
                # Loaded weights are exact.
                compare(f"loaded {name}[{index}]", blob.data, case[f"param_{name}_{index}"], rtol=0, atol=0)
    for name in meta["info"]["inputs"]:
        net.blobs[name].data[...] = case[f"input_{name}"]
    net.forward()
    _check_blobs(net, case)
    net.clear_param_diffs()
    net.backward()
    _check_diffs(net, case)


def _check_wiring(net: caffe.Net, info: dict) -> None:
    with Comparison() as compare:
        compare.equal("layer names", list(net._layer_names), info["layers"])
        compare.equal("layer types", [layer.type for layer in net.layers], info["types"])
        compare.equal("blob names", list(net.blobs), info["blobs"])
        compare.equal("outputs", list(net.outputs), info["outputs"])
        weights = {name: weight for name, weight in net.blob_loss_weights.items() if weight}
        compare.equal("loss weights", weights, info["loss_weights"])


def _check_blobs(net: caffe.Net, case: Case) -> None:
    with Comparison() as compare:
        for name, blob in net.blobs.items():
            compare(f"blob {name}", blob.data, case[f"blob_{name}"], **case.meta["tol"]["forward"])
        for name, blobs in net.params.items():
            for index, blob in enumerate(blobs):
                after = f"after_{name}_{index}"  # recorded where a forward pass changed the parameter
                wanted = case[after if after in case else f"param_{name}_{index}"]
                compare(after, blob.data, wanted, **case.meta["tol"]["forward"])


def _check_diffs(net: caffe.Net, case: Case) -> None:
    tolerance = case.meta["tol"]["backward"]
    with Comparison() as compare:
        for name, blob in net.blobs.items():
            # An input's diff means something only when the net computes it.
            if name not in case.meta["info"]["inputs"] or case.meta["force_backward"]:
                compare(f"diff {name}", blob.diff, case[f"diff_{name}"], **tolerance)
        for name, blobs in net.params.items():
            for index, blob in enumerate(blobs):
                key = f"{name}_{index}"
                compare(f"param diff {key}", blob.diff, case[f"pdiff_{key}"], **tolerance)
