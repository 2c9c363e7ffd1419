"""What recurrent layers have in common: time, sequence indicators, states, and the unrolled net."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from google.protobuf import text_format

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..proto import caffe_pb2

log = logging.getLogger("caffe.net")


class RecurrentLayer(Layer):
    """A layer that runs over T time steps of N sequences at once, one matrix product per step.

    At step t the gates get W_x · x_t + b (+ W_static · x_static) + W_h · (cont_t · h_{t-1}). A subclass
    turns them into the new states (`_step`), and the hidden states into the output (`_output`).

    bottom[0]: (T, N, …) x, flattened to I numbers a step. bottom[1]: (T, N) cont: 0 where a sequence
    begins, else 1. Then, if given, (N, …) x_static, S numbers that each step sees. With expose_hidden,
    last, the initial states, each (1, N, D).
    top[0]: (T, N, D). With expose_hidden, the final states, each (1, N, D).
    Without expose_hidden the states stay in the layer from one forward pass to the next, and count where
    cont is 1 at t = 0; they are 0 at first, after `reset()`, and when N changes.
    recurrent_param: num_output D (required), weight_filler, bias_filler (default constant 0),
        expose_hidden (default false), debug_info (default false: log the mean of |states| at each step).
    Gradient: through all T steps, of x, x_static, the parameters and the initial states, the final
    states' included (the original leaves those two out); cont has none, nor has an earlier pass.
    """

    # State names, the hidden state first; gate inputs per output; names of the common parameters.
    states: ClassVar[tuple[str, ...]]
    gates_per_output: ClassVar[int]
    input_weight: ClassVar[str]
    input_bias: ClassVar[str]
    hidden_weight: ClassVar[str]

    def __init__(self, layer_param: caffe_pb2.LayerParameter):
        super().__init__(layer_param)
        param = layer_param.recurrent_param
        self.num_output: int = param.num_output
        self.exposed = len(self.states) if param.expose_hidden else 0
        self.min_bottom = 2 + self.exposed  # type: ignore[misc]
        self.max_bottom = 3 + self.exposed  # type: ignore[misc]
        self.exact_num_top = 1 + self.exposed  # type: ignore[misc]

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 1

    # -- set-up -------------------------------------------------------------------------------------

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        param = self.layer_param.recurrent_param
        if param.num_output == 0:
            raise self.error("recurrent_param.num_output must be positive")
        self.static = len(bottom) - self.exposed == 3
        self._check_shapes(bottom)
        gates = self.gates_per_output * self.num_output
        self.add_parameter((gates, math.prod(bottom[0].shape[2:])), param.weight_filler)
        self.add_parameter((gates,), param.bias_filler)
        if self.static:
            self.add_parameter((gates, math.prod(bottom[2].shape[1:])), param.weight_filler)
        self.add_parameter((gates, self.num_output), param.weight_filler)
        self.hidden = len(self.blobs) - 1
        self.history: list[np.ndarray] = []
        # What is left of the states for the next pass, each (N, D): blobs, so that an engine may keep it.
        self.carry: list[Blob] = []

    def _check_shapes(self, bottom: Sequence[Blob]) -> None:
        x = bottom[0].shape
        if len(x) < 2:
            raise self.error(
                f"bottom[0] must have at least 2 axes -- (#timesteps, #streams, ...), its shape is {x}",
                ShapeError,
            )
        state = (1, x[1], self.num_output)
        wanted = [(1, "sequence indicators cont", x[:2])]
        wanted += [
            (len(bottom) - self.exposed + i, f"{s}_0", state)
            for i, s in enumerate(self.states[: self.exposed])
        ]
        for i, what, shape in wanted:
            if bottom[i].shape != shape:
                raise self.error(
                    f"bottom[{i}] ({what}) must have the shape {shape}, not {bottom[i].shape}: "
                    f"bottom[0] has {x}",
                    ShapeError,
                )
        if self.static and bottom[2].shape[:1] != x[1:2]:
            raise self.error(
                f"bottom[2] (x_static) must have N = {x[1]} as its first dimension, but its shape is "
                f"{bottom[2].shape}",
                ShapeError,
            )

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._check_shapes(bottom)
        steps, streams = bottom[0].shape[:2]
        for i, what in ((0, "bottom[0]"), (2, "bottom[2] (x_static)")):
            if i and not self.static:
                break
            have, want = math.prod(bottom[i].shape[2 if i == 0 else 1 :]), self.blobs[i].shape[1]
            if have != want:
                raise self.error(
                    f"{what} gives {have} numbers a step, but the weights take {want}", ShapeError
                )
        top[0].reshape(steps, streams, self.num_output)
        for blob in top[1:]:
            blob.reshape(1, streams, self.num_output)
        size, dtype = (streams, self.num_output), bottom[0].dtype
        if self.history and self.history[0].shape == (steps + 1, *size):
            return
        self.history = [np.zeros((steps + 1, *size), dtype) for _ in self.states]
        if not self.exposed and (not self.carry or self.carry[0].shape != size):
            self.carry = [Blob(size, dtype) for _ in self.states]
        self.carried = np.empty((steps, *size), dtype)  # cont_t · h_{t-1}
        self.gates = np.empty((steps, streams, self.gates_per_output * self.num_output), dtype)
        self._allocate(steps, streams, dtype)

    def reset(self) -> None:
        """Forget the states: the next pass starts from zeros."""
        for blob in self.carry:
            blob.data_mem.clear()

    def save_state(self) -> dict[str, Any]:
        return {name: blob.cpu_data() for name, blob in zip(self.states, self.carry, strict=False)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        for name, blob in zip(self.states, self.carry, strict=True):
            blob.overwrite_cpu_data()[...] = state[name]

    # -- what a subclass defines --------------------------------------------------------------------

    def _allocate(self, steps: int, streams: int, dtype: np.dtype) -> None:
        """Memory of its own for these shapes."""

    def _step(self, t: int, cont: np.ndarray) -> None:
        """From self.gates[t] and self.history[…][t], write self.history[…][t + 1]. cont: (N,)"""
        raise NotImplementedError

    def _step_backward(self, t: int, diffs: list[np.ndarray], gates_diff: np.ndarray) -> None:
        """From the diffs of the states after step t, write gates_diff (N, gates) and replace the diffs of
        the states other than the hidden one by those before step t."""
        raise NotImplementedError

    def _output(self, hidden: np.ndarray, out: np.ndarray) -> None:
        """out (T, N, D) from the hidden states (T, N, D)."""
        raise NotImplementedError

    def _output_backward(self, hidden: np.ndarray, diff: np.ndarray) -> np.ndarray:
        """Diff of the hidden states from that of the output; diffs of the output's own parameters."""
        raise NotImplementedError

    def _unroll_step(self, net: Unrolled, t: int, gate_inputs: str) -> None:
        """Layers of step t (1, 2, …), from the blobs named gate_inputs and those of step t - 1."""
        raise NotImplementedError

    # -- forward and backward -----------------------------------------------------------------------

    def _inputs(self, bottom: Sequence[Blob], i: int) -> np.ndarray:
        """bottom[0] as (T · N, I), or bottom[2] as (N, S)."""
        numbers = self.blobs[i].shape[1]
        return bottom[i].cpu_data().reshape(math.prod(bottom[i].shape[: 2 if i == 0 else 1]), numbers)

    @staticmethod
    def _rows(steps: np.ndarray) -> np.ndarray:
        """(T, N, any) as (T · N, any)"""
        return steps.reshape(steps.shape[0] * steps.shape[1], steps.shape[2])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        steps = bottom[0].shape[0]
        cont, weight_hidden = bottom[1].cpu_data(), self.blobs[self.hidden].cpu_data()
        np.matmul(self._inputs(bottom, 0), self.blobs[0].cpu_data().T, out=self._rows(self.gates))
        self.gates += self.blobs[1].cpu_data()
        if self.static:
            self.gates += self._inputs(bottom, 2) @ self.blobs[2].cpu_data().T
        self.begin(bottom)
        hidden = self.history[0]
        for t in range(steps):
            np.multiply(hidden[t], cont[t, :, None], out=self.carried[t])
            self.gates[t] += self.carried[t] @ weight_hidden.T
            self._step(t, cont[t])
        self._output(hidden[1:], top[0].overwrite_cpu_data())
        self.end(top)

    def begin(self, bottom: Sequence[Blob]) -> None:
        """Fetch the states before the first step."""
        before = bottom[len(bottom) - self.exposed :] if self.exposed else self.carry
        for states, blob in zip(self.history, before, strict=True):
            states[0] = blob.cpu_data().reshape(states[0].shape)

    def end(self, top: Sequence[Blob]) -> None:
        """Hand on the states after the last step."""
        for states, blob in zip(self.history, top[1:] if self.exposed else self.carry, strict=True):
            blob.overwrite_cpu_data()[...] = states[-1]
        if self.layer_param.recurrent_param.debug_info:
            self._log_states()

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        self.refuse_indicator_gradient(propagate_down)
        steps = bottom[0].shape[0]
        cont, weight_hidden = bottom[1].cpu_data(), self.blobs[self.hidden].cpu_data()
        output_diff = self._output_backward(self.history[0][1:], top[0].cpu_diff())
        diffs = self.final_diffs(top)
        gates_diff = self.run.scratch("gates", self.gates.shape, self.gates.dtype)
        for t in reversed(range(steps)):
            diffs[0] += output_diff[t]
            self._step_backward(t, diffs, gates_diff[t])
            np.matmul(gates_diff[t], weight_hidden, out=diffs[0])
            diffs[0] *= cont[t, :, None]
        self._parameter_diffs(bottom, gates_diff)
        if propagate_down[0]:
            dx = self._rows(gates_diff) @ self.blobs[0].cpu_data()
            bottom[0].overwrite_cpu_diff()[...] = dx.reshape(bottom[0].shape)
        if self.static and propagate_down[2]:
            dx = gates_diff.sum(axis=0) @ self.blobs[2].cpu_data()
            bottom[2].overwrite_cpu_diff()[...] = dx.reshape(bottom[2].shape)
        self.initial_diffs(diffs, propagate_down, bottom)

    def initial_diffs(
        self, diffs: Sequence[np.ndarray], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        """Hand on the states' diffs before the first step."""
        for i in range(self.exposed):
            index = len(bottom) - self.exposed + i
            if propagate_down[index]:
                bottom[index].overwrite_cpu_diff()[0] = diffs[i]

    def refuse_indicator_gradient(self, propagate_down: Sequence[bool]) -> None:
        if propagate_down[1]:
            raise self.error("Cannot backpropagate to sequence indicators (bottom[1])")

    def final_diffs(self, top: Sequence[Blob]) -> list[np.ndarray]:
        """The states' diffs after the last step, to be changed."""
        if self.exposed:
            return [blob.cpu_diff()[0].copy() for blob in top[1:]]
        return [np.zeros_like(states[0]) for states in self.history]

    def _parameter_diffs(self, bottom: Sequence[Blob], gates_diff: np.ndarray) -> None:
        rows = self._rows(gates_diff)
        sources = [(0, rows, self._inputs(bottom, 0)), (self.hidden, rows, self._rows(self.carried))]
        if self.static:
            sources.append((2, gates_diff.sum(axis=0), self._inputs(bottom, 2)))
        for j, diff, source in sources:
            if self.param_propagate_down[j]:
                total = self.blobs[j].mutable_cpu_diff()
                total += diff.T @ source
        if self.param_propagate_down[1]:
            total = self.blobs[1].mutable_cpu_diff()
            total += rows.sum(axis=0)

    def _log_states(self) -> None:
        for t in range(1, len(self.history[0])):
            for name, states in zip(self.states, self.history, strict=True):
                mean = np.abs(states[t]).mean() if states[t].size else 0.0
                log.info("    [Forward] Layer %s, step %d, blob %s_%d data: %g", self.name, t, name, t, mean)

    # -- for inspection -------------------------------------------------------------------------------

    def unrolled_net(self) -> caffe_pb2.NetParameter:
        """The same computation as a net without recurrence, one set of layers a step, with the blob and
        parameter names of the original's unrolled net. It is not run: build it with
        caffe.Net(layer.unrolled_net(), phase), give its parameters this layer's values, and look at any
        blob in between (h_3, gate_input_2, …)."""
        net = Unrolled(self)
        steps, streams = self.carried.shape[:2]
        inputs = f"{self.input_weight}_x"
        for name, shape in (
            ("x", (steps, streams, self.blobs[0].shape[1])),
            ("cont", (steps, streams)),
            *([("x_static", (streams, self.blobs[2].shape[1]))] if self.static else []),
            *[(f"{state}_0", (1, streams, self.num_output)) for state in self.states],
        ):
            dims = " ".join(f"dim: {d}" for d in shape)
            net.add("Input", f"{name}_input", "", name, f"input_param {{ shape {{ {dims} }} }}")
        net.product(
            "x_transform", "x", inputs, (self.input_weight, self.input_bias), 2, self.blobs[0].shape[0]
        )
        common = ""
        if self.static:
            common = f"{inputs}_static"
            weight = (f"{self.input_weight}_static",)
            net.product(common, "x_static", f"{common}_preshape", weight, 1, self.blobs[2].shape[0])
            shape = f"reshape_param {{ shape {{ dim: 1 dim: -1 dim: {self.blobs[2].shape[0]} }} }}"
            net.add("Reshape", f"{common}_reshape", f"{common}_preshape", common, shape)
        each = range(1, steps + 1)
        for name, source in (("cont_slice", "cont"), (f"{inputs}_slice", inputs)):
            net.add("Slice", name, source, " ".join(f"{source}_{t}" for t in each), "slice_param { axis: 0 }")
        for t in each:
            conted = f"h_conted_{t - 1}"
            net.add("Scale", conted, f"h_{t - 1} cont_{t}", conted, "scale_param { axis: 0 }")
            recurrent = f"{self.hidden_weight}_h_{t - 1}"
            net.product(f"transform_{t}", conted, recurrent, (self.hidden_weight,), 2, self.gates.shape[2])
            self._unroll_step(net, t, f"{recurrent} {inputs}_{t} {common}")
        for state in self.states:
            net.add("Split", f"{state}_T_copy", f"{state}_{steps}", f"{state}_T")
        return net.param


class Unrolled:
    """A NetParameter in the making."""

    def __init__(self, layer: RecurrentLayer):
        self.param = caffe_pb2.NetParameter(name=f"{layer.name}_unrolled", force_backward=True)
        self.layer = layer

    def add(
        self, type: str, name: str, bottoms: str, tops: str, fields: str = ""
    ) -> caffe_pb2.LayerParameter:
        """bottoms and tops: names with blanks between them. fields: the rest, as prototxt."""
        param = self.param.layer.add(type=type, bottom=bottoms.split(), top=tops.split())
        param.name = f"{self.layer.name}_{name}"
        return text_format.Merge(fields, param)

    def product(
        self, name: str, bottom: str, top: str, params: tuple[str, ...], axis: int, num_output: int
    ) -> None:
        """An inner product with parameters shared by name: a weight and, if named, a bias."""
        fields = [f'param {{ name: "{p}" }}' for p in params]
        bias_term = "true" if len(params) == 2 else "false"
        fields.append(
            f"inner_product_param {{ num_output: {num_output} axis: {axis} bias_term: {bias_term} }}"
        )
        param = self.add("InnerProduct", name, bottom, top, " ".join(fields)).inner_product_param
        fillers = self.layer.layer_param.recurrent_param
        param.weight_filler.CopyFrom(fillers.weight_filler)
        if len(params) == 2:
            param.bias_filler.CopyFrom(fillers.bias_filler)
