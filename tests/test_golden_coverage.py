"""Which recorded cases run, and which still wait for a layer."""

from __future__ import annotations

import pytest

import caffe
import golden_vectors as golden


def test_no_recorded_case_is_left_out_unawares() -> None:
    missing = golden.original_layer_types() - frozenset(caffe.layer_type_list())
    assert missing == golden.NOT_YET, "NOT_YET in tests/golden_vectors.py must name exactly what is missing"
    every = [case for section in golden.sections() for case in golden.all_cases(section)]
    left_out = [case for case in every if case.missing]
    if left_out:
        pytest.skip(f"{len(left_out)} of {len(every)} recorded cases wait for: {', '.join(sorted(missing))}")
