"""check_gradient passes what is right, and finds what is wrong: factor, element, accumulation, writing."""

from __future__ import annotations

import numpy as np
import pytest

from caffe.errors import GradientError, LayerError, ParseError
from caffe.gradient_check import check_gradient
from caffe.layer import Layer


class Affine(Layer):
    """top = a · bottom² + b, with a wrong place for each test to choose."""

    fault = ""

    def setup(self, bottom, top):
        self.blobs.add_blob(1).data[...] = 1.5
        self.blobs.add_blob(*bottom[0].data.shape)

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = self.blobs[0].data * bottom[0].data ** 2 + self.blobs[1].data

    def backward(self, top, propagate_down, bottom):
        dy, x, a = top[0].diff, bottom[0].data, self.blobs[0].data
        if self.param_propagate_down[0]:
            self.blobs[0].diff[...] += (dy * x**2).sum()
        if self.param_propagate_down[1]:
            self.blobs[1].diff[...] = dy + (0 if self.fault == "overwrites parameter" else self.blobs[1].diff)
        if propagate_down[0]:
            gradient = 2 * a * x * dy
            if self.fault == "one element":
                gradient[1, 2] += 0.01
            elif self.fault == "factor":
                gradient *= 1.001
            elif self.fault == "not written":
                bottom[0].diff[0] = gradient[0]
                return
            elif self.fault == "accumulates":
                gradient += bottom[0].diff
            bottom[0].diff[...] = gradient


X = np.random.default_rng(3).standard_normal((3, 4))


def with_fault(name):
    return type("Affine", (Affine,), {"fault": name})


def test_right_gradient_passes_and_reports_a_small_error():
    assert check_gradient(Affine, X) < 1e-6


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("one element", r"bottom\[0\]\[1, 2\].*1 of 12 elements"),
        ("factor", r"bottom\[0\].*of 12 elements"),
        ("not written", r"bottom\[0\]\[[12], \d\].*must be written"),
        ("accumulates", r"bottom\[0\].*must be written"),
        ("overwrites parameter", r"blobs\[1\]"),
    ],
)
def test_wrong_gradient_is_found_and_named(fault, words):
    with pytest.raises(GradientError, match=f"layer 'Affine'.*{words}"):
        check_gradient(with_fault(fault), X)


def test_a_fault_outside_what_is_checked_passes():
    check_gradient(with_fault("overwrites parameter"), X, check_param=0)
    check_gradient(with_fault("factor"), X, check_bottom=())
    check_gradient(with_fault("factor"), X, threshold=0.01)


class Abs(Affine):
    def setup(self, bottom, top):
        pass

    def forward(self, bottom, top):
        top[0].data[...] = np.abs(bottom[0].data)

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = np.sign(bottom[0].data) * top[0].diff


def test_kinks_are_left_out_when_declared():
    x = np.array([-1.0, 1e-5, 2.0])
    with pytest.raises(GradientError, match=r"bottom\[0\]\[1\]"):
        check_gradient(Abs, x)
    check_gradient(Abs, x, kinks=[0])
    with pytest.raises(ValueError, match="kink_range"):
        check_gradient(Abs, x, kinks=[0], kink_range=1e-9)
    with pytest.raises(GradientError, match="no element was checked"):
        check_gradient(Abs, x, kinks=[0], kink_range=10)


class SinglePrecision(Abs):
    """As the pycaffe examples do it: an array of float32 inside."""

    factor = 2

    def reshape(self, bottom, top):
        top[0].reshape(1)
        self.difference = np.zeros_like(bottom[0].data, dtype=np.float32)

    def forward(self, bottom, top):
        self.difference[...] = bottom[0].data - bottom[1].data
        top[0].data[...] = np.sum(self.difference**2) / bottom[0].data.shape[0] / 2

    def backward(self, top, propagate_down, bottom):
        for i, sign in ((0, 1), (1, -1)):
            if propagate_down[i]:
                bottom[i].diff[...] = (
                    top[0].diff * sign * self.factor / 2 * self.difference / len(self.difference)
                )


def test_single_precision_inside_widens_step_and_threshold():
    y = np.random.default_rng(4).standard_normal((3, 4))
    assert check_gradient(SinglePrecision, X, y) < 1e-2
    with pytest.raises(GradientError, match="step 0.01"):
        check_gradient(type("Wrong", (SinglePrecision,), {"factor": 2.2}), X, y)


class Noisy(Abs):
    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data * np.random.rand(*bottom[0].data.shape)


class Counting(Abs):
    """State that only reset() takes back."""

    passes = 0

    def reset(self):
        self.passes = 0

    def forward(self, bottom, top):
        self.passes += 1
        top[0].data[...] = bottom[0].data * self.passes

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = top[0].diff


def test_forward_must_repeat_itself():
    with pytest.raises(GradientError, match="two forward passes"):
        check_gradient(Noisy, X)
    check_gradient(Counting, X)


class MovingAverage(Abs):
    """A parameter that forward changes and that shows in the top."""

    def setup(self, bottom, top):
        self.blobs.add_blob(1)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data * (1 + self.blobs[0].data)
        self.blobs[0].data[...] += 0.5

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = top[0].diff * (1 + self.blobs[0].data - 0.5)


def test_parameters_that_forward_changes_are_put_back():
    check_gradient(MovingAverage, X, check_param=())


def test_prototxt_that_is_no_layer_is_refused():
    with pytest.raises(ParseError, match="no_such_field"):
        check_gradient('type: "Python" no_such_field: 1', X)
    with pytest.raises(LayerError, match="one layer, not 2"):
        check_gradient('layer { type: "Python" } layer { type: "Python" }', X)
