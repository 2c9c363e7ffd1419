"""What RNN and LSTM must both pass, given a naive step."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import caffe
from caffe.blob import Blob
from caffe.errors import LayerError, ShapeError
from caffe.gradient_check import check_gradient
from caffe.layer import Layer
from layer_types import support

STEPS, STREAMS, INPUTS, STATIC, SIZE = 4, 3, 5, 2, 3
CONT = np.array([[0, 1, 1], [1, 1, 0], [1, 0, 1], [1, 1, 1]], float)


class RecurrentTests:
    """Derive, and define type, states, parameters and step."""

    type: str
    states: int
    names: list[str]
    unrolled_output: str

    def step(
        self, p: dict, x: np.ndarray, static: np.ndarray, states: list, cont: float
    ) -> tuple[np.ndarray, list]:
        raise NotImplementedError

    def text(self, fields: str = "") -> str:
        filler = (
            'weight_filler { type: "uniform" min: -1 max: 1 } bias_filler { type: "uniform" min: -1 max: 1 }'
        )
        return f'type: "{self.type}" recurrent_param {{ num_output: {SIZE} {filler} {fields} }}'

    def bottoms(self, rng, static: bool, exposed: bool, cont=CONT) -> list[np.ndarray]:
        x = [rng.standard_normal((STEPS, STREAMS, INPUTS)), np.array(cont)]
        x += [rng.standard_normal((STREAMS, STATIC))] if static else []
        return x + [rng.standard_normal((1, STREAMS, SIZE)) for _ in range(self.states * exposed)]

    def build(
        self, bottoms: list[np.ndarray], exposed: bool, fields: str = "", **options
    ) -> tuple[Layer, list[Blob], list[Blob]]:
        fields += " expose_hidden: true" if exposed else ""
        return support.build(self.text(fields), *bottoms, tops=1 + self.states * exposed, **options)

    def naive(
        self, layer: Layer, bottoms: list[np.ndarray], static: bool, states: list
    ) -> tuple[np.ndarray, list]:
        """Output and final states; states: [(N, D), ...] at the start."""
        names = [n for n in self.names if static or "static" not in n]
        p = dict(zip(names, (blob.data.copy() for blob in layer.blobs), strict=True))
        x, cont = bottoms[:2]
        output = np.empty((*cont.shape, SIZE))
        states = [s.copy() for s in states]
        for n in range(STREAMS):
            own = [s[n] for s in states]
            for t in range(len(x)):
                extra = bottoms[2][n] if static else np.zeros(0)
                output[t, n], own = self.step(p, x[t, n].ravel(), extra, own, cont[t, n])
            for s, value in zip(states, own, strict=True):
                s[n] = value
        return output, states

    @pytest.mark.parametrize("exposed", [False, True])
    @pytest.mark.parametrize("static", [False, True])
    def test_against_one_sequence_after_the_other(self, static, exposed, rng):
        bottoms = self.bottoms(rng, static, exposed)
        layer, bottom, top = self.build(bottoms, exposed)
        start = (
            [b[0] for b in bottoms[-self.states :]] if exposed else [np.zeros((STREAMS, SIZE))] * self.states
        )
        output, states = self.naive(layer, bottoms, static, start)
        y, *final = support.forward(layer, bottom, top)
        np.testing.assert_allclose(y, output)
        for got, want in zip(final, states, strict=False):
            np.testing.assert_allclose(got[0], want)
        assert len(final) == self.states * exposed

    def test_states_carry_over_where_cont_is_1_until_reset(self, rng):
        bottoms = self.bottoms(rng, False, False, np.ones((STEPS, STREAMS)))
        layer, bottom, top = self.build(bottoms, False)
        zeros = [np.zeros((STREAMS, SIZE))] * self.states
        first, states = self.naive(layer, bottoms, False, zeros)
        second, _ = self.naive(layer, bottoms, False, states)
        assert not np.allclose(first, second)
        np.testing.assert_allclose(support.forward(layer, bottom, top)[0], first)
        layer.reshape(bottom, top)
        np.testing.assert_allclose(support.forward(layer, bottom, top)[0], second)
        layer.reset()
        np.testing.assert_allclose(support.forward(layer, bottom, top)[0], first)

    def test_states_survive_other_lengths_but_not_other_batches(self, rng):
        bottoms = self.bottoms(rng, False, False, np.ones((STEPS, STREAMS)))
        layer, bottom, top = self.build(bottoms, False)
        y = support.forward(layer, bottom, top)[0]
        for steps, streams, lives in ((STEPS + 2, STREAMS, True), (STEPS, STREAMS + 1, False)):
            bottom[0].reshape(steps, streams, INPUTS)
            bottom[1].reshape(steps, streams)
            bottom[1].data[...] = 1
            layer.reshape(bottom, top)
            assert any(blob.cpu_data().any() for blob in layer.carry) is lives
            assert support.forward(layer, bottom, top)[0].shape == (steps, streams, SIZE)
        assert y.shape == (STEPS, STREAMS, SIZE)

    @pytest.mark.parametrize("exposed", [False, True])
    @pytest.mark.parametrize("static", [False, True])
    def test_gradient(self, static, exposed, rng):
        fields = "expose_hidden: true" if exposed else ""
        check_gradient(self.text(fields), *self.bottoms(rng, static, exposed), samples=40)

    def test_gradient_of_final_states_alone(self, rng):
        for state in range(self.states):
            text = self.text("expose_hidden: true")
            check_gradient(text, *self.bottoms(rng, True, True), check_top=1 + state, samples=20)

    def test_input_of_several_axes_is_flattened(self, rng):
        x = rng.standard_normal((STEPS, STREAMS, 2, 3))
        layer, bottom, top = self.build([x, CONT], False)
        output, _ = self.naive(layer, [x, CONT], False, [np.zeros((STREAMS, SIZE))] * self.states)
        np.testing.assert_allclose(support.forward(layer, bottom, top)[0], output)
        check_gradient(self.text(), x, CONT, samples=20)

    def test_it_equals_its_unrolled_net(self, rng):
        bottoms = self.bottoms(rng, True, True)
        layer, bottom, top = self.build(bottoms, True, dtype=np.float32)
        y = support.forward(layer, bottom, top)
        diffs = [rng.standard_normal(a.shape) for a in y]
        dx = support.backward(layer, bottom, top, *diffs)

        net = caffe.Net(layer.unrolled_net(), caffe.TRAIN)
        params = [blob for blobs in net.params.values() for blob in blobs]
        owned = [p for i, p in enumerate(params) if not any(p.data_mem is q.data_mem for q in params[:i])]
        assert [p.shape for p in owned] == [b.shape for b in layer.blobs]
        for blob, own in zip(owned, layer.blobs, strict=True):
            blob.data[...] = own.data
        inputs = ["x", "cont", "x_static", *(f"{s}_0" for s in layer.states)]
        outputs = [self.unrolled_output, *(f"{s}_T" for s in layer.states)]
        for name, values in zip(inputs, bottoms, strict=True):
            net.blobs[name].data[...] = values
        net.forward()
        for name, values, diff in zip(outputs, y, diffs, strict=True):
            np.testing.assert_allclose(net.blobs[name].data, values, atol=1e-6)
            net.blobs[name].diff[...] = diff
        net.backward()
        for name, values in zip(inputs, dx, strict=True):
            if name != "cont":
                np.testing.assert_allclose(net.blobs[name].diff, values, atol=1e-5)
        for blob, own in zip(owned, layer.blobs, strict=True):
            np.testing.assert_allclose(blob.diff, own.diff, atol=1e-5)

    def test_frozen_parameters_and_unwanted_diffs_stay(self, rng):
        layer, bottom, top = self.build(self.bottoms(rng, True, True), True)
        layer.param_propagate_down = [False] * len(layer.blobs)
        support.forward(layer, bottom, top)
        for blob in bottom:
            blob.diff[...] = 7
        layer.backward(top, [False] * len(bottom), bottom)
        assert all((b.diff == 7).all() for b in bottom) and not any(b.diff.any() for b in layer.blobs)

    @pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
    def test_no_steps_and_no_sequences(self, shape, rng):
        layer, bottom, top = self.build([np.ones((*shape, INPUTS)), np.ones(shape)], False)
        assert support.forward(layer, bottom, top)[0].shape == (*shape, SIZE)
        support.backward(layer, bottom, top)
        assert not any(b.diff.any() for b in layer.blobs)

    def test_numbers_of_blobs_follow_expose_hidden(self, rng):
        plain, *_ = self.build(self.bottoms(rng, False, False), False)
        exposed, *_ = self.build(self.bottoms(rng, False, True), True)
        assert (plain.min_bottom, plain.max_bottom, plain.exact_num_top) == (2, 3, 1)
        counts = (2 + self.states, 3 + self.states, 1 + self.states)
        assert (exposed.min_bottom, exposed.max_bottom, exposed.exact_num_top) == counts

    def test_fillers_default_to_zero(self, rng):
        text = f'type: "{self.type}" recurrent_param {{ num_output: {SIZE} }}'
        layer, *_ = support.build(text, *self.bottoms(rng, False, False))
        assert not any(b.data.any() for b in layer.blobs)
        text = text.replace("num_output", "weight_filler { value: 2 } bias_filler { value: 3 } num_output")
        layer, *_ = support.build(text, *self.bottoms(rng, False, False))
        assert all((b.data == (2 if len(b.shape) == 2 else 3)).all() for b in layer.blobs)

    def test_debug_info_logs_the_states(self, rng, caplog):
        layer, bottom, top = self.build(self.bottoms(rng, False, False), False, "debug_info: true")
        with caplog.at_level(logging.INFO):
            layer.forward(bottom, top)
        mean = np.abs(layer.history[0][2]).mean()
        assert f"    [Forward] Layer L, step 2, blob h_2 data: {mean:g}" in caplog.messages

    def test_sequence_indicators_have_no_gradient(self, rng):
        layer, bottom, top = self.build(self.bottoms(rng, False, False), False)
        assert not layer.allow_force_backward(1)
        layer.forward(bottom, top)
        with pytest.raises(LayerError, match="Cannot backpropagate to sequence indicators"):
            layer.backward(top, [True, True], bottom)

    @pytest.mark.parametrize(
        ("shapes", "exposed", "words"),
        [
            (((4,), (4,)), False, r"bottom\[0\] must have at least 2 axes"),
            (
                ((4, 3, 5), (4, 2)),
                False,
                r"bottom\[1\] \(sequence indicators cont\) must have the shape \(4, 3\)",
            ),
            (((4, 3, 5), (4, 3, 1)), False, r"bottom\[1\] .* must have the shape \(4, 3\), not \(4, 3, 1\)"),
            (((4, 3, 5), (4, 3), (2, 6)), False, r"bottom\[2\] \(x_static\) must have N = 3"),
            (
                ((4, 3, 5), (4, 3), (3, 3)),
                True,
                r"bottom\[2\] \(h_0\) must have the shape \(1, 3, 3\), not \(3, 3\)",
            ),
        ],
    )
    def test_other_shapes_are_refused(self, shapes, exposed, words):
        arrays = [np.ones(s) for s in shapes]
        arrays += [np.ones((1, 3, SIZE))] * (self.states - 1) * exposed
        with pytest.raises(ShapeError, match=words):
            self.build(arrays, exposed)

    def test_change_of_inputs_and_missing_num_output_are_refused(self, rng):
        layer, bottom, top = self.build(self.bottoms(rng, False, False), False)
        bottom[0].reshape(STEPS, STREAMS, INPUTS + 1)
        with pytest.raises(ShapeError, match=r"bottom\[0\] gives 6 numbers a step, but the weights take 5"):
            layer.reshape(bottom, top)
        with pytest.raises(LayerError, match="num_output must be positive"):
            support.build(f'type: "{self.type}"', *self.bottoms(rng, False, False))
