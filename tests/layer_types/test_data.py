"""Data: what the net sees of a database. (Values of the original: tests/test_golden_data.py.)"""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import cv2
import numpy as np
import pytest
from google.protobuf import text_format

import caffe
from caffe import context, prefetch
from caffe.db import open_db
from caffe.errors import DataError, ForkError, LayerError
from caffe.proto import caffe_pb2

SHAPE = (2, 5, 6)


def write(path: Path, images: list[np.ndarray], backend: str = "lmdb") -> list[np.ndarray]:
    """A database of these images (C, H, W), with labels 0, 1, 2 ..."""
    with open_db(str(path), backend, "new") as db:
        transaction = db.transaction()
        for i, image in enumerate(images):
            c, h, w = image.shape
            datum = caffe_pb2.Datum(channels=c, height=h, width=w, label=i, data=image.tobytes())
            transaction.put(b"%05d" % i, datum.SerializeToString())
        transaction.commit()
    return images


@pytest.fixture
def images(tmp_path: Path, rng: np.random.Generator) -> list[np.ndarray]:
    return write(tmp_path / "db", [rng.integers(0, 256, SHAPE, dtype=np.uint8) for _ in range(7)])


def net(
    data: str = "",
    transform: str = "",
    phase: int = caffe.TEST,
    top: str = 'top: "data" top: "label"',
    **more: str,
) -> caffe.Net:
    source = more.get("source", "db")
    text = f"""layer {{ name: "d" type: "Data" {top} transform_param {{ {transform} }}
        data_param {{ source: "{source}" backend: LMDB batch_size: 3 {data} }} }}"""
    return caffe.Net(text_format.Merge(text, caffe_pb2.NetParameter()), phase)  # the last field counts


def batches(net: caffe.Net, count: int) -> tuple[np.ndarray, list[int]]:
    data, labels = [], []
    for _ in range(count):
        net.forward()
        data.append(net.blobs["data"].data.copy())
        labels += net.blobs["label"].data.astype(int).tolist()
    return np.concatenate(data), labels


def test_batches_in_order_with_labels(images: list[np.ndarray]) -> None:
    n = net()
    assert n.blobs["data"].shape == (3, *SHAPE)
    assert n.blobs["label"].shape == (3,)
    data, labels = batches(n, 5)
    assert labels == [i % 7 for i in range(15)]
    np.testing.assert_array_equal(data, [images[i] for i in labels])


def test_a_batch_larger_than_the_database(images: list[np.ndarray]) -> None:
    data, labels = batches(net("batch_size: 16"), 1)
    assert labels == [i % 7 for i in range(16)]
    np.testing.assert_array_equal(data, [images[i] for i in labels])


def test_one_top(images: list[np.ndarray]) -> None:
    n = net(top='top: "data"')
    n.forward()
    np.testing.assert_array_equal(n.blobs["data"].data, images[:3])


def random_run(count: int = 6, seed: int = 5, **options: str) -> tuple[np.ndarray, list[int]]:
    caffe.set_random_seed(seed)
    n = net(transform="crop_size: 3 mirror: true", phase=caffe.TRAIN, **options)
    try:
        return batches(n, count)
    finally:
        n.layers[0].close()


def test_random_crops_are_cuts_of_the_image(images: list[np.ndarray]) -> None:
    data, labels = random_run(30)
    places = set()
    for cut, label in zip(data, labels, strict=True):
        found = [
            (row, column, flip)
            for row in range(3)
            for column in range(4)
            for flip in (False, True)
            if np.array_equal(
                cut[:, :, ::-1] if flip else cut, images[label][:, row : row + 3, column : column + 3]
            )
        ]
        assert len(found) == 1
        places.add(found[0])
    assert len(places) == 24  # of 90 draws, all places and both ways


def test_random_numbers_depend_on_the_seed_and_not_on_prefetch(images: list[np.ndarray]) -> None:
    first = random_run()
    for other in (random_run(data="prefetch: 1"), random_run(data="prefetch: 9")):
        np.testing.assert_array_equal(other[0], first[0])
    assert not np.array_equal(random_run(seed=6)[0], first[0])


def test_encoded_images_are_decoded_by_several_threads_with_the_same_result(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAFFE_NUM_THREADS", "4")
    with open_db("db", "lmdb", "new") as db:
        transaction = db.transaction()
        for i in range(7):
            png = cv2.imencode(".png", rng.integers(0, 256, (8, 9, 3), dtype=np.uint8))[1].tobytes()
            transaction.put(b"%d" % i, caffe_pb2.Datum(encoded=True, data=png, label=i).SerializeToString())
        transaction.commit()
    one = random_run(data="prefetch: 1", count=20)
    several = random_run(data="prefetch: 6", count=20)
    assert several[1] == one[1] == [i % 7 for i in range(60)]
    np.testing.assert_array_equal(several[0], one[0])


def test_going_on_from_a_position_gives_the_same_batches(images: list[np.ndarray]) -> None:
    caffe.set_random_seed(5)
    n = net(transform="crop_size: 3 mirror: true", phase=caffe.TRAIN)
    layer = n.layers[0]
    batches(n, 4)
    state = layer.save_state()
    assert state == {"position": 12}  # batches read ahead do not count
    wanted, labels = batches(n, 4)
    caffe.set_random_seed(6)
    again = net(transform="crop_size: 3 mirror: true", phase=caffe.TRAIN)
    batches(again, 1)
    again.run.reseed(n.run.seed)
    again.layers[0].load_state(state)
    found, found_labels = batches(again, 4)
    assert found_labels == labels
    np.testing.assert_array_equal(found, wanted)


def test_ranks_share_the_records_when_training_and_not_when_testing(images: list[np.ndarray]) -> None:
    context.set_solver_count(2)
    seen = []
    for rank in (0, 1):
        context.set_solver_rank(rank)
        labels = batches(net(phase=caffe.TRAIN), 3)[1]
        assert labels == [(rank + 2 * i) % 7 for i in range(9)]
        seen += labels
        assert batches(net(phase=caffe.TEST), 1)[1] == [0, 1, 2]
    assert sorted(seen) == sorted(i % 7 for i in range(18))


def test_rand_skip_begins_somewhere_and_repeats_with_the_seed(images: list[np.ndarray]) -> None:
    starts = []
    for seed in (1, 1, 2, 3, 4, 5, 6, 7, 8):
        caffe.set_random_seed(seed)
        starts.append(batches(net("rand_skip: 4"), 1)[1][0])
    assert starts[0] == starts[1]
    assert set(starts) <= {0, 1, 2, 3}
    assert len(set(starts)) > 1


def test_each_batch_may_have_a_size_of_its_own(tmp_path: Path, rng: np.random.Generator) -> None:
    sizes = [(1, 4, 4), (1, 6, 3), (1, 2, 2)]
    images = write(tmp_path / "db", [rng.integers(0, 256, s, dtype=np.uint8) for s in sizes])
    text = """layer { name: "d" type: "Data" top: "data"
                      data_param { source: "db" backend: LMDB batch_size: 1 } }
              layer { name: "p" type: "Power" bottom: "data" top: "p" power_param { scale: 2 } }"""
    n = caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TEST)
    for i in (0, 1, 2, 0, 1):
        n.forward()
        np.testing.assert_array_equal(n.blobs["p"].data, 2.0 * images[i][None])


def test_a_view_held_over_passes_sees_each_batch(images: list[np.ndarray]) -> None:
    n = net()
    view = n.blobs["data"].data
    for start in (0, 3):
        n.forward()
        np.testing.assert_array_equal(view, images[start : start + 3])


@pytest.mark.parametrize(("copied", "arrays"), [(0, 2), (1 << 16, 1)])
def test_batches_are_handed_over(
    images: list[np.ndarray], copied: int, arrays: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory goes round: what a top has was a batch's, unless somebody holds a view of it. Few numbers
    are copied, so that they lie where those before lay."""
    monkeypatch.setattr(prefetch, "_COPIED", copied)
    n = net("prefetch: 2")
    seen = set()
    for i in range(30):
        n.forward()
        blob = n.blobs["data"]
        np.testing.assert_array_equal(blob.cpu_data(), [images[(3 * i + k) % 7] for k in range(3)])
        seen.add(blob.cpu_data().ctypes.data)
    assert len(seen) == arrays  # the top's and the one that is made; small raw images are not read ahead
    view = n.blobs["data"].data
    for i in range(30, 40):
        n.forward()
        np.testing.assert_array_equal(view, [images[(3 * i + k) % 7] for k in range(3)])


def test_what_a_user_wrote_is_overwritten(images: list[np.ndarray]) -> None:
    n = net()
    n.blobs["data"].data[...] = -1
    n.forward()
    np.testing.assert_array_equal(n.blobs["data"].data, images[:3])


def test_the_net_gone_the_thread_is_gone(tmp_path: Path, rng: np.random.Generator) -> None:
    write(tmp_path / "db", [rng.integers(0, 256, (3, 120, 120), dtype=np.uint8) for _ in range(4)])
    gc.collect()  # nets of other tests
    before = threading.active_count()
    n = net()
    n.forward()
    assert threading.active_count() == before + 1
    del n
    gc.collect()
    assert threading.active_count() == before


def test_small_raw_images_need_no_thread(images: list[np.ndarray]) -> None:
    gc.collect()
    before = threading.active_count()
    n = net()
    batches(n, 4)
    assert threading.active_count() == before
    assert n.layers[0].peek() is None  # nothing is read ahead


def test_an_embedded_data_set() -> None:
    n = net(source="dataset://digits/test")
    assert n.blobs["data"].shape == (3, 1, 8, 8)
    n.forward()
    assert 0 <= n.blobs["data"].data.min() <= n.blobs["data"].data.max() <= 255


# -- what goes wrong ------------------------------------------------------------------------------------


def test_a_missing_database_names_layer_path_and_cure() -> None:
    with pytest.raises(
        DataError, match=r"layer 'd' \(Data\): LMDB 'none': No such file.*relative to"
    ) as caught:
        net(source="none")
    assert os.getcwd() in str(caught.value)


@pytest.mark.parametrize("field", ["batch_size", "prefetch"])
def test_numbers_must_be_positive(images: list[np.ndarray], field: str) -> None:
    with pytest.raises(LayerError, match=rf"layer 'd'.*data_param.{field} must be positive"):
        net(f"{field}: 0")


def test_more_batches_ahead_than_memory_holds(images: list[np.ndarray]) -> None:
    """Refused before any is made."""
    with pytest.raises(LayerError, match=r"layer 'd'.*prefetch \(=4294967295\): so many batches of"):
        net("prefetch: 4294967295")


def test_no_source() -> None:
    with pytest.raises(DataError, match="data_param has no source"):
        net(source="")


@pytest.mark.parametrize("first", [True, False], ids=["first record", "later record"])
def test_a_damaged_record_is_named(tmp_path: Path, images: list[np.ndarray], first: bool) -> None:
    with open_db("db", "lmdb", "write") as db:
        transaction = db.transaction()
        transaction.put(b"00000" if first else b"00004", b"\xff\xff")
        transaction.commit()
    with pytest.raises(
        DataError, match=f"layer 'd' .Data.: record b'0000{0 if first else 4}': this is no Datum"
    ):
        batches(net(), 2)


def test_an_image_of_another_size_is_named(tmp_path: Path, rng: np.random.Generator) -> None:
    sizes = [(1, 4, 4), (1, 4, 4), (1, 5, 4)]
    write(tmp_path / "db", [rng.integers(0, 256, s, dtype=np.uint8) for s in sizes])
    with pytest.raises(
        DataError, match=r"record b'00002' gives 1 x 5 x 4 .* batch has 1 x 4 x 4.*set crop_size"
    ):
        net().forward()


def test_encoded_images_that_cannot_be_decoded_are_named(tmp_path: Path) -> None:
    good = cv2.imencode(".png", np.zeros((4, 4), np.uint8))[1].tobytes()
    with open_db("db", "lmdb", "new") as db:
        transaction = db.transaction()
        for i, data in enumerate([good, good, good[:20]]):
            transaction.put(b"%d" % i, caffe_pb2.Datum(encoded=True, data=data).SerializeToString())
        transaction.commit()
    with pytest.raises(DataError, match="record b'2': Could not decode datum"):
        net().forward()


def test_a_forked_child_is_told_so(images: list[np.ndarray]) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("needs os.fork")
    n = net()
    n.forward()
    pid = os.fork()
    if pid == 0:
        try:
            n.forward()
        except ForkError as error:
            os._exit(0 if "before fork" in str(error) else 3)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    n.forward()
    assert n.blobs["label"].data.tolist() == [3, 4, 5]


def test_force_encoded_color_is_the_older_force_color(tmp_path: Path, rng: np.random.Generator) -> None:
    grey = rng.integers(0, 256, (5, 6), dtype=np.uint8)
    with open_db(str(tmp_path / "db"), "lmdb", "new") as db:
        transaction = db.transaction()
        encoded = cv2.imencode(".png", grey)[1].tobytes()
        transaction.put(b"0", caffe_pb2.Datum(data=encoded, encoded=True).SerializeToString())
        transaction.commit()
    for fields in ({}, {"data": "force_encoded_color: true"}, {"transform": "force_color: true"}):
        channels = 3 if fields else 1
        assert net(**fields).blobs["data"].shape == (3, channels, 5, 6)
