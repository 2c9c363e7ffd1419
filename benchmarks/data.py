"""How fast images come out of databases: the Data layer beside plain reads, plain decoding, and torch.

    scripts/bench data [raw|jpeg|training] [--images 2048] [--rounds 7]

raw: Datums of 3 x 256 x 256 bytes, cropped at random to 227, mirrored, less a mean image. Beside a read of
the same bytes through the lmdb package, and torch's DataLoader with two workers over the same LMDB doing
the same in NumPy. Good: 2,500 images a second and more; several times torch.
jpeg: the same images as JPEGs. Beside cv2.imdecode alone on as many threads: the layer does more, so 1.0
is good. With simplejpeg installed, the layer decodes by it.
training: CaffeNet, forward and backward, on the machine's engine, on batches of 32 images of either kind; how
much of an iteration is the Data layer's. Good: below 2 %.

Of raw and jpeg, all candidates run once over all images per round, on images that are in the page cache.
The layer starts and ends each round with all batches read ahead that it may. The second table is of processor
time, all threads together, which a busy machine changes less; there, torch loads in the main process.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import lmdb
import numpy as np
from google.protobuf import text_format

import caffe
import harness
from caffe.db import open_db
from caffe.proto import caffe_pb2

SIZE, CROP, BATCH, PREFETCH = 256, 227, 64, 4
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def write(path: Path, count: int, encoded: bool) -> None:
    """Images with some structure, so that JPEG has about the work of photographs."""
    rng = np.random.default_rng(0)
    with open_db(str(path), "lmdb", "new") as db:
        transaction = db.transaction()
        for i in range(count):
            noise = rng.integers(0, 256, (SIZE // 4, SIZE // 4, 3), dtype=np.uint8)
            image = cv2.resize(noise, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC)
            datum = caffe_pb2.Datum(label=i % 1000, encoded=encoded)
            if encoded:
                datum.data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()
            else:
                datum.channels, datum.height, datum.width = 3, SIZE, SIZE
                datum.data = image.transpose(2, 0, 1).tobytes()
            transaction.put(b"%08d" % i, datum.SerializeToString())
            if i % 256 == 255:
                transaction.commit()
        transaction.commit()
    mean = caffe_pb2.BlobProto(num=1, channels=3, height=SIZE, width=SIZE)
    mean.data.extend(rng.uniform(0, 255, 3 * SIZE * SIZE).astype(np.float32).tolist())
    path.with_suffix(".binaryproto").write_bytes(mean.SerializeToString())


def make_net(path: Path) -> caffe.Net:
    text = f"""layer {{ name: "data" type: "Data" top: "data" top: "label"
        transform_param {{ crop_size: {CROP} mirror: true mean_file: "{path.with_suffix(".binaryproto")}" }}
        data_param {{ source: "{path}" backend: LMDB batch_size: {BATCH} prefetch: {PREFETCH} }} }}"""
    return caffe.Net(text_format.Parse(text, caffe_pb2.NetParameter()), caffe.TRAIN)


def make_layer(path: Path, count: int) -> Callable[[], object]:
    net = make_net(path)
    shared = net.layers[0]._reader._shared

    def run() -> None:
        for _ in range(count // BATCH):
            net.run_forward()
        with shared.changed:  # as many batches are ready as at the start, so that as many were made
            shared.changed.wait_for(lambda: len(shared._ready) == PREFETCH)

    return run


def make_plain_read(path: Path) -> Callable[[], object]:
    def run() -> int:
        size = 0
        with lmdb.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
            for _, value in txn.cursor():
                size += len(bytes(value))
        return size

    return run


def make_decode(path: Path) -> Callable[[], object]:
    """cv2.imdecode on all cores, and nothing else."""
    with lmdb.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        files = [np.frombuffer(caffe_pb2.Datum.FromString(v).data, np.uint8) for _, v in txn.cursor()]
    pool = ThreadPoolExecutor(THREADS)

    def decode(part: int) -> None:
        for file in files[part::THREADS]:
            cv2.imdecode(file, cv2.IMREAD_UNCHANGED)

    return lambda: list(pool.map(decode, range(THREADS)))


def make_torch(path: Path, count: int, workers: int) -> Callable[[], object]:
    import torch
    from torch.utils.data import DataLoader, Dataset

    mean = caffe_pb2.BlobProto.FromString(path.with_suffix(".binaryproto").read_bytes())
    mean_image = np.array(mean.data, np.float32).reshape(3, SIZE, SIZE)

    class Images(Dataset):
        def __init__(self) -> None:
            self.env = None

        def __len__(self) -> int:
            return count

        def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
            if self.env is None:
                self.env = lmdb.open(str(path), readonly=True, lock=False)
                self.txn = self.env.begin()
            datum = caffe_pb2.Datum.FromString(self.txn.get(b"%08d" % i))
            if datum.encoded:
                pixels = cv2.imdecode(np.frombuffer(datum.data, np.uint8), cv2.IMREAD_UNCHANGED)
                image = pixels.transpose(2, 0, 1)
            else:
                image = np.frombuffer(datum.data, np.uint8).reshape(3, SIZE, SIZE)
            row, column = np.random.randint(0, SIZE - CROP + 1, 2)
            place = np.s_[:, row : row + CROP, column : column + CROP]
            cut = image[place].astype(np.float32) - mean_image[place]
            if np.random.rand() < 0.5:
                cut = np.ascontiguousarray(cut[:, :, ::-1])
            return torch.from_numpy(cut), datum.label

        def close(self) -> None:
            """So that another candidate in this process may open the database."""
            if self.env is not None:
                self.env.close()
                self.env = None

    images = Images()
    loader = DataLoader(images, BATCH, num_workers=workers, persistent_workers=workers > 0)

    def run() -> None:
        for _ in loader:
            pass
        images.close()

    return run


TITLES = {
    "raw": f"raw Datums of 3 x {SIZE} x {SIZE}, random crop {CROP}, mirror, mean image",
    "jpeg": f"JPEGs of {SIZE} x {SIZE}, random crop {CROP}, mirror, mean image",
}


def training(path: Path, iterations: int) -> str:
    """What share of CaffeNet's iterations the Data layer takes."""
    net_param = caffe_pb2.NetParameter()
    models = Path(__file__).parents[1] / "models"
    text_format.Parse((models / "bvlc_reference_caffenet" / "train_val.prototxt").read_text(), net_param)
    data = net_param.layer[0].data_param
    data.source, data.batch_size = str(path), 32
    net = caffe.Net(net_param, caffe.TRAIN)
    layer = net.layers[0]
    plain, spent = layer.forward, [0.0]

    def timed(*blobs: object) -> None:
        begun = time.perf_counter()
        plain(*blobs)
        spent[0] += time.perf_counter() - begun

    layer.forward = timed
    whole = []
    for i in range(iterations + 2):  # two to warm up
        if i == 2:
            spent[0] = 0.0
        begun = time.perf_counter()
        net.run_forward()
        net.run_backward()
        whole.append(time.perf_counter() - begun)
    layer.close()
    each, own = sum(whole[2:]) / iterations, spent[0] / iterations
    share = f"of which the Data layer takes {own * 1e3:.1f} ms: {own / each:.2%}"
    return f"{each * 1e3:.0f} ms an iteration, {share}"


def main() -> None:
    kinds = (*TITLES, "training")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(kinds)} (default: all)")
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(harness.machine())
    count = options.images // BATCH * BATCH
    for kind in options.kinds or kinds:
        for encoded in (False, True) if kind == "training" else (kind == "jpeg",):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "images_lmdb"
                write(path, count, encoded)
                if kind == "training":
                    print(
                        f"CaffeNet, {'JPEGs' if encoded else 'raw Datums'}: {training(path, options.rounds)}"
                    )
                else:
                    side_by_side(kind, path, count, options.rounds)


def side_by_side(kind: str, path: Path, count: int, rounds: int) -> None:
    candidates = {
        "Data layer": lambda: make_layer(path, count),
        "torch DataLoader": lambda: make_torch(path, count, workers=2),
        "plain read": lambda: make_plain_read(path),
    }
    baseline = "plain read"
    if kind == "jpeg":
        candidates["cv2.imdecode"] = lambda: make_decode(path)
        baseline = "cv2.imdecode"
    results = harness.compare(candidates, rounds=rounds, warm_up=1)
    print(harness.report(f"{TITLES[kind]}: {count} images", results, baseline=baseline))
    for name, result in results.items():
        if not result.absent:
            print(f"  {name}: {count / result.median:,.0f} images/s")
    candidates["torch DataLoader"] = lambda: make_torch(path, count, workers=0)
    results = harness.compare(candidates, rounds=rounds, warm_up=1, clock=time.process_time)
    print(harness.report("processor time of the same", results, baseline=baseline))
    for name, result in results.items():
        if not result.absent:
            print(f"  {name}: {result.median / count * 1e6:,.0f} us an image")


if __name__ == "__main__":
    main()
