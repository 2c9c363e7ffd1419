"""Layer: the base of every layer, built in or written by users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .blob import Blob
from .errors import LayerError, ShapeError
from .execution import memory_limit, memory_text
from .proto import caffe_pb2

if TYPE_CHECKING:
    from .execution import ExecutionContext


class BlobVec(list[Blob]):
    """A layer's parameter blobs."""

    def add_blob(self, *shape: int) -> Blob:
        """Append a zeroed blob of this shape (also as one sequence) and return it."""
        dims = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
        self.append(Blob(tuple(dims)))  # type: ignore[arg-type]
        return self[-1]


class Layer:
    """bottom blobs -> top blobs, and the gradients back.

    A subclass defines
        setup(bottom, top)     once: read `self.layer_param`, check it, create `self.blobs`
        reshape(bottom, top)   whenever a bottom's shape has changed: shape the tops
        forward(bottom, top)   compute the tops' data
        backward(top, propagate_down, bottom)
                               compute the diff of each bottom i with propagate_down[i], and add to the
                               diff of each parameter j with self.param_propagate_down[j]
    with bottom and top as sequences of Blob. A layer that has only forward is legal in nets that need no
    gradient through it.

    Built-in layers reach arrays by `blob.cpu_data()`, `mutable_cpu_data()`, `overwrite_cpu_data()` and the
    same for diff; layers of users may use `blob.data` and `blob.diff`. Code must work in any float
    dtype of its blobs, since gradient_check runs it in float64.

    Attributes
        layer_param, name, type, phase (caffe.TRAIN or caffe.TEST), param_str (Python layers)
        blobs                  parameters, learned or not
        param_propagate_down   per parameter: is its gradient wanted?
        loss_weights           per top: its weight in the objective, 0 for none
        run                    the net's ExecutionContext (random numbers, scratch memory, counters)
        in_place_chain         does another layer work in place on this in-place layer's blob, too?
        build_subnet           service of the net: NetParameter -> Net, for layers that hold a net
    """

    type: ClassVar[str] = ""

    # Numbers of bottoms and tops, checked before setup; None where there is no rule.
    exact_num_bottom: ClassVar[int | None] = None
    min_bottom: ClassVar[int | None] = None
    max_bottom: ClassVar[int | None] = None
    exact_num_top: ClassVar[int | None] = None
    min_top: ClassVar[int | None] = None
    max_top: ClassVar[int | None] = None
    equal_num_bottom_top: ClassVar[bool] = False
    # Missing tops are made by the net (losses, whose top nobody needs to name).
    auto_top_blobs: ClassVar[bool] = False
    # Losses: the first top counts with weight 1 unless loss_weight says otherwise.
    is_loss: ClassVar[bool] = False
    # reshape is called before each forward, not only when shapes change (it depends on values).
    reshape_every_pass: ClassVar[bool] = False
    # In-place use (top is bottom) that must be refused where a backward pass will be needed.
    backward_needs_bottom_data: ClassVar[bool] = False
    # backward computes from the top's values: a later layer that works in place on the top spoils it.
    backward_needs_top_data: ClassVar[bool] = False
    # The same for a layer that works in place itself, where only the signs count.
    backward_needs_top_signs: ClassVar[bool] = False
    # A gradient that depends on the signs of its bottom only is the same from its top.
    keeps_signs: ClassVar[bool] = False
    # forward has nothing to do: the tops share the bottoms' memory, or there are none.
    forward_does_nothing: bool = False
    # Written by users: its blobs are seen through `.data`, so views are told apart by direction.
    is_python: ClassVar[bool] = False

    def __init__(self, layer_param: caffe_pb2.LayerParameter):
        self.layer_param = layer_param
        self.name: str = layer_param.name
        self.phase: int = layer_param.phase
        self.blobs = BlobVec()
        self.param_propagate_down: list[bool] = []
        self.loss_weights: list[float] = []
        self.in_place_chain = False
        self.run: ExecutionContext
        self.build_subnet: Any = None

    # -- what a layer defines -----------------------------------------------------------------------

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        raise self.error("this layer defines no reshape(bottom, top), which must give the tops their shapes")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        raise self.error("this layer defines no forward(bottom, top)")

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if any(propagate_down) or any(self.param_propagate_down):
            raise self.error(
                "this layer has no gradient, but the net needs one through it: leave out force_backward, or "
                "set propagate_down: false, or stop learning the parameters before it (lr_mult: 0)"
            )

    def backward_reads(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> Sequence[Blob]:
        """Blobs among these whose data, as forward left it, backward reads, be it by an array that the layer
        has kept. The others may be given up after their last use in forward (`Net.keep_blobs`). The default:
        all.
        """
        return (*bottom, *top)

    def allow_force_backward(self, bottom_index: int) -> bool:
        """May force_backward ask for this bottom's gradient? (Not for labels.)"""
        return True

    def in_place_refusal(self) -> str:
        """Why an in-place use of this layer breaks its own backward pass, or "" when it does not.

        Asked by the net when a top is a bottom and a gradient is needed. The default follows
        `backward_needs_bottom_data`; a layer may refine it by its parameters.
        """
        if self.backward_needs_bottom_data:
            return "its gradient needs the bottom's values, which working in place overwrites"
        return ""

    # -- what a resumed training must know -------------------------------------------------------------

    def save_state(self) -> dict[str, Any]:
        """What the coming passes depend on besides parameters and random counters: a place in the data, a
        carried-over state. Values: NumPy arrays, numbers, text, None, and lists or dicts of these but arrays.

        A snapshot writes it into its resume file; a restored solver hands it to load_state.
        """
        return {}

    @property
    def state_type(self) -> str:
        """The layer type whose state save_state gives: a layer of that type, and of this name, can go on from
        it in another net."""
        return self.type

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what save_state gave (called for a non-empty state only, with `run.seed` restored)."""

    # -- help for layers ----------------------------------------------------------------------------

    def error(self, message: str, kind: type[LayerError] = LayerError) -> LayerError:
        """An exception that names this layer; for `raise self.error("num_output (=0) must be ...")`."""
        return kind(message, layer=self.name, layer_type=self.type)

    def add_parameter(self, shape: Sequence[int], filler: caffe_pb2.FillerParameter | None = None) -> Blob:
        """Append a parameter blob, filled by the filler (zeros without one)."""
        from .fillers import fill

        blob = Blob(shape)
        self.check_memory(blob, f"parameter {len(self.blobs)}")
        self.blobs.append(blob)
        # Zeros are there already, and cost no memory until somebody writes.
        if filler is not None and (filler.type != "constant" or filler.value):
            index = len(self.blobs) - 1
            try:
                fill(blob.overwrite_cpu_data(), filler, self.run.random(f"{self.name}/{index}").generator())
            except LayerError as error:
                raise self.error(f"parameter {index}: {error.message}", type(error)) from None
        return blob

    def check_memory(self, blob: Blob, what: str) -> None:
        """Raise ShapeError for a blob larger than the machine's memory, before more work goes into it."""
        needed, limit = blob.count * blob.dtype.itemsize, memory_limit()
        if needed > limit:
            raise self.error(
                f"{what}: {blob.count} numbers need {memory_text(needed)} of memory; there are "
                f"{memory_text(limit)}",
                ShapeError,
            )

    def refuse_in_place(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """For layers whose tops have other shapes than their bottoms, or share their memory."""
        if any(t is b for t in top for b in bottom):
            raise self.error(
                f"{self.type} Layer does not allow in-place computation. Give the top a name of its own"
            )

    def canonical_axis(self, axis: int, blob: Blob, field: str = "axis") -> int:
        """axis of blob with negatives counted from the end; LayerError names the field when outside."""
        n = blob.num_axes
        if not -n <= axis < n:
            raise self.error(f"{field} (={axis}) must lie in [{-n}, {n}) for a bottom of shape {blob.shape}")
        return axis % n

    def __repr__(self) -> str:
        return f"<caffe.Layer '{self.name}' ({self.type})>"
