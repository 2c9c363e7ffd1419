"""caffe detect: a net's answers for windows of images, as the original's detect.py wrote them."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import click
import h5py
import numpy as np

from caffe.detector import Detector
from caffe.errors import CaffeError, DataError

from .classify import network_options, numbers, read_mean
from .flags import choose_device

_COLUMNS = ("ymin", "xmin", "ymax", "xmax")

Windows = list[tuple[str, list[list[float]]]]


@click.command("detect")
@click.argument("input_file", type=click.Path(path_type=Path))
@click.argument("output_file", type=click.Path(path_type=Path))
@network_options
@click.option(
    "-crop_mode",
    "--crop_mode",
    type=click.Choice(["list", "selective_search"]),
    default="selective_search",
    show_default=True,
    help="How windows are found: listed in the input, or proposed by selective search.",
)
@click.option(
    "-context_pad",
    "--context_pad",
    type=int,
    default=16,
    show_default=True,
    help="Pixels of the input on each side that show what surrounds a window.",
)
def command(
    input_file: Path,
    output_file: Path,
    model_def: str,
    pretrained_model: str,
    gpu: bool,
    mean_file: str,
    input_scale: float | None,
    raw_scale: float | None,
    channel_swap: str,
    crop_mode: str,
    context_pad: int,
) -> None:
    """Classify windows of the images that INPUT_FILE lists, and write the results to OUTPUT_FILE.

    INPUT_FILE: for selective search the names of images, one to a line; for a list CSV with the columns
    filename, ymin, xmin, ymax, xmax. OUTPUT_FILE: .csv with those columns and class0, class1, ...; or .h5
    with the datasets filename, window (N, 4) and prediction (N, ...).
    """
    if output_file.suffix.lower() not in (".csv", ".h5"):
        raise click.UsageError(f"{output_file}: the output must be a .csv or .h5")
    choose_device("0" if gpu else "")
    detector = Detector(
        model_def,
        pretrained_model,
        mean=_by_channel(read_mean(mean_file)),
        input_scale=input_scale,
        raw_scale=raw_scale,
        channel_swap=numbers(channel_swap, "channel_swap") or None,
        context_pad=context_pad,
    )
    click.echo("Loading input...")
    begun = time.perf_counter()
    if crop_mode == "list":
        detections = detector.detect_windows(_windows(input_file))
    else:
        names = [line.strip() for line in _read(input_file).splitlines()]
        detections = detector.detect_selective_search([name for name in names if name])
    click.echo(f"Processed {len(detections)} windows in {time.perf_counter() - begun:.3f} s.")
    if not detections:
        raise DataError(f"{input_file} lists no windows")
    try:
        (_write_csv if output_file.suffix.lower() == ".csv" else _write_hdf5)(output_file, detections)
    except OSError as error:
        raise CaffeError(f"cannot write {output_file}: {error}") from error
    click.echo(f"Saved to {output_file}")


def _by_channel(mean: np.ndarray | None) -> np.ndarray | None:
    """Of a mean image, which says nothing of places in a window, the value for each channel (as in the
    original)."""
    return mean if mean is None or mean.ndim < 3 else mean.mean(axis=(-2, -1)).reshape(-1)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _windows(path: Path) -> Windows:
    """The images in the order of their first windows."""
    reader = csv.DictReader(_read(path).splitlines())
    missing = {"filename", *_COLUMNS} - {*(reader.fieldnames or ())}
    if missing:
        raise DataError(f"{path}: the heading lacks {', '.join(sorted(missing))}")
    images: dict[str, list[list[float]]] = {}
    for row in reader:
        try:
            window = [float(row[name]) for name in _COLUMNS]
        except (TypeError, ValueError) as error:
            raise DataError(f"{path}:{reader.line_num}: a window is four numbers: {error}") from error
        images.setdefault(row["filename"], []).append(window)
    return list(images.items())


def _write_csv(path: Path, detections: list[dict[str, Any]]) -> None:
    classes = [f"class{k}" for k in range(np.size(detections[0]["prediction"]))]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["filename", *_COLUMNS, *classes])
        for found in detections:
            writer.writerow([found["filename"], *found["window"], *np.ravel(found["prediction"]).tolist()])


def _write_hdf5(path: Path, detections: list[dict[str, Any]]) -> None:
    with h5py.File(path, "w") as file:
        file["filename"] = [str(found["filename"]) for found in detections]
        file["window"] = np.array([found["window"] for found in detections], np.float64)
        file["prediction"] = np.stack([found["prediction"] for found in detections])
