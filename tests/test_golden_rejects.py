"""Nets that the original refuses are refused here, with an exception of ours and in known words."""

from __future__ import annotations

import json

import pytest

import caffe
import golden_vectors as golden
from caffe.errors import CaffeError
from golden_vectors import Case

RECORDED = json.loads((golden.GOLDEN / "rejects" / "rejects.json").read_text(encoding="utf-8"))

# What people search for when it meets them.
KEPT_WORDS = {
    "unknown_type": "Unknown layer type: Nonsense (known types: ",
    "unknown_bottom": "Unknown bottom blob 'zzz' (layer 'r', bottom index 0)",
    "duplicate_top": "Top blob 't0' produced by multiple sources",
    "share_strict": "Cannot share param 'w' owned by layer 'a' with layer 'b'; shape mismatch",
    "share_lr_mismatch": "Shared param 'w' has mismatched lr_mult",
    "too_many_params": "Too many params specified for layer L",
    "loss_weight_count": "loss_weight must be unspecified or specified once per top blob",
    "eltwise_coeff_count": "Eltwise Layer takes one coefficient per bottom blob",
    "softmaxloss_label_count": "Number of labels must match number of predictions",
    "conv_both_kernels": "Either kernel_size or kernel_h/w should be specified; not both",
    "concat_shapes": "All inputs must have the same shape, except at concat_axis",
    "lrn_even": "LRN only supports odd values for local_size",
    "reshape_count": "output count must match input count",
    "accuracy_topk": "top_k must be less than or equal to the number of classes",
}


def run(case: Case) -> None:
    net = caffe.Net(case.prototxt.name, caffe.TRAIN)
    net.forward()
    net.backward()


@pytest.mark.parametrize("case", golden.cases("rejects"), ids=str)
def test_reject(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.folder)
    original_accepts = RECORDED[str(case)]["status"] == "accepted"
    if original_accepts and not golden.deviates("may_be_rejected", case):
        run(case)
        return
    if original_accepts or golden.deviates("may_be_accepted", case):
        try:
            run(case)
        except CaffeError as error:
            assert str(error)
        return
    with pytest.raises(CaffeError) as raised:
        run(case)
    assert KEPT_WORDS.get(str(case), "") in str(raised.value)
    assert str(raised.value)
