"""caffe model: the reference models, and public weights for them."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import click

from caffe import models
from caffe.download import RemoteFile, checksum, download, matches, stated_size
from caffe.errors import DataError, ProtoError, WireError, closest
from caffe.net import Net
from caffe.net_summary import table
from caffe.proto import caffe_pb2
from caffe.wire import read_net_binary

from .download_bar import download_bar
from .public_models import WEIGHTS, PublicWeights
from .quiet import shapes_only

log = logging.getLogger("caffe.tools")

# Fields of prototxts that name files. Data sets that ship with the package are no files.
_SOURCE = re.compile(r'\b(source|mean_file): "(?!dataset://)([^"]*)"')
_OWN = re.compile(r'\b(net|snapshot_prefix): "([^"]*)"')
_WRITTEN = re.compile(r"^# Written by .*\n", re.MULTILINE)


@click.group("model")
def command() -> None:
    """Reference models: what there is, copies to train, public weights."""


@command.command("list", short_help="what there is")
def list_models() -> None:
    """The reference models, with parameters and multiply-adds for one item."""
    rows = []
    for name in models.list():
        with shapes_only():
            summary = models.summary(name)
        weights = "weights" if name in WEIGHTS else ""
        rows.append((name, f"{summary.parameters:,}", f"{summary.multiply_adds:,}", weights))
    _print([("model", "parameters", "multiply-adds", "fetch"), *rows], "<>><")


@command.command("show", short_help="layer by layer")
@click.argument("name")
def show(name: str) -> None:
    """The layers of a model for use: shapes, parameters, multiply-adds of its batch. NAME: one that
    `caffe model list` shows."""
    with shapes_only():
        net = Net(str(models.path(name, "deploy.prototxt")), phase=caffe_pb2.TEST)
    _print(table(net), "<<<<>>")
    click.echo(f"\n{models.summary(net)}")


def _print(rows: list[tuple[str, ...]], align: str) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:{a}{width}}" for cell, a, width in zip(row, align, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


@command.command("new", short_help="a copy to train")
@click.argument("name")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Where databases, lists and mean files are sought, by their names.  [default: FOLDER]",
)
def new(name: str, folder: Path, data: Path | None) -> None:
    """Copy a model into FOLDER, new or empty, with the paths in its files led there.

    The readme in FOLDER says how to get the data.
    """
    for path in (folder, data or folder):
        if bad := re.search(r'["\\\x00-\x1f]', str(path)):
            raise DataError(
                f"{str(path)!r}: a prototxt cannot well name a path with {bad[0]!r}; choose another"
            )
    texts = _relocated(name, folder, data or folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is there already and is not an empty folder; choose another name")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write {error.filename or folder}: {error.strerror or error}") from error
    solver = shlex.quote(str(folder / "solver.prototxt"))
    log.info("Wrote %s. To train it: caffe train -solver %s", folder, solver)


def _relocated(name: str, folder: Path, data: Path) -> dict[str, str]:
    """The texts of a model as they are to be in folder. The script that writes the prototxts stays behind:
    it needs what is beside it."""
    source = models.path(name)
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(source.iterdir())
        if path.suffix in (".md", ".prototxt", ".py") and path.stem != name
    }
    prototxts = [file for file in texts if file.endswith(".prototxt")]
    sources = [Path(match[2]) for file in prototxts for match in _SOURCE.finditer(texts[file])]
    here, there = folder.as_posix(), data.as_posix()
    for file, text in texts.items():
        if file in prototxts:
            text = _WRITTEN.sub("", text)
            text = _SOURCE.sub(lambda match: f'{match[1]}: "{there}/{Path(match[2]).name}"', text)
            text = _OWN.sub(lambda match: f'{match[1]}: "{here}/{Path(match[2]).name}"', text)
        # Commands in a readme, defaults in a script.
        moves = {f"models/{name}": here} | {path.parent.as_posix(): there for path in sources}
        texts[file] = "".join(_moved(line, moves) for line in text.splitlines(keepends=True))
    return texts


def _moved(line: str, moves: Mapping[str, str]) -> str:
    """The line with other paths, quoted in a command."""
    command = re.match(r" {4}\w", line) and '"' not in line
    for old, new in moves.items():
        line = line.replace(old, shlex.quote(new) if command else new)
    return line


@command.command("fetch", short_help="public weights")
@click.argument("name")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
def fetch(name: str, folder: Path | None) -> None:
    """Download public weights of a model into FOLDER (models/NAME unless given), and go on where an earlier
    download broke off.

    A checksum that the publisher states is verified. Where none is stated, the first download records it in
    a file beside (FILE.sha256), and later ones must be the same.
    """
    if name not in WEIGHTS:
        models.path(name)  # raises for an unknown name
        raise DataError(f"no public weights are known for {name}{closest(name, WEIGHTS)}")
    log.info("Weights: %s", fetch_weights(WEIGHTS[name], folder or Path("models", name)))


def fetch_weights(weights: PublicWeights, folder: Path) -> Path:
    """The path of the weights in folder, downloaded unless they are there.

    Raises DataError: the reasons, and which file to put where by hand.
    """
    target, record = folder / weights.file.name, folder / f"{weights.file.name}.sha256"
    file = weights.file
    stated = bool(file.sha1 or file.sha256)
    cure = f"Without a network: put {file.name} into {folder}. Its page: {weights.page}"
    if not stated and record.is_file():
        text = record.read_text(encoding="utf-8", errors="replace")
        file = file._replace(sha256=text.partition(" ")[0].strip())
        cure += (
            f"\nThe SHA-256 is of the first download, from {record}: remove it if the weights were renewed"
        )
    found = target.is_file() and matches(target, file._replace(size=target.stat().st_size))
    try:
        if not found:
            _download(file, weights, folder)
        if not stated:
            _check_weights(target, ours=not found)
    except DataError as error:
        raise DataError(f"{error}\n{cure}") from error
    if not stated:
        _keep_checksum(target, record)
    return target


def _check_weights(target: Path, ours: bool) -> None:
    """A server's page that asks for a login comes under the file's name, too: without a checksum, the file
    must at least be one of weights. ours: downloaded just now, and removed if it is none."""
    try:
        if not read_net_binary(target)[1]:
            raise WireError(f"{target}: a net without weights")
    except ProtoError as error:
        if ours:
            target.unlink()
        raise DataError(f"what came under the name of {target.name} is something else: {error}") from error


def _download(file: RemoteFile, weights: PublicWeights, folder: Path) -> None:
    if not weights.mirrors:
        raise DataError(f"{file.name} has to be fetched with a browser")
    file = file._replace(size=stated_size(file.name + file.query, weights.mirrors))
    with download_bar(file.name, file.size) as progress:
        download(file, weights.mirrors, folder, progress)


def _keep_checksum(target: Path, record: Path) -> None:
    digest = checksum(target, "sha256")
    try:
        record.write_text(f"{digest}  {target.name}\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write {record}: {error.strerror}") from error
    log.info("Nobody states a checksum of %s; its SHA-256, now in %s: %s", target.name, record, digest)
