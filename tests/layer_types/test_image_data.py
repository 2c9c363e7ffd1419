"""ImageData: what the net sees of image files. (Values of the original: tests/test_golden_data.py.)"""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import context
from caffe.errors import DataError, LayerError
from caffe.proto import caffe_pb2

COUNT = 7


@pytest.fixture
def images(tmp_path: Path, rng: np.random.Generator) -> list[np.ndarray]:
    """PNGs of 5 x 6 pixels in pics/, listed in list.txt with labels 0, 10, 20 ..."""
    (tmp_path / "pics").mkdir()
    found = [rng.integers(0, 256, (5, 6, 3), dtype=np.uint8) for _ in range(COUNT)]
    for i, image in enumerate(found):
        cv2.imwrite(f"pics/image {i}.png", image)
    write_list([f"image {i}.png {10 * i}" for i in range(COUNT)])
    return [image.transpose(2, 0, 1) for image in found]


def write_list(lines: list[str]) -> None:
    Path("list.txt").write_text("\n".join(lines) + "\n")


def net(param: str = "", more: str = "", phase: int = caffe.TEST, batch_size: int = 3) -> caffe.Net:
    text = f"""layer {{ name: "d" type: "ImageData" top: "data" top: "label" {more} image_data_param {{
        source: "list.txt" root_folder: "pics/" batch_size: {batch_size} {param} }} }}"""
    return caffe.Net(text_format.Merge(text, caffe_pb2.NetParameter()), phase)


def batches(net: caffe.Net, count: int) -> tuple[np.ndarray, list[int]]:
    data, labels = [], []
    for _ in range(count):
        net.forward()
        data.append(net.blobs["data"].data.copy())
        labels += net.blobs["label"].data.astype(int).tolist()
    return np.concatenate(data), labels


def test_images_come_in_the_order_of_the_list(images: list[np.ndarray]) -> None:
    n = net()
    assert n.blobs["data"].shape == (3, 3, 5, 6)
    assert n.blobs["label"].shape == (3,)
    data, labels = batches(n, 5)
    assert labels == [10 * (i % COUNT) for i in range(15)]
    np.testing.assert_array_equal(data, [images[label // 10] for label in labels])


def test_a_batch_larger_than_the_list(images: list[np.ndarray]) -> None:
    data, labels = batches(net(batch_size=17), 1)
    assert labels == [10 * (i % COUNT) for i in range(17)]
    np.testing.assert_array_equal(data, [images[label // 10] for label in labels])


def test_grey_and_resized(images: list[np.ndarray]) -> None:
    assert batches(net("is_color: false"), 1)[0].shape == (3, 1, 5, 6)
    assert batches(net("is_color: false new_height: 4 new_width: 9"), 1)[0].shape == (3, 1, 4, 9)
    assert batches(net("new_height: 8 new_width: 9", "transform_param { crop_size: 7 }"), 1)[0].shape == (
        3,
        3,
        7,
        7,
    )


def run(
    seed: int = 3, count: int = 8, param: str = "shuffle: true", more: str = ""
) -> tuple[np.ndarray, list[int]]:
    caffe.set_random_seed(seed)
    transform = "transform_param { crop_size: 3 mirror: true }"
    n = net(param, f"{transform} {more}", caffe.TRAIN)
    try:
        return batches(n, count)
    finally:
        n.layers[0].close()


def test_each_epoch_is_shuffled_by_itself(images: list[np.ndarray]) -> None:
    _, labels = run(count=COUNT)  # three epochs
    epochs = [labels[COUNT * i : COUNT * (i + 1)] for i in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == [10 * i for i in range(COUNT)]
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_seed_alone_decides(images: list[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    data, labels = run()
    for more in ("data_param { prefetch: 1 }", "data_param { prefetch: 9 }"):
        other = run(more=more)
        assert other[1] == labels
        np.testing.assert_array_equal(other[0], data)
    monkeypatch.setenv("CAFFE_NUM_THREADS", "7")
    np.testing.assert_array_equal(run()[0], data)
    assert run(seed=4)[1] != labels


@pytest.mark.parametrize("taken", [0, 1, 4, 5])
def test_a_resumed_run_goes_on_as_the_first_would_have(images: list[np.ndarray], taken: int) -> None:
    caffe.set_random_seed(3)
    first = net("shuffle: true rand_skip: 5", "transform_param { crop_size: 3 mirror: true }", caffe.TRAIN)
    for _ in range(taken):
        first.forward()
    state = first.layers[0].save_state()
    wanted, labels = batches(first, 6)
    caffe.set_random_seed(99)
    second = net("shuffle: true rand_skip: 5", "transform_param { crop_size: 3 mirror: true }", caffe.TRAIN)
    batches(second, 2)
    second.run.reseed(first.run.seed)
    second.layers[0].load_state(state)
    found, found_labels = batches(second, 6)
    assert found_labels == labels
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("shuffle", ["true", "false"])
def test_ranks_share_the_images_when_training(images: list[np.ndarray], shuffle: str) -> None:
    context.set_solver_count(2)
    seen: list[int] = []
    for rank in (0, 1):
        context.set_solver_rank(rank)
        caffe.set_random_seed(5 + rank)  # as solvers do
        seen += batches(net(f"shuffle: {shuffle}", phase=caffe.TRAIN, batch_size=COUNT), 2)[1]
    assert sorted(seen) == sorted(10 * i for i in range(COUNT) for _ in range(4))
    assert batches(net(), 1)[1] == [0, 10, 20]


def test_rand_skip(images: list[np.ndarray]) -> None:
    starts = set()
    for seed in range(12):
        caffe.set_random_seed(seed)
        starts.add(batches(net("rand_skip: 3"), 1)[1][0])
    assert starts == {0, 10, 20}


def test_images_of_different_sizes_one_by_one_and_cropped(tmp_path: Path, rng: np.random.Generator) -> None:
    (tmp_path / "pics").mkdir()
    sizes = [(4, 5), (7, 3), (3, 9)]
    found = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
    for i, image in enumerate(found):
        cv2.imwrite(f"pics/{i}.png", image)
    write_list([f"{i}.png {i}" for i in range(3)])
    n = net(batch_size=1)
    for i in (0, 1, 2, 0):
        n.forward()
        np.testing.assert_array_equal(n.blobs["data"].data[0], found[i].transpose(2, 0, 1))
    assert batches(net(more="transform_param { crop_size: 3 }"), 1)[0].shape == (3, 3, 3, 3)
    with pytest.raises(DataError, match=r"list.txt:2: pics/1.png gives 3 x 7 x 3 .* batch has 3 x 4 x 5"):
        net().forward()


def test_the_net_gone_its_threads_are_gone(images: list[np.ndarray]) -> None:
    gc.collect()
    before = threading.active_count()
    n = net()
    n.forward()
    assert threading.active_count() > before
    del n
    gc.collect()
    assert threading.active_count() == before


# -- what goes wrong ------------------------------------------------------------------------------------


def test_a_bad_image_in_the_midst_of_training_names_itself(images: list[np.ndarray]) -> None:
    Path("pics/image 4.png").write_bytes(b"no image")
    n = net()
    assert batches(n, 1)[1] == [0, 10, 20]
    begun = time.monotonic()
    with pytest.raises(
        DataError, match=r"layer 'd' \(ImageData\): list.txt:5: Could not load pics/image 4.png: its 8 bytes"
    ):
        n.forward()
    assert time.monotonic() - begun < 10


def test_an_image_that_goes_away(images: list[np.ndarray]) -> None:
    n = net(more="data_param { prefetch: 1 }")
    n.forward()
    Path("pics/image 1.png").unlink()
    with pytest.raises(DataError, match="list.txt:2: Could not open or find file pics/image 1.png: No such"):
        batches(n, 5)


def test_the_first_image_is_looked_at_in_time(images: list[np.ndarray]) -> None:
    write_list(["none.png 1"])
    with pytest.raises(DataError, match=r"layer 'd'.*list.txt:1: Could not open or find file pics/none.png"):
        net()


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
def test_an_empty_list(content: str) -> None:
    Path("list.txt").write_text(content)
    with pytest.raises(DataError, match=r"layer 'd'.*File is empty: list.txt lists no image"):
        net()


def test_a_missing_list() -> None:
    with pytest.raises(DataError, match="cannot read the list of images 'list.txt'"):
        net()


def test_a_line_without_a_label(images: list[np.ndarray]) -> None:
    write_list(["image 0.png 1", "image1.png"])
    with pytest.raises(DataError, match=r'layer .d.*list.txt:2: "image1.png" has no label'):
        net()


@pytest.mark.parametrize("field", ["new_height", "new_width"])
def test_half_a_size(images: list[np.ndarray], field: str) -> None:
    with pytest.raises(LayerError, match="requires new_height and new_width to be set at the same time"):
        net(f"{field}: 4")


def test_too_large_a_skip(images: list[np.ndarray]) -> None:
    write_list(["image 0.png 1"])
    caffe.set_random_seed(1)
    with pytest.raises(DataError, match="Not enough points to skip"):
        net("rand_skip: 1000000")


def test_batch_size_0(images: list[np.ndarray]) -> None:
    with pytest.raises(LayerError, match="image_data_param.batch_size must be positive"):
        net("batch_size: 0")
