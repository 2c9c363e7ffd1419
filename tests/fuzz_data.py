"""Damaged data, thousands of times: python fuzz_data.py KIND CASES SEED

KIND: datum, hdf5 or mean (databases: see db/). Each case changes something valid at random and reads it.
Whatever comes must be read or refused by an exception of this project, in bounded memory; the first case that
does otherwise is described on stderr, and the exit status is 1. A process of its own, so that a crash in a
library is seen as what it is. test_fuzz_data.py runs it.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from google.protobuf import text_format

import caffe
from caffe.data_transformer import DataTransformer, read_mean
from caffe.datum import DatumParser
from caffe.errors import CaffeError
from caffe.proto import caffe_pb2

GOLDEN = Path(__file__).parent / "golden" / "data"
MEMORY = 400 << 20  # bytes that reading damaged data of a few kilobytes may cost
SECONDS = 20  # for one case
_WORDS = [b"\0" * 8, b"\xff" * 8, b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\1", b"\x7f", b"\x80"]

Read = Callable[[np.random.Generator], object]


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """data with some bytes changed, cut off, taken out, doubled or put in."""
    out = bytearray(data)
    for _ in range(int(rng.choice([1, 1, 1, 2, 5, 40]))):
        if not out:
            break
        at = int(rng.integers(len(out)))
        match rng.integers(7):
            case 0 | 1:
                out[at] = rng.integers(256)
            case 2:
                out[at] ^= 1 << int(rng.integers(8))
            case 3:
                word = _WORDS[rng.integers(len(_WORDS))]
                out[at : at + len(word)] = word
            case 4:
                del out[at : at + int(rng.integers(1, 64))]
            case 5:
                out[at:at] = out[at : at + int(rng.integers(1, 64))]
            case 6:
                if rng.random() < 0.3:
                    del out[at:]
    return bytes(out)


def some_datum(rng: np.random.Generator) -> bytes:
    image = rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)
    datum = caffe_pb2.Datum(label=int(rng.integers(10)))
    kind = rng.integers(4)
    if kind < 2:
        datum.encoded = True
        datum.data = cv2.imencode((".png", ".jpg")[kind], image)[1].tobytes()
        return datum.SerializeToString()
    datum.channels, datum.height, datum.width = 3, 6, 5
    if kind == 2:
        datum.data = image.tobytes()
    else:
        datum.float_data.extend(image.ravel().astype(float).tolist())
    return datum.SerializeToString()


def datums() -> Read:
    transformer = DataTransformer(
        caffe_pb2.TransformationParameter(crop_size=4, mean_value=[3], mirror=True), caffe_pb2.TRAIN
    )
    parser = DatumParser()

    def read(rng: np.random.Generator) -> object:
        value = damaged(some_datum(rng), rng) if rng.random() < 0.8 else rng.bytes(int(rng.integers(80)))
        image = transformer.image(parser.parse(value))
        out = np.empty((1, *transformer.output_shape(image.shape)), np.float32)
        transformer.transform_batch([image], out, rng.integers(0, 2**32, (1, 3), dtype=np.uint32))
        return out

    return read


def hdf5() -> Read:
    files = [(GOLDEN / "hdf5" / f"f{i}.h5").read_bytes() for i in range(3)]
    Path("list.txt").write_text("f.h5\n")
    tops = "".join(f'top: "{name}" ' for name in ("data", "label", "gz", "i64"))
    param = 'hdf5_data_param { source: "list.txt" batch_size: 2 }'
    text = f'layer {{ name: "d" type: "HDF5Data" {tops} {param} }}'
    net = text_format.Parse(text, caffe_pb2.NetParameter())

    def read(rng: np.random.Generator) -> object:
        data = files[rng.integers(3)]
        Path("f.h5").write_bytes(damaged(data, rng) if rng.random() < 0.95 else rng.bytes(2000))
        made = caffe.Net(net, caffe.TEST)
        for _ in range(4):
            made.forward()
        return made

    return read


def mean() -> Read:
    data = (GOLDEN / "mean_raw.binaryproto").read_bytes()

    def read(rng: np.random.Generator) -> object:
        value = damaged(data[:60], rng) + data[60:] if rng.random() < 0.5 else damaged(data, rng)
        Path("mean").write_bytes(value)
        return read_mean("mean")

    return read


KINDS: dict[str, Callable[[], Read]] = {
    "datum": datums,
    "hdf5": hdf5,
    "mean": mean,
}


def main(kind: str, cases: int, seed: int) -> int:
    # OpenCV's and libjpeg's own words about each damaged image would bury ours.
    quiet = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        read = KINDS[kind]()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        refused, fault = 0, ""
        for case in range(cases):
            begun = time.monotonic()
            try:
                read(np.random.default_rng([seed, case]))
            except CaffeError as error:
                refused += bool(str(error))
            except BaseException:
                fault = traceback.format_exc()
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
            if used > MEMORY:
                fault = fault or f"{used >> 20} MiB of memory"
            if time.monotonic() - begun > SECONDS:
                fault = fault or f"{time.monotonic() - begun:.0f} s"
            if fault:
                os.write(quiet, f"{kind}, case {case} of seed {seed}: {fault}\n".encode())
                return 1
        os.chdir("/")
    print(f"{kind}: {cases} cases, {refused} refused, {used >> 20} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
