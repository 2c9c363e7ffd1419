"""ImageData: batches out of image files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from ..blob import Blob
from ..data_transformer import DataTransformer
from ..errors import DataError
from ..image import channels_first, read_image
from ..image_list import ImageList, read_image_list
from ..layer_registry import register_layer
from ..prefetch import Batch, Places, Prefetcher
from ..proto import caffe_pb2
from ..random_streams import Stream
from ._prefetching import Draws, PrefetchingLayer
from ._ranks import common_seed

log = logging.getLogger("caffe.data")


@register_layer("ImageData")
class ImageDataLayer(PrefetchingLayer):
    """top[0][n] = transformed image, top[1][n] = label of the next lines of a list of image files.

    top[0]: (N, C, H, W) or, with crop_size, (N, C, crop_size, crop_size); C is 3 (blue, green, red) or 1.
    top[1], optional: (N,) integers. Images of one batch must agree in size; the next batch may differ.

    image_data_param.source       text file with a path, a space and an integer label on each line
    image_data_param.root_folder  put before each path, as it is (default "")
    image_data_param.batch_size   N (default 1)
    image_data_param.new_height, new_width   size in pixels that images are resized to; both or neither
    image_data_param.is_color     three channels (default), or one
    image_data_param.shuffle      another order in every epoch (default false)
    image_data_param.rand_skip    leave out up to this many images at the start, at random (default 0)
    data_param.prefetch           batches read ahead (default 4), which bounds the memory
    transform_param               see DataTransformer; force_color and force_gray mean nothing here

    In TRAIN, rank r of R solvers reads images r, r + R, r + 2 R ... Order, crops and mirrors depend on seed,
    layer name and place in the stream alone. No gradient. Raises LayerError for impossible parameters,
    DataError with list and line for what is wrong with the list or an image.
    Source: Caffe's ImageDataLayer.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.layer_param.image_data_param
        self.check_positive(param, "image_data_param", "batch_size")
        self.check_positive(self.layer_param.data_param, "data_param", "prefetch")
        if bool(param.new_height) != bool(param.new_width):
            raise self.error(
                "Current implementation requires new_height and new_width to be set at the same time: "
                f"new_height is {param.new_height}, new_width {param.new_width}"
            )
        try:
            log.info("Opening file %s", param.source)
            images = read_image_list(param.source)
            if not len(images):
                raise DataError(f"File is empty: {param.source} lists no image")
            log.info("A total of %d images.", len(images))
            skip = self.first_skip(param.rand_skip)
            if skip:
                log.info("Skipping first %d data points.", skip)
            if skip >= len(images):
                raise DataError(f"Not enough points to skip: rand_skip gave {skip} of {len(images)} images")
            transformer = DataTransformer(self.layer_param.transform_param, self.phase)
            order = self._order(len(images))
            self._fill = _Fill(images, param, transformer, order, Draws(self.run.seed, self.name))
            about = f"the images of '{param.source}'"
            self._reader = Prefetcher(
                Places(about, len(images), param.batch_size, **self.share()),
                self._fill,
                param.batch_size,
                prefetch=self.layer_param.data_param.prefetch,
                threads=self.run.threads,
                position=skip,
            )
            self._shape = (param.batch_size, *self._fill.look_at(skip))
            self.check_prefetch()
            self.log_size()
        except DataError as error:
            raise self.named(error) from error

    def _order(self, count: int) -> _Order:
        shuffle = self.layer_param.image_data_param.shuffle
        return _Order(count, Stream(common_seed(self.run.seed), f"{self.name}/shuffle") if shuffle else None)

    def reseed(self) -> None:
        self._fill.draws = Draws(self.run.seed, self.name)
        self._fill.order = self._order(len(self._fill.images))


class _Order:
    """Which images stand at places of the stream: in epoch e, a permutation that belongs to e."""

    def __init__(self, count: int, stream: Stream | None):
        self._count, self._stream = count, stream
        self._recent: dict[int, np.ndarray] = {}  # epoch -> permutation
        self._lock = threading.Lock()

    def __call__(self, places: range) -> list[int]:
        epochs, indices = np.divmod(np.asarray(places), self._count)
        if self._stream is not None:
            for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
                here = epochs == epoch
                indices[here] = self._permutation(epoch)[indices[here]]
        return indices.tolist()

    def _permutation(self, epoch: int) -> np.ndarray:
        assert self._stream is not None
        with self._lock:
            if epoch not in self._recent:
                if len(self._recent) > 1:  # threads may still be at the end of the epoch before
                    del self._recent[min(self._recent)]
                self._recent[epoch] = self._stream.generator(epoch).permutation(self._count)
            return self._recent[epoch]


class _Fill:
    """Makes a batch of images; runs in the reader's threads and knows nothing of the layer."""

    def __init__(
        self,
        images: ImageList,
        param: caffe_pb2.ImageDataParameter,
        transformer: DataTransformer,
        order: _Order,
        draws: Draws,
    ):
        self.images, self.transformer, self.order, self.draws = images, transformer, order, draws
        self._root = param.root_folder
        self._color, self._height, self._width = param.is_color, param.new_height, param.new_width

    def look_at(self, place: int) -> tuple[int, ...]:
        """(C, h, w) of the image at this place of the stream, transformed."""
        (i,) = self.order(range(place, place + 1))
        try:
            return self.transformer.output_shape(self._read(i).shape)
        except DataError as error:
            raise self._named(i, error) from error

    def _read(self, i: int) -> np.ndarray:
        path = self._root + self.images.paths[i]
        return channels_first(read_image(path, self._color, self._height, self._width))

    def _named(self, i: int, error: DataError) -> DataError:
        return DataError(f"{self.images.place(i)}: {error}")

    def __call__(self, places: range, batch: Batch) -> None:
        chosen = self.order(places)

        def name(n: int) -> str:
            i = chosen[n]
            return f"{self.images.place(i)}: {self._root}{self.images.paths[i]}"

        transformer = self.transformer
        try:
            first = self._read(chosen[0])
            batch.reshape(transformer.output_shape(first.shape))
        except DataError as error:
            raise self._named(chosen[0], error) from error
        words = self.draws.words(batch.first, len(chosen), 3) if transformer.needs_random else None
        transformer.transform_batch(self._images(first, chosen), batch.data, words, name)
        batch.labels[:] = self.images.labels[chosen]

    def _images(self, first: np.ndarray, chosen: list[int]) -> Iterator[np.ndarray]:
        yield first
        for i in chosen[1:]:
            try:
                image = self._read(i)
            except DataError as error:
                raise self._named(i, error) from error
            yield image
