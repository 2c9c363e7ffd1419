"""InfogainLoss: cross-entropy weighted by a matrix of what each confusion costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError

from ..blob import Blob
from ..errors import CaffeError, ShapeError
from ..layer_registry import register_layer
from ..proto import caffe_pb2
from ._loss import SoftmaxClassLoss

_FLOOR = 1e-20  # smaller probabilities count as this in the loss


@register_layer("InfogainLoss")
class InfogainLossLayer(SoftmaxClassLoss):
    """Information gain loss: E = -1/Z Σ_n Σ_k H[l_n, k] log p̂[n, k], p̂ = softmax of the scores along `axis`.

    bottom[0]: (N, C, …) scores, any real; C is the size of `axis`.
    bottom[1]: one label for each position outside `axis`, integers in [0, C).
    bottom[2], optional: H, C·C numbers, row = label. Without it H is read from the file `source`.
    top[0]: () loss. top[1], optional: p̂, shaped like bottom[0], without a way back for gradients.

    infogain_loss_param.source (no default): path of a BlobProto with H; not read when bottom[2] is there.
    infogain_loss_param.axis (default 1, negative from the end).
    loss_param.ignore_label (default none), loss_param.normalization, Z: as SoftmaxWithLoss.
    loss_param.normalize is refused, as in the original.

    Gradient of bottom[0]: (p̂ Σ_k H[l, k] - H[l, ·]) · loss_weight / Z, 0 at ignored positions. p̂ below
    1e-20 counts as that in the loss, not in the gradient. Labels and H have none.
    Raises LabelError for a label outside [0, C), ShapeError for an H of another size, LayerError for a
    missing or unreadable source. Source: Caffe's infogain_loss_layer documentation.
    """

    exact_num_bottom = None
    min_bottom = 2
    max_bottom = 3

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.infogain_loss_param
        if self.layer_param.loss_param.HasField("normalize"):
            raise self.error(
                'loss_param: normalize is deprecated. use "normalization": VALID for true, BATCH_SIZE for '
                "false"
            )
        self.set_up_classes(param.axis, top)
        self._from_file: np.ndarray | None = None
        if len(bottom) < 3:
            if not param.HasField("source"):
                raise self.error(
                    "Infogain matrix source must be specified: `infogain_loss_param { source: "
                    '"H.binaryproto" }`, or a third bottom'
                )
            self._from_file = self._load(param.source)

    def _load(self, path: str) -> np.ndarray:
        blob = Blob()
        try:
            blob.from_proto(caffe_pb2.BlobProto.FromString(Path(path).read_bytes()))
        except OSError as error:
            raise self.error(f"infogain_loss_param.source: cannot read '{path}': {error.strerror}") from error
        except (DecodeError, CaffeError) as error:
            raise self.error(f"infogain_loss_param.source: '{path}' holds no BlobProto: {error}") from error
        return blob.cpu_data()

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        shape = bottom[2].shape if self._from_file is None else self._from_file.shape
        count = bottom[2].count if self._from_file is None else self._from_file.size
        classes = self._scores.classes
        if count != classes**2:
            raise self.error(
                f"the infogain matrix must hold {classes} x {classes} numbers, a row and a column for each "
                f"class of bottom[0] (shape {bottom[0].shape}), but its shape is {shape}",
                ShapeError,
            )
        if self._from_file is not None:
            self._from_file = self._from_file.astype(bottom[0].dtype, copy=False)
        self._rows = np.zeros_like(self._prob)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.compute_probabilities(bottom, top)
        matrix = bottom[2].cpu_data() if self._from_file is None else self._from_file
        matrix = matrix.reshape(self._scores.classes, -1)
        # (O, C) or (O, I, C) -> as _scores.view
        self._rows = np.moveaxis(matrix[self._labels.reshape(self._scores.labels_shape)], -1, 1)
        gain = self._rows * np.log(np.maximum(self._prob, _FLOOR))
        self.zero_ignored(gain)
        top[0].overwrite_cpu_data()[...] = (0 - gain.sum()) / self.divisor  # 0, not -0

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        self.refuse_label_gradient(propagate_down)
        if len(propagate_down) > 2 and propagate_down[2]:
            raise self.error(
                "InfogainLoss Layer cannot backpropagate to infogain inputs. Leave out force_backward, or "
                "set propagate_down: false for the third bottom"
            )
        if not propagate_down[0]:
            return
        diff = bottom[0].overwrite_cpu_diff().reshape(self._scores.view)
        np.multiply(self._prob, np.add.reduce(self._rows, axis=1, keepdims=True), out=diff)
        diff -= self._rows
        diff *= top[0].cpu_diff().item() / self.divisor
        self.zero_ignored(diff)
