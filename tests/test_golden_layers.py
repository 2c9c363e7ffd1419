"""Every layer, forward and backward, against what the original computed."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

import caffe
import golden_vectors as golden
from caffe.proto import caffe_pb2
from golden_vectors import Case, Comparison


@pytest.mark.parametrize("case", golden.cases("layers"), ids=str)
def test_layer(case: Case, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.folder)  # some nets name a file beside them
    meta = case.meta
    net = caffe.Net(case.prototxt.name, getattr(caffe, meta["phase"]))
    _set_params(net, case)
    for _ in range(meta["forwards"]):
        for index, name in enumerate(meta["bottoms"]):
            net.blobs[name].data[...] = case[f"bottom_{index}"]
        net.forward()
    if meta["compare"] == "relation":
        _check_dropout(net, case)
        return
    with Comparison() as compare:
        for index, name in enumerate(meta["tops"]):
            compare(f"top_{index}", net.blobs[name].data, case[f"top_{index}"], **meta["tol"]["forward"])
        for index, blob in enumerate(golden.param_blobs(net)):
            after = f"param_after_{index}"
            wanted = case[after if after in case else f"param_{index}"]
            compare(after, blob.data, wanted, **meta["tol"]["forward"])
    if meta["backward"]:
        _backward(net, case)
        if not golden.deviates("true_gradient_instead", case):
            _check_gradients(net, case)


def _set_params(net: caffe.Net, case: Case) -> None:
    """Shapes must be the original's; values too where they came from fillers that are not random."""
    recorded = case.numbered("param")
    blobs = golden.param_blobs(net)
    assert [blob.data.shape for blob in blobs] == [array.shape for array in recorded]
    with Comparison() as compare:
        for index, (blob, array) in enumerate(zip(blobs, recorded, strict=True)):
            if case.meta["filler_params"]:
                compare(f"filled param_{index}", blob.data, array, rtol=1e-5, atol=1e-6)
            blob.data[...] = array


def _backward(net: caffe.Net, case: Case) -> None:
    net.clear_param_diffs()
    for index, name in enumerate(case.meta["tops"]):
        net.blobs[name].diff[...] = case[f"top_diff_{index}"]
    for _ in range(case.meta["backwards"]):
        net.backward()


def _check_gradients(net: caffe.Net, case: Case) -> None:
    tolerance = case.meta["tol"]["backward"]
    with Comparison() as compare:
        for index, name in enumerate(case.meta["bottoms"]):
            key = f"bottom_diff_{index}"
            if key in case:  # the original left the others unwritten
                compare(key, net.blobs[name].diff, case[key], **tolerance)
        for index, blob in enumerate(golden.param_blobs(net)):
            compare(f"param_diff_{index}", blob.diff, case[f"param_diff_{index}"], **tolerance)


def _check_dropout(net: caffe.Net, case: Case) -> None:
    """A random mask: kept units are scaled by 1/(1 - ratio), and the diff passes where they were kept."""
    parameters = text_format.Parse(case.prototxt.read_text(encoding="utf-8"), caffe_pb2.NetParameter())
    ratio = parameters.layer[-1].dropout_param.dropout_ratio
    top = net.blobs[case.meta["tops"][0]].data.copy()
    kept = top != 0
    # Four standard deviations of the share of dropped units.
    assert abs(np.mean(~kept) - ratio) < 4 * np.sqrt(ratio * (1 - ratio) / kept.size)
    _backward(net, case)
    tolerance = case.meta["tol"]["forward"]
    with Comparison() as compare:
        compare("kept units", top[kept], case["bottom_0"][kept] / (1 - ratio), **tolerance)
        wanted = case["top_diff_0"] * kept / (1 - ratio)
        compare("bottom_diff_0", net.blobs["b0"].diff, wanted, **tolerance)
