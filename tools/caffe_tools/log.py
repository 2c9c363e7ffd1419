"""caffe log: the logs of trainings as tables and as curves."""

from __future__ import annotations

from pathlib import Path

import click

from caffe import plot
from caffe.log_file import columns, read_log, write_csv


@click.group("log")
def command() -> None:
    """Read the logs of trainings, the original's and ours."""


@command.command("parse", short_help="outputs of the train and the test net as CSV")
@click.argument("logfile_path", type=click.Path(path_type=Path))
@click.argument("output_dir", type=click.Path(path_type=Path), default=Path())
@click.option("-delimiter", "--delimiter", default=",", show_default=True, help="Column delimiter.")
@click.option("-verbose", "--verbose", is_flag=True, help="Tell the last row of each file.")
def parse(logfile_path: Path, output_dir: Path, delimiter: str, verbose: bool) -> None:
    """Write the rows of the log LOGFILE_PATH to its name with .train and .test in OUTPUT_DIR.

    Columns: NumIters, Seconds, LearningRate, and the outputs of the net by name.
    """
    if len(delimiter) != 1:
        raise click.UsageError(f"-delimiter must be one character, not {delimiter!r}")
    log = read_log(logfile_path)
    for part, rows in (("train", log.train), ("test", log.test)):
        path = output_dir / f"{logfile_path.name}.{part}"
        write_csv(rows, path, delimiter)
        click.echo(f"Wrote {len(rows)} rows to {path}")
        if verbose and rows:
            click.echo("  " + ", ".join(f"{name} = {value:g}" for name, value in rows[-1].items()))


@command.command("plot", short_help="curves of one or several trainings as a picture")
@click.argument("logs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "-o", "-output", "--output", type=click.Path(), required=True, help="The picture: .png, .svg, .pdf."
)
@click.option(
    "-x", "--x", default="NumIters", show_default=True, help="What runs along: NumIters or Seconds."
)
@click.option(
    "-y", "--y", "names", multiple=True, help="An output to show, or LearningRate; may be repeated."
)
def draw(logs: tuple[Path, ...], output: str, x: str, names: tuple[str, ...]) -> None:
    """Draw what the LOGS tell, one over the other: a panel for each output, of the train and test nets."""
    read = {str(path): read_log(path) for path in logs}
    if len({path.name for path in logs}) == len(logs):
        read = {path.name: log for path, log in zip(logs, read.values(), strict=True)}
    known = columns(row for log in read.values() for row in (*log.train, *log.test))
    unknown = [name for name in (x, *names) if name not in known]
    if unknown:
        raise click.UsageError(f"the logs have no {', '.join(unknown)}; they have: {', '.join(known)}")
    plot.save_plot(read, output, x=x, names=names or None)
    click.echo(f"Wrote {output}")
