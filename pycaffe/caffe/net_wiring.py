"""From a NetParameter to connected layers: blobs, parameters, and who needs a gradient.

What `Wiring` holds is everything that the net's definition decides once; net.py runs it. The input
is a net that is filtered for its phase and has its splits inserted (net_insertion).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import layer_types as layer_types  # registers the built-in types
from .blob import Blob
from .errors import LayerError, NetError, ShapeError, closest
from .execution import ExecutionContext, memory_limit, memory_text
from .layer import Layer
from .layer_registry import create_layer
from .net_insertion import duplicate_top_error
from .net_source import NetSource
from .proto import caffe_pb2

log = logging.getLogger("caffe.net")

_DEFAULT_SPEC = caffe_pb2.ParamSpec()


@dataclass
class LearnableParam:
    """A parameter blob that has an owner, with its multipliers. Sharers refer to the owner's."""

    blob: Blob
    layer_index: int
    param_index: int
    name: str
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    has_lr_mult: bool = False
    has_decay_mult: bool = False
    users: list[int] = field(default_factory=list)  # indices of the layers that use it


class Wiring:
    """The connected net.

    layers, layer_names; blobs, blob_names; bottom_ids[i], top_ids[i]: indices into blobs for layer i;
    bottom_need_backward[i][j], layer_need_backward[i]; inputs, outputs: blob names;
    learnable: the parameters that have owners, in order; blob_loss_weights by blob index.
    """

    def __init__(
        self,
        param: caffe_pb2.NetParameter,
        run: ExecutionContext,
        build_subnet: Callable[[caffe_pb2.NetParameter], Any],
        source: NetSource,
    ):
        self.layers: list[Layer] = []
        self.layer_names: list[str] = []
        self.blobs: list[Blob] = []
        self.blob_names: list[str] = []
        self.blob_index: dict[str, int] = {}
        self.blob_loss_weights: list[float] = []
        self.bottom_ids: list[list[int]] = []
        self.top_ids: list[list[int]] = []
        self.bottom_need_backward: list[list[bool]] = []
        self.layer_need_backward: list[bool] = []
        self.learnable: list[LearnableParam] = []
        self.learnable_ids: list[list[int]] = []  # per layer, per parameter
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.memory_used = 0
        self._parameter_memory = 0
        self._run, self._build_subnet, self._source = run, build_subnet, source
        self._blob_need_backward: list[bool] = []
        self._producer: dict[str, str] = {}
        self._available: dict[str, None] = {}
        self._owner_of: dict[str, int] = {}

        phase = param.state.phase
        for layer_param in param.layer:
            try:
                self._add_layer(layer_param, phase)
            except LayerError as error:
                error.layer = error.layer or layer_param.name
                error.layer_type = error.layer_type or layer_param.type
                error.place = error.place or source.locate(layer_param.name)
                raise
            except NetError as error:
                raise self._placed(error, layer_param.name) from None
        self._contributions()
        if param.force_backward:
            self._force_backward()
        self._tell_layers()
        self._refuse_in_place()
        self._warn_of_spoiled_gradients()
        self.outputs = sorted(self._available)
        for name in self.outputs:
            log.info("This network produces output %s", name)

    # -- one layer --------------------------------------------------------------------------------

    def _add_layer(self, layer_param: caffe_pb2.LayerParameter, phase: int) -> None:
        if not layer_param.HasField("phase"):
            layer_param.phase = phase  # type: ignore[assignment]
        count = len(layer_param.propagate_down)
        if count and count != len(layer_param.bottom):
            raise NetError(
                f"layer '{layer_param.name}': propagate_down param must be specified either 0 or bottom_size "
                f"times ({len(layer_param.bottom)}), not {count}"
            )
        layer = create_layer(layer_param)
        layer.run, layer.build_subnet = self._run, self._build_subnet
        index = len(self.layers)
        self.layers.append(layer)
        self.layer_names.append(layer_param.name)
        log.info("Creating Layer %s", layer_param.name)

        need_backward = self._append_bottoms(layer_param)
        self._append_tops(layer, layer_param)
        bottom = [self.blobs[i] for i in self.bottom_ids[index]]
        top = [self.blobs[i] for i in self.top_ids[index]]

        _check_blob_counts(layer, bottom, top)
        layer.setup(bottom, top)
        if layer_param.blobs:
            _given_blobs(layer, layer_param)
        layer.reshape(bottom, top)
        self._loss_weights(layer, layer_param, index, top)
        log.info("Setting up %s", layer_param.name)
        for blob, weight in zip(top, layer.loss_weights, strict=True):
            log.info("Top shape: %s", blob.shape_string)
            if weight:
                log.info("    with loss weight %g", weight)
            self.memory_used += blob.count * blob.dtype.itemsize
        log.info("Memory required for data: %d", self.memory_used)
        self._check_memory(layer)

        need_backward |= self._append_params(layer, layer_param, index)
        self.layer_need_backward.append(need_backward)
        if need_backward:
            for i in self.top_ids[index]:
                self._blob_need_backward[i] = True

    def _check_memory(self, layer: Layer) -> None:
        """Memory is allocated when it is first used, and then it may be too late to refuse."""
        self._parameter_memory += sum(b.count * b.dtype.itemsize for b in layer.blobs)
        needed, limit = self.memory_used + self._parameter_memory, memory_limit()
        if needed > limit:
            raise layer.error(
                f"up to this layer the net needs {memory_text(needed)} of memory; there are "
                f"{memory_text(limit)}. A smaller batch_size, or smaller shapes, need less",
                ShapeError,
            )

    def _append_bottoms(self, layer_param: caffe_pb2.LayerParameter) -> bool:
        ids, need, any_need = [], [], False
        for i, name in enumerate(layer_param.bottom):
            if name not in self._available:
                known = closest(name, self._available)
                used = name in self.blob_index
                raise NetError(
                    f"Unknown bottom blob '{name}' (layer '{layer_param.name}', bottom index {i})"
                    + (": another layer has consumed it" if used else known)
                )
            log.info("%s <- %s", layer_param.name, name)
            del self._available[name]
            blob_id = self.blob_index[name]
            ids.append(blob_id)
            any_need |= self._blob_need_backward[blob_id]
            need.append(
                layer_param.propagate_down[i]
                if layer_param.propagate_down
                else self._blob_need_backward[blob_id]
            )
        self.bottom_ids.append(ids)
        self.bottom_need_backward.append(need)
        return any_need

    def _append_tops(self, layer: Layer, layer_param: caffe_pb2.LayerParameter) -> None:
        ids: list[int] = []
        self.top_ids.append(ids)
        bottom = list(layer_param.bottom)
        for i, name in enumerate(layer_param.top):
            in_place = i < len(bottom) and bottom[i] == name
            if in_place:
                log.info("%s -> %s (in-place)", layer_param.name, name)
                ids.append(self.blob_index[name])
            elif name in self.blob_index:
                raise duplicate_top_error(name, self._producer[name], layer_param.name)
            else:
                log.info("%s -> %s", layer_param.name, name)
                ids.append(self._new_blob(name, layer_param.name))
                if layer_param.type == "Input":
                    self.inputs.append(name)
            self._available[name] = None
        if layer.auto_top_blobs:
            needed = max(layer.min_top or 0, layer.exact_num_top or 0)
            for _ in range(needed - len(ids)):
                # A top that nobody named: it has a blob, but no name to be found by.
                ids.append(self._new_blob("(automatic)", layer_param.name, named=False))

    def _new_blob(self, name: str, producer: str, named: bool = True) -> int:
        index = len(self.blobs)
        self.blobs.append(Blob(()))
        self.blob_names.append(name)
        self.blob_loss_weights.append(0.0)
        self._blob_need_backward.append(False)
        if named:
            self.blob_index[name] = index
            self._producer[name] = producer
        return index

    def _loss_weights(
        self, layer: Layer, layer_param: caffe_pb2.LayerParameter, index: int, top: list[Blob]
    ) -> None:
        weights = list(layer_param.loss_weight)
        if weights and len(weights) != len(top):
            if not (layer.is_loss and len(weights) == 1):
                raise layer.error(
                    f"loss_weight must be unspecified or specified once per top blob: {len(weights)} weights "
                    f"for {len(top)} tops"
                )
        elif not weights and layer.is_loss:
            weights = [1.0]
        weights += [0.0] * (len(top) - len(weights))
        layer.loss_weights = weights
        for blob, weight, i in zip(top, weights, self.top_ids[index], strict=True):
            if weight:
                blob.overwrite_cpu_diff()[...] = weight
                self.blob_loss_weights[i] = weight

    # -- parameters -------------------------------------------------------------------------------

    def _append_params(self, layer: Layer, layer_param: caffe_pb2.LayerParameter, index: int) -> bool:
        specs = layer_param.param
        if len(specs) > len(layer.blobs):
            raise layer.error(
                f"Too many params specified for layer {layer.name}: {len(specs)} param blocks for "
                f"{len(layer.blobs)} parameter blobs"
            )
        self.learnable_ids.append([])
        layer.param_propagate_down = []
        need_backward = False
        for j, blob in enumerate(layer.blobs):
            spec = specs[j] if j < len(specs) else _DEFAULT_SPEC
            layer.param_propagate_down.append(spec.lr_mult != 0)
            need_backward |= spec.lr_mult != 0
            owner = self._owner_of.get(spec.name) if spec.name else None
            if owner is None:
                owner = len(self.learnable)
                if spec.name:
                    self._owner_of[spec.name] = owner
                self.learnable.append(LearnableParam(blob, index, j, spec.name or str(j)))
                self._multipliers(self.learnable[owner], spec)
            else:
                self._share(layer, blob, index, spec, self.learnable[owner])
            self.learnable[owner].users.append(index)
            self.learnable_ids[index].append(owner)
        return need_backward

    def _share(
        self, layer: Layer, blob: Blob, index: int, spec: caffe_pb2.ParamSpec, owner: LearnableParam
    ) -> None:
        owner_name = self.layer_names[owner.layer_index]
        log.info(
            "Sharing parameters '%s' owned by layer '%s', param index %d",
            spec.name,
            owner_name,
            owner.param_index,
        )
        permissive = spec.share_mode == caffe_pb2.ParamSpec.PERMISSIVE
        fits = blob.count == owner.blob.count if permissive else blob.shape == owner.blob.shape
        if not fits:
            raise ShapeError(
                f"Cannot share param '{spec.name}' owned by layer '{owner_name}' with layer '{layer.name}'; "
                f"{'count' if permissive else 'shape'} mismatch.  Owner layer param shape is "
                f"{owner.blob.shape_string}; sharing layer {'shape is' if permissive else 'expects shape'} "
                f"{blob.shape_string}"
                + ("" if permissive else " (share_mode: PERMISSIVE compares counts only)")
            )
        blob.share_data(owner.blob)
        blob.share_diff(owner.blob)
        self._multipliers(owner, spec)

    @staticmethod
    def _multipliers(owner: LearnableParam, spec: caffe_pb2.ParamSpec) -> None:
        for name in ("lr_mult", "decay_mult"):
            if not spec.HasField(name):
                continue
            value, known = getattr(spec, name), getattr(owner, f"has_{name}")
            if known and getattr(owner, name) != value:
                raise NetError(
                    f"Shared param '{owner.name}' has mismatched {name}: {getattr(owner, name):g} against "
                    f"{value:g}"
                )
            setattr(owner, name, value)
            setattr(owner, f"has_{name}", True)

    # -- who needs a gradient -----------------------------------------------------------------------

    def _contributions(self) -> None:
        """Backward is needed only between something to learn and a loss."""
        under_loss: set[str] = set()
        skipped: set[str] = set()
        for i in reversed(range(len(self.layers))):
            tops = [self._key(t) for t in self.top_ids[i]]
            contributes = any(self.layers[i].loss_weights) or any(t in under_loss for t in tops)
            if self.layer_need_backward[i] and tops and all(t in skipped for t in tops):
                self.layer_need_backward[i] = False
                self.bottom_need_backward[i] = [False] * len(self.bottom_ids[i])
            if not contributes:
                self.layer_need_backward[i] = False
            if self.layer_need_backward[i]:
                log.info("%s needs backward computation.", self.layer_names[i])
            else:
                log.info("%s does not need backward computation.", self.layer_names[i])
            for j, b in enumerate(self.bottom_ids[i]):
                name = self._key(b)
                if contributes:
                    under_loss.add(name)
                else:
                    self.bottom_need_backward[i][j] = False
                if not self.bottom_need_backward[i][j]:
                    skipped.add(name)

    def _key(self, blob_id: int) -> str:
        name = self.blob_names[blob_id]
        return name if self.blob_index.get(name) == blob_id else f"{name}#{blob_id}"

    def _force_backward(self) -> None:
        for i, layer in enumerate(self.layers):
            self.layer_need_backward[i] = True
            for j, b in enumerate(self.bottom_ids[i]):
                self.bottom_need_backward[i][j] |= layer.allow_force_backward(j)
                self._blob_need_backward[b] |= self.bottom_need_backward[i][j]
            layer.param_propagate_down = [True] * len(layer.blobs)

    def _tell_layers(self) -> None:
        """A frozen parameter of a layer that runs backward keeps its diff; nothing is left to decide."""
        for i, layer in enumerate(self.layers):
            if not self.layer_need_backward[i]:
                layer.param_propagate_down = [False] * len(layer.blobs)

    def _refuse_in_place(self) -> None:
        in_place = [set(t) & set(b) for t, b in zip(self.top_ids, self.bottom_ids, strict=True)]
        uses = Counter(blob for shared in in_place for blob in shared)
        for layer, shared in zip(self.layers, in_place, strict=True):
            layer.in_place_chain = any(uses[blob] > 1 for blob in shared)
        for i, (layer, shared) in enumerate(zip(self.layers, in_place, strict=True)):
            if not shared or not self.layer_need_backward[i] or not any(self.bottom_need_backward[i]):
                continue
            why = layer.in_place_refusal()
            if why:
                error = layer.error(
                    f"cannot work in place on '{self.blob_names[min(shared)]}' in a net that is run "
                    f"backward: {why}; give the layer a top of its own name"
                )
                error.place = self._source.locate(layer.name)
                raise error

    def _warn_of_spoiled_gradients(self) -> None:
        """Where a layer works in place on values that the gradient of an earlier one is computed from, the
        original's gradient is wrong without a word. So is ours, since recorded nets have it; with a word."""
        needed: dict[tuple[int, str], int] = {}  # (blob, what of it): the last layer that needs it
        for i, layer in enumerate(self.layers):
            wanted = self.layer_need_backward[i] and any(self.bottom_need_backward[i])
            for blob in self.top_ids[i]:
                spoiled = needed.pop((blob, "values"), None)
                if spoiled is None and not layer.keeps_signs:
                    spoiled = needed.pop((blob, "signs"), None)
                if spoiled is not None:
                    log.warning(
                        "layer '%s' (%s) works in place on '%s', and the gradient of layer '%s' (%s) is "
                        "computed from what stood there: it will be wrong, as in BVLC Caffe. Give '%s' a "
                        "top of its own name",
                        *(layer.name, layer.type, self.blob_names[blob]),
                        *(self.layers[spoiled].name, self.layers[spoiled].type, layer.name),
                    )
                if wanted and layer.backward_needs_top_data:
                    needed[blob, "values"] = i
                if wanted and layer.backward_needs_top_signs and blob in self.bottom_ids[i]:
                    needed[blob, "signs"] = i

    def _placed(self, error: NetError, name: str) -> NetError:
        place = self._source.locate(name)
        return NetError(f"{error} ({place})") if place and place not in str(error) else error


def _check_blob_counts(layer: Layer, bottom: list[Blob], top: list[Blob]) -> None:
    for what, blobs in (("bottom", bottom), ("top", top)):
        n = len(blobs)
        exact, least, most = (getattr(layer, f"{k}_{what}") for k in ("exact_num", "min", "max"))
        if exact is not None and n != exact:
            raise layer.error(
                f"{layer.type} Layer takes {exact} {what} blob(s) as {_io(what)}, but {n} were given"
            )
        if least is not None and n < least:
            raise layer.error(
                f"{layer.type} Layer takes at least {least} {what} blob(s) as {_io(what)}, but {n} were given"
            )
        if most is not None and n > most:
            raise layer.error(
                f"{layer.type} Layer takes at most {most} {what} blob(s) as {_io(what)}, but {n} were given"
            )
    if layer.equal_num_bottom_top and len(bottom) != len(top):
        raise layer.error(
            f"{layer.type} Layer produces one top blob as output for each bottom blob input: "
            f"{len(bottom)} bottoms, {len(top)} tops"
        )


def _io(what: str) -> str:
    return "input" if what == "bottom" else "output"


def _given_blobs(layer: Layer, layer_param: caffe_pb2.LayerParameter) -> None:
    """A net definition may carry parameter values itself."""
    if len(layer_param.blobs) != len(layer.blobs):
        raise layer.error(
            f"the definition carries {len(layer_param.blobs)} blobs, but the layer has {len(layer.blobs)} "
            "parameters"
        )
    for blob, proto in zip(layer.blobs, layer_param.blobs, strict=True):
        blob.from_proto(proto, reshape=False)
