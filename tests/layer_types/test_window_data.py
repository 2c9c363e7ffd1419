"""WindowData: windows by a naive reading of the rules. (Values of the original: test_golden_data.py.)"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import context
from caffe.errors import DataError, LayerError
from caffe.proto import caffe_pb2

SIZE = (20, 30)  # height, width


@pytest.fixture
def images(tmp_path: Path, rng: np.random.Generator) -> list[np.ndarray]:
    """Two images, with four foreground and three background windows, and one that is neither."""
    (tmp_path / "pics").mkdir()
    found = [rng.integers(0, 256, (*SIZE, 3), dtype=np.uint8) for _ in range(2)]
    for i, image in enumerate(found):
        cv2.imwrite(f"pics/image {i}.png", image)
    write(
        """
        # 0
        image 0.png
        3
        20
        30
        4
        1 0.9 2 3 9 10
        2 0.7 0 0 29 19
        1 0.1 5 5 12 12
        3 0.4 1 1 4 4

        # 1
        image 1.png
        3
        20
        30
        4
        3 1 10 2 19 11
        4 0.7 12 12 25 19
        2 0.05 3 0 8 17
        0 0 4 4 19 19
        """
    )
    return found


FOREGROUND = {1: (0, 2, 3, 9, 10), 2: (0, 0, 0, 29, 19), 3: (1, 10, 2, 19, 11), 4: (1, 12, 12, 25, 19)}
BACKGROUND = [(0, 5, 5, 12, 12), (1, 3, 0, 8, 17), (1, 4, 4, 19, 19)]


def write(text: str) -> None:
    Path("windows.txt").write_text("\n".join(line.strip() for line in text.strip().splitlines()) + "\n")


def net(param: str = "", transform: str = "", phase: int = caffe.TEST, batch_size: int = 8) -> caffe.Net:
    text = f"""layer {{ name: "d" type: "WindowData" top: "data" top: "label"
        transform_param {{ crop_size: 10 {transform} }}
        window_data_param {{ source: "windows.txt" root_folder: "pics/" batch_size: {batch_size}
            fg_threshold: 0.6 bg_threshold: 0.3 {param} }} }}"""
    return caffe.Net(text_format.Merge(text, caffe_pb2.NetParameter()), phase)


def warped(images: list[np.ndarray], window: tuple[int, ...]) -> np.ndarray:
    i, x1, y1, x2, y2 = window
    return cv2.resize(images[i][y1 : y2 + 1, x1 : x2 + 1], (10, 10)).transpose(2, 0, 1).astype(np.float32)


def find(
    images: list[np.ndarray], item: np.ndarray, windows: list[tuple[int, ...]]
) -> list[tuple[int, bool]]:
    """Which windows it may be, mirrored or not."""
    return [
        (i, flip)
        for i, window in enumerate(windows)
        for flip in (False, True)
        if np.array_equal(item, warped(images, window)[:, :, :: -1 if flip else 1])
    ]


def test_background_first_then_foreground_all_of_them_drawn(images: list[np.ndarray]) -> None:
    n = net("fg_fraction: 0.4")  # 3.2 of 8
    assert n.blobs["data"].shape == (8, 3, 10, 10)
    background, foreground = set(), set()
    for _ in range(30):
        n.forward()
        labels = n.blobs["label"].data.astype(int).tolist()
        assert labels[:5] == [0] * 5
        for item, label in zip(n.blobs["data"].data, labels, strict=True):
            if label:
                np.testing.assert_array_equal(item, warped(images, FOREGROUND[label]))
                foreground.add(label)
            else:
                ((i, flip),) = find(images, item, BACKGROUND)
                assert not flip
                background.add(i)
    assert background == {0, 1, 2}
    assert foreground == {1, 2, 3, 4}


def test_mirror_mean_and_one_top(images: list[np.ndarray]) -> None:
    n = net("fg_fraction: 1", "mirror: true mean_value: 10 mean_value: 20 mean_value: 30")
    mean = np.float32([10, 20, 30]).reshape(3, 1, 1)
    flips = []
    for _ in range(5):
        n.forward()
        for item, label in zip(n.blobs["data"].data, n.blobs["label"].data, strict=True):
            ((_, flip),) = find(images, item + mean, [FOREGROUND[int(label)]])
            flips.append(flip)
    assert 5 < sum(flips) < 35


def test_what_lies_outside_the_image_is_zero(images: list[np.ndarray]) -> None:
    """The window reaches the image's left and upper edge, so that its context there is missing."""
    write("# 0\nimage 0.png\n3\n20\n30\n2\n1 1 0 0 11 11\n0 0 0 0 11 11")
    n = net("fg_fraction: 0.5 context_pad: 2", "mean_value: 50")
    n.forward()
    # 12 pixels become 6 of 10, so that it reaches from pixel -4 to pixel 16 (where the original counts).
    wanted = cv2.resize(images[0][:17, :17], (8, 8)).transpose(2, 0, 1).astype(np.float32) - 50
    for item in n.blobs["data"].data:
        np.testing.assert_array_equal(item[:, :2], 0)
        np.testing.assert_array_equal(item[:, :, :2], 0)
        np.testing.assert_array_equal(item[:, 2:, 2:], wanted)


def test_square_windows(images: list[np.ndarray]) -> None:
    write("# 0\nimage 0.png\n3\n20\n30\n2\n1 1 10 8 17 11\n0 0 10 8 17 11")
    n = net('fg_fraction: 0.5 crop_mode: "square"')
    n.forward()
    # Around its middle (14, 10), four pixels to each side; the original counts nine of them.
    wanted = cv2.resize(images[0][6:15, 10:19], (10, 10)).transpose(2, 0, 1)
    np.testing.assert_array_equal(n.blobs["data"].data[0], wanted)


def test_images_in_memory(images: list[np.ndarray]) -> None:
    n = net("fg_fraction: 1 cache_images: true")
    for path in Path("pics").iterdir():
        path.unlink()
    for _ in range(6):
        n.forward()
    label = int(n.blobs["label"].data[0])
    np.testing.assert_array_equal(n.blobs["data"].data[0], warped(images, FOREGROUND[label]))


def run(seed: int = 4, count: int = 5, phase: int = caffe.TRAIN) -> np.ndarray:
    caffe.set_random_seed(seed)
    n = net("fg_fraction: 0.5", "mirror: true", phase)
    found = []
    for _ in range(count):
        n.forward()
        found.append(n.blobs["data"].data.copy())
    n.layers[0].close()
    return np.concatenate(found)


def test_the_seed_decides(images: list[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    first = run()
    monkeypatch.setenv("CAFFE_NUM_THREADS", "5")
    np.testing.assert_array_equal(run(), first)
    assert not np.array_equal(run(seed=5), first)


def test_a_resumed_run_goes_on_as_the_first_would_have(images: list[np.ndarray]) -> None:
    wanted = run()[16:]
    caffe.set_random_seed(4)
    n = net("fg_fraction: 0.5", "mirror: true", caffe.TRAIN)
    n.layers[0].load_state({"position": 16})
    for i in range(3):
        n.forward()
        np.testing.assert_array_equal(n.blobs["data"].data, wanted[8 * i : 8 * i + 8])
    assert n.layers[0].save_state() == {"position": 40}


def test_ranks_draw_different_windows(images: list[np.ndarray]) -> None:
    context.set_solver_count(2)
    found = []
    for rank in (0, 1):
        context.set_solver_rank(rank)
        found.append(run())
    assert not np.array_equal(*found)


def test_scale_is_told_to_have_no_effect(images: list[np.ndarray], caplog: pytest.LogCaptureFixture) -> None:
    n = net("fg_fraction: 1", "scale: 0.5")
    assert "transform_param.scale (=0.5) has no effect" in caplog.text
    n.forward()
    label = int(n.blobs["label"].data[0])
    np.testing.assert_array_equal(n.blobs["data"].data[0], warped(images, FOREGROUND[label]))


# -- what goes wrong ------------------------------------------------------------------------------------

HEAD = "# 0\nimage 0.png\n3\n20\n30\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Window file is empty: windows.txt"),
        ("image 0.png", r'windows.txt:1: "image 0.png": expected "# <index>"'),
        ("# 0\nimage 0.png\n3\n20\n", "windows.txt:1: the file ends within this image's entry"),
        (HEAD + "2\n1 1 0 0 3 3", "windows.txt:1: the file ends within this image's entry"),
        (HEAD + "two", r'windows.txt:6: "two" is no number of windows'),
        ("# 0\nimage 0.png\n3\n-20\n30\n1", r'windows.txt:4: "-20" is no height'),
        ("# 0\nimage 0.png\n1\n20\n30\n0", "windows.txt:3: an image of 1 channels"),
        (HEAD + "2\n1 1 0 0 3 3\n1 1 0 0 3", r'windows.txt:8: "1 1 0 0 3" is no window'),
        (HEAD + "2\n1 1 0 0 3 3\n1 1 0 0 3 x", r'windows.txt:8: "1 1 0 0 3 x" is no window'),
        (HEAD + "1\n1 nan 0 0 3 nan", r'windows.txt:7: "1 nan 0 0 3 nan" is no window'),
        (HEAD + "1\n1 1 0 0 3 99999999999", "windows.txt:7: .* is no window"),
        (HEAD + "2\n1 1 0 0 3 3\n0 0.9 0 0 3 3", "windows.txt:8: a foreground window of class 0"),
        (HEAD + "1\n1 1 0 0 3 3", "windows.txt has no background windows, but 6 of 8"),
        (HEAD + "1\n1 0 0 0 3 3", "windows.txt has no foreground windows, but 2 of 8"),
    ],
)
def test_window_files_that_mean_nothing(images: list[np.ndarray], text: str, message: str) -> None:
    write(text)
    with pytest.raises(DataError, match=rf"layer 'd' \(WindowData\): {message}"):
        net()


def test_a_missing_window_file() -> None:
    with pytest.raises(DataError, match="Failed to open window file windows.txt: No such file"):
        net()


@pytest.mark.parametrize(
    ("param", "transform", "message"),
    [
        ("", "crop_size: 0", "crop_size must be positive"),
        ("context_pad: 5", "", r"context_pad \(=5\) leaves nothing of crop_size \(=10\)"),
        ("batch_size: 0", "", "window_data_param.batch_size must be positive"),
        ('crop_mode: "squar"', "", "crop_mode must be warp or square, not 'squar'"),
        ("fg_fraction: 1.5", "", r"fg_fraction \(=1.5\) must lie in \[0, 1\]"),
    ],
)
def test_impossible_parameters(images: list[np.ndarray], param: str, transform: str, message: str) -> None:
    with pytest.raises(LayerError, match=message):
        net(param, transform)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ("mean_value: 1 mean_value: 2", "Specify either 1 mean_value or as many as channels: 2 given"),
        ('mean_value: 1 mean_file: "m"', "Cannot specify mean_file and mean_value at the same time"),
        ('mean_file: "small"', "has 3 x 9 x 12 values; 3 channels of at least 10 x 10 are needed"),
    ],
)
def test_impossible_means(images: list[np.ndarray], transform: str, message: str) -> None:
    blob = caffe_pb2.BlobProto(num=1, channels=3, height=9, width=12, data=[0.0] * 324)
    Path("small").write_bytes(blob.SerializeToString())
    with pytest.raises(DataError, match=message):
        net(transform=transform)


@pytest.mark.parametrize("window", ["25 3 31 9", "-1 3 9 9", "9 9 5 12"])
def test_a_window_outside_its_image_is_named_by_line(images: list[np.ndarray], window: str) -> None:
    write(HEAD + f"2\n1 1 {window}\n0 0 0 0 9 9")
    with pytest.raises(DataError, match=rf"windows.txt:7: the window {window} \(x1 y1 x2 y2\) lies outside"):
        net().forward()


def test_a_bad_image_is_named_by_line(images: list[np.ndarray]) -> None:
    Path("pics/image 1.png").write_bytes(b"no image")
    n = net()
    with pytest.raises(DataError, match=r"windows.txt:13: Could not load pics/image 1.png: its 8 bytes"):
        for _ in range(20):
            n.forward()
    Path("pics/image 1.png").unlink()
    with pytest.raises(DataError, match="windows.txt:13: Could not open or find file pics/image 1.png"):
        net("cache_images: true")
