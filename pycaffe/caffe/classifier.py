"""Classifier: a net that takes images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from . import io
from .errors import DataError
from .net import Net
from .proto.caffe_pb2 import TEST


def input_transformer(
    net: Net,
    mean: np.ndarray | None,
    input_scale: float | None,
    raw_scale: float | None,
    channel_swap: Sequence[int] | None,
) -> io.Transformer:
    """The Transformer for the net's first input, from images (H, W, C)."""
    name = net.inputs[0]
    transformer = io.Transformer({name: net.blobs[name].shape})
    transformer.set_transpose(name, (2, 0, 1))
    transformer.set_mean(name, mean)
    transformer.set_input_scale(name, input_scale)
    transformer.set_raw_scale(name, raw_scale)
    transformer.set_channel_swap(name, channel_swap)
    return transformer


class Classifier(Net):
    """A net in TEST phase whose first input is an image, and whose first output is returned.

    image_dims: (height, width) that images are resized to before the net's input is cut out of them;
    default: the input's. mean, input_scale, raw_scale, channel_swap: as caffe.io.Transformer has them.
    transformer, image_dims and crop_dims may be changed later. Source: pycaffe's Classifier.
    """

    def __init__(
        self,
        model_file: str | Path,
        pretrained_file: str | Path,
        image_dims: Sequence[int] | None = None,
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
    ):
        super().__init__(model_file, pretrained_file, TEST)
        self.transformer = input_transformer(self, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].shape[2:])
        self.image_dims = self.crop_dims if image_dims is None else image_dims

    def predict(self, inputs: Sequence[np.ndarray], oversample: bool = True) -> np.ndarray:
        """The net's first output for each image (H, W, C), as caffe.io.load_image gives them.

        oversample: average over the ten crops of caffe.io.oversample; else the crop from the middle alone.
        Returns (N, …): with oversample (N, C·…). Raises DataError for no images, and for such that do not
        fit the net.
        """
        if not len(inputs):
            raise DataError("predict: there are no images")
        if isinstance(inputs, np.ndarray) and inputs.ndim < 4:
            raise DataError(
                f"predict takes several images, predict([image, ...]), not one array of shape {inputs.shape}"
            )
        dims, crop = np.array(self.image_dims, int), np.array(self.crop_dims, int)
        if (dims < crop).any():
            raise DataError(f"image_dims {dims.tolist()} must be at least the net's input {crop.tolist()}")
        images = [io.resize_image(im, dims) for im in inputs]
        if oversample:
            crops = io.oversample(images, crop)
        else:
            y, x = (dims - crop) // 2
            crops = [im[y : y + crop[0], x : x + crop[1]] for im in images]
        name = self.inputs[0]
        batch = np.stack([self.transformer.preprocess(name, crop) for crop in crops])
        predictions = self.forward_all(**{name: batch})[self.outputs[0]]
        return predictions.reshape(len(images), 10, -1).mean(axis=1) if oversample else predictions
