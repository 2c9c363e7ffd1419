from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import LayerError
from caffe.gradient_check import check_gradient
from caffe.proto import caffe_pb2
from layer_types import support

TEXT = 'type: "Dropout" dropout_param {{ dropout_ratio: {} }}'
SHAPE = (20, 10, 10)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("ratio", [0.5, 0.1, 0.9])
def test_training_drops_a_share_and_scales_the_rest(ratio, in_place, rng):
    x, dy = rng.uniform(1, 2, SHAPE), rng.uniform(1, 2, SHAPE)
    layer, bottom, top = support.build(TEXT.format(ratio), x, in_place=in_place)
    [y] = support.forward(layer, bottom, top)
    kept = y != 0
    # Four standard deviations of a binomial share.
    assert abs(kept.mean() - (1 - ratio)) < 4 * np.sqrt(ratio * (1 - ratio) / x.size)
    np.testing.assert_allclose(y, x * kept / (1 - ratio), rtol=1e-6)
    np.testing.assert_allclose(
        support.backward(layer, bottom, top, dy)[0], dy * kept / (1 - ratio), rtol=1e-6
    )


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("ratio", "phase"), [(0.7, caffe_pb2.TEST), (0, caffe_pb2.TRAIN)])
def test_nothing_happens_in_test_phase_or_with_ratio_zero(ratio, phase, in_place, rng):
    x, dy = rng.standard_normal(SHAPE), rng.standard_normal(SHAPE)
    layer, bottom, top = support.build(TEXT.format(ratio), x, phase=phase, in_place=in_place)
    np.testing.assert_array_equal(support.forward(layer, bottom, top)[0], x)
    np.testing.assert_array_equal(support.backward(layer, bottom, top, dy)[0], dy)


def test_mask_depends_on_seed_name_and_counters_only():
    def mask(seed=1, name="L", iteration=0, sub=0, shape=SHAPE):
        layer, bottom, top = support.build(f'name: "{name}" ' + TEXT.format(0.5), np.ones(shape), seed=seed)
        layer.run.iteration, layer.run.sub_iteration = iteration, sub
        return support.forward(layer, bottom, top)[0].ravel()

    same = mask()
    np.testing.assert_array_equal(mask(), same)
    np.testing.assert_array_equal(mask(shape=(5, 10, 10)), same[:500])
    for other in (mask(seed=2), mask(name="M"), mask(iteration=1), mask(sub=1)):
        assert not np.array_equal(other, same)


@pytest.mark.parametrize("phase", [caffe_pb2.TRAIN, caffe_pb2.TEST])
def test_gradient(phase, rng):
    check_gradient(TEXT.format(0.4), rng.standard_normal((4, 5, 3)), phase=phase)


def test_default_ratio_is_a_half():
    layer, bottom, top = support.build('type: "Dropout"', np.ones(SHAPE))
    assert set(np.unique(support.forward(layer, bottom, top)[0])) == {0, 2}


@pytest.mark.parametrize("shape", [(0, 3), ()])
def test_empty_and_scalar_bottoms(shape):
    layer, bottom, top = support.build(TEXT.format(0.5), np.ones(shape))
    assert support.forward(layer, bottom, top)[0].shape == shape
    assert support.backward(layer, bottom, top, np.ones(shape))[0].shape == shape


@pytest.mark.parametrize("ratio", [1, -0.1, 1.5, "nan"])
def test_other_ratios_are_refused(ratio):
    with pytest.raises(LayerError, match=r"dropout_ratio .* must lie in \[0, 1\)"):
        support.build(TEXT.format(ratio), np.ones(SHAPE))
