"""Crop: cuts a blob to the size of another."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Blob
from ..errors import ShapeError
from ..layer import Layer
from ..layer_registry import register_layer


@register_layer("Crop")
class CropLayer(Layer):
    """top[0] = the part of bottom[0] that begins at `offset` and is as large as bottom[1], from `axis` on.

    bottom[0]: the numbers, any shape. bottom[1]: only its shape counts, along `axis` and after.
    top[0]: bottom[0]'s sizes before `axis`, bottom[1]'s from there on.
    crop_param.axis (default 2, negative from the end): first axis to crop.
    crop_param.offset (default 0): one for all cropped axes, or one for each.
    Gradient: the top's diff in its place, 0 elsewhere; 0 for bottom[1].
    Raises LayerError for an axis outside or another number of offsets, ShapeError for a part that reaches
    outside. Source: Caffe's crop_layer documentation.
    """

    exact_num_bottom = 2
    exact_num_top = 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.refuse_in_place(bottom, top)
        source, like = bottom[0].shape, bottom[1].shape
        axis = self.canonical_axis(self.layer_param.crop_param.axis, bottom[0])
        if len(like) < len(source):
            raise self.error(
                f"bottom[1] must have sizes for all axes of bottom[0]: their shapes are {like} and {source}",
                ShapeError,
            )
        offsets = list(self.layer_param.crop_param.offset) or [0]
        if len(offsets) == 1:
            offsets *= len(source) - axis
        if len(offsets) != len(source) - axis:
            raise self.error(
                "number of offset values specified must be equal to the number of dimensions following axis: "
                f"{len(offsets)} offsets, {len(source) - axis} axes from axis {axis} on in shape {source}"
            )
        for i, offset in enumerate(offsets, axis):
            if source[i] - offset < like[i]:
                raise self.error(
                    f"the crop for dimension {i} is out-of-bounds with size {like[i]} and offset {offset}: "
                    f"bottom[0] has size {source[i]} there (shapes {source} and {like})",
                    ShapeError,
                )
        top[0].reshape((*source[:axis], *like[axis : len(source)]))
        self.part = (
            *[slice(None)] * axis,
            *(slice(offset, offset + like[i]) for i, offset in enumerate(offsets, axis)),
        )

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].overwrite_cpu_data()[...] = bottom[0].cpu_data()[self.part]

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            diff = bottom[0].overwrite_cpu_diff()
            diff.fill(0)
            diff[self.part] = top[0].cpu_diff()
        if propagate_down[1]:
            bottom[1].overwrite_cpu_diff().fill(0)
