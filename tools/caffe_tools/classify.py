"""caffe classify: a net's answers for images, as the original's classify.py wrote them."""

from __future__ import annotations

import time
from pathlib import Path

import click
import numpy as np

from caffe import io
from caffe.classifier import Classifier
from caffe.errors import CaffeError, DataError

from .flags import choose_device


def network_options(function: click.decorators.FC) -> click.decorators.FC:
    """The flags that classify and detect share: the net, and how images are made ready for it."""
    for decorate in (
        click.option(
            "-channel_swap",
            "--channel_swap",
            default="2,1,0",
            show_default=True,
            help="Order of channels, where load_image gives red, green, blue.",
        ),
        click.option(
            "-raw_scale",
            "--raw_scale",
            type=float,
            default=255.0,
            show_default=True,
            help="Factor before the mean is subtracted.",
        ),
        click.option(
            "-input_scale", "--input_scale", type=float, help="Factor after the mean is subtracted."
        ),
        click.option(
            "-mean_file",
            "--mean_file",
            default="",
            help="Mean to subtract: .npy with (C, H, W) or (C), .binaryproto, or numbers separated by ','.",
        ),
        click.option("-gpu", "--gpu", is_flag=True, help="Run on the GPU."),
        click.option(
            "-pretrained_model", "--pretrained_model", required=True, help="The .caffemodel or .h5."
        ),
        click.option("-model_def", "--model_def", required=True, help="The prototxt of the net."),
    ):
        function = decorate(function)
    return function


@click.command("classify")
@click.argument("input_file", type=click.Path(path_type=Path))
@click.argument("output_file", type=click.Path())
@network_options
@click.option(
    "-center_only", "--center_only", is_flag=True, help="The crop from the middle alone, not ten crops."
)
@click.option(
    "-images_dim",
    "--images_dim",
    default="256,256",
    show_default=True,
    help="Height and width to resize images to.",
)
@click.option("-ext", "--ext", default="jpg", show_default=True, help="Ending of the images in a folder.")
def command(
    input_file: Path,
    output_file: str,
    model_def: str,
    pretrained_model: str,
    gpu: bool,
    mean_file: str,
    input_scale: float | None,
    raw_scale: float | None,
    channel_swap: str,
    center_only: bool,
    images_dim: str,
    ext: str,
) -> None:
    """Classify INPUT_FILE, an image, a folder of images, or a .npy with images (N, H, W, C), and save the
    net's output (N, ...) as OUTPUT_FILE (.npy)."""
    choose_device("0" if gpu else "")
    classifier = Classifier(
        model_def,
        pretrained_model,
        image_dims=numbers(images_dim, "images_dim", 2),
        mean=read_mean(mean_file),
        input_scale=input_scale,
        raw_scale=raw_scale,
        channel_swap=numbers(channel_swap, "channel_swap") or None,
    )
    images = _images(input_file, ext)
    click.echo(f"Classifying {len(images)} inputs.")
    begun = time.perf_counter()
    predictions = classifier.predict(images, not center_only)
    click.echo(f"Done in {time.perf_counter() - begun:.2f} s.")
    click.echo(f"Saving results into {output_file}")
    try:
        np.save(output_file, predictions)
    except OSError as error:
        raise CaffeError(f"cannot write {output_file}: {error.strerror}") from error


def _images(path: Path, ext: str) -> list[np.ndarray]:
    if path.suffix == ".npy":
        click.echo(f"Loading file: {path}")
        return list(load_array(path))
    if path.is_dir():
        click.echo(f"Loading folder: {path}")
        pattern = f"*.{ext.removeprefix('.')}"
        files = sorted(path.glob(pattern))
        if not files:
            raise DataError(f"{path} holds no {pattern}; -ext says another ending")
        return [io.load_image(file) for file in files]
    click.echo(f"Loading file: {path}")
    return [io.load_image(path)]


def load_array(path: str | Path) -> np.ndarray:
    try:
        return np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def numbers(text: str, flag: str, count: int | None = None) -> list[int]:
    """ "2,1,0" as numbers, of which there must be so many."""
    try:
        values = [int(word) for word in text.split(",") if word.strip()]
    except ValueError as error:
        raise click.UsageError(f"-{flag} must be whole numbers separated by ',', not {text!r}") from error
    if count is not None and len(values) != count:
        raise click.UsageError(f"-{flag} must be {count} numbers, not {text!r}")
    return values


def read_mean(text: str) -> np.ndarray | None:
    """The mean that -mean_file names."""
    if not text:
        return None
    if text.endswith(".npy"):
        return load_array(text)
    if text.endswith(".binaryproto"):
        from caffe.data_transformer import read_mean as from_binaryproto

        return from_binaryproto(text)
    try:
        return np.array([float(word) for word in text.split(",")])
    except ValueError as error:
        raise click.UsageError(
            f"-mean_file must be a .npy, a .binaryproto or numbers, not {text!r}"
        ) from error
