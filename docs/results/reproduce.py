"""Trains what docs/results reports, as it was trained: log, curve and figures, with one command.

    scripts/results NAME... [--into FOLDER] [--mnist FOLDER] [--fashion-mnist FOLDER] [--iterations N]

NAME: one of the recipes below; without one, they are listed. --into: where logs and pictures go (default:
docs/results itself). --mnist, --fashion-mnist: folders with the data sets' files; without, they are
downloaded, but Fashion-MNIST is taken from Debian's package where that is installed. --iterations: train for
so many only, to try the command.

Prints each command that it runs. It works in a folder of its own, which is removed.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

import curves
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
LICENCE_MD5 = "fcf6b249c2641540219a727f35d8d2c2"


class Work:
    """A training's folder, and what its recipe does there."""

    def __init__(self, name: str, options: argparse.Namespace, folder: Path):
        self.name, self.options, self.folder = name, options, folder
        self.iterations = 0

    def run(self, *words: str, log: str = "") -> str:
        """Run a command, `caffe ...` or a script; its output. log: a file that stderr goes to."""
        print("$", shlex.join(words), *([f"2> {log}"] if log else []), flush=True)
        program = {"caffe": [sys.executable, "-m", "caffe_tools"], "python": [sys.executable]}[words[0]]
        with open(self.folder / (log or "stderr"), "w", encoding="utf-8") as errors:
            done = subprocess.run(
                [*program, *words[1:]],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                check=False,
            )
        print(done.stdout, end="", flush=True)
        if done.returncode:
            tail = Path(errors.name).read_text(encoding="utf-8").splitlines()[-8:]
            sys.exit("\n".join([f"{self.name}: {shlex.join(words)} failed:", *tail]))
        return done.stdout

    def edit(self, file: str, **changes: str) -> None:
        """Give fields of a prototxt other values, each in its first line; add those that it lacks."""
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        for field, value in changes.items():
            print(f"# {file}: {field}: {value}")
            text, count = re.subn(rf"^{field}: .*$", f"{field}: {value}", text, count=1, flags=re.MULTILINE)
            text += "" if count else f"{field}: {value}\n"
        path.write_text(text, encoding="utf-8")

    def model(self, name: str, iterations: int, **changes: str) -> None:
        """A copy of a reference model in net/, to be trained for so many iterations."""
        self.run("caffe", "model", "new", name, "net")
        self.iterations = self.options.iterations or iterations
        fields = {"max_iter": str(self.iterations), "random_seed": "1", **changes}
        self.edit("net/solver.prototxt", **fields)

    def data(self, kind: str, folder: str = "net") -> None:
        if kind == "fashion-mnist":
            source = self.options.fashion_mnist or (DEBIAN if DEBIAN.is_dir() else None)
        else:
            source = self.options.mnist
        self.run("caffe", "data", kind, folder, *(["--from", str(source)] if source else []))

    def train(self, name: str, picture: str = "") -> None:
        """Keeps the log, NAME.log, and its curves, NAME.png unless named otherwise."""
        log, picture = f"{name}.log", picture or f"{name}.png"
        self.run("caffe", "train", "-solver", "net/solver.prototxt", log=log)
        lines = self.folder / log
        # Where a library lies on this machine is not what is reported.
        lines.write_text(lines.read_text(encoding="utf-8").replace(sys.prefix, "$PREFIX"), encoding="utf-8")
        curves.draw(str(lines), str(self.folder / picture))
        self.keep(log)
        self.keep(picture)

    def keep(self, file: str) -> None:
        self.options.into.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.folder / file, self.options.into / file)

    def weights(self, name: str) -> str:
        return f"net/{name}_iter_{self.iterations}.caffemodel"


def digits(work: Work) -> None:
    work.model("digits", 600)
    work.train("digits")


def lenet(work: Work) -> None:
    work.model("lenet", 10_000)
    work.data("mnist")
    work.train("lenet")


def fashion_mnist(work: Work) -> None:
    work.model("lenet", 20_000)
    work.data("fashion-mnist")
    net = work.folder / "net" / "train_test.prototxt"
    net.write_text(
        net.read_text(encoding="utf-8").replace("net/mnist_", "net/fashion_mnist_"), encoding="utf-8"
    )
    print("# net/train_test.prototxt: fashion_mnist_train_lmdb and fashion_mnist_test_lmdb")
    work.train("fashion_mnist")


def mnist_siamese(work: Work) -> None:
    work.model("mnist_siamese", 2000, display="50")
    work.data("mnist-siamese")
    work.data("mnist")
    work.train("mnist_siamese", "mnist_siamese_loss.png")
    plot(work)


def mnist_autoencoder(work: Work) -> None:
    work.model("mnist_autoencoder", 2000, display="50", test_iter="50")
    work.data("mnist")
    work.train("mnist_autoencoder", "mnist_autoencoder_loss.png")
    plot(work)


def plot(work: Work) -> None:
    """The picture that the model's own script makes of it."""
    work.run("python", "net/plot.py", work.weights(work.name), "net/mnist_test_lmdb", f"{work.name}.png")
    work.keep(f"{work.name}.png")


def char_rnn(work: Work) -> None:
    text = Path(sysconfig.get_path("stdlib"), "LICENSE.txt")
    if not text.is_file() or hashlib.md5(text.read_bytes()).hexdigest() != LICENCE_MD5:
        print(f"# {text} is not the file that docs/results reports on: figures will differ", file=sys.stderr)
    work.model("char_rnn", 600, display="20", stepsize="400", test_interval="100")
    work.run("python", "net/make_data.py", str(text))
    work.train("char_rnn")
    work.run("python", "net/sample.py", work.weights("char_rnn"), "PYTHON ", "500")


def logistic_regression(work: Work) -> None:
    work.model("logistic_regression", 10_000, display="200")
    work.run("python", "net/make_data.py")
    work.train("logistic_regression")


def finetuning(work: Work) -> None:
    """LeNet on digits, as above; then the example of fine-tuning, on clothes."""
    lenet(work)
    example = work.folder / "examples" / "finetuning"
    shutil.copytree(
        ROOT / "examples" / "finetuning", example, ignore=shutil.ignore_patterns("*_lmdb", "*.pyc")
    )
    work.data("fashion-mnist", "examples/finetuning")
    draws = 1 if work.options.iterations else 5
    compare = ("python", "examples/finetuning/compare.py", work.weights("lenet"), str(draws))
    work.run(*compare, log="finetuning.log")
    work.keep("finetuning.log")
    comparison(work.folder / "finetuning.log", work.folder / "finetuning.png")
    work.keep("finetuning.png")


def comparison(log: Path, picture: Path) -> None:
    """Test accuracy over iterations, of both ways: each draw, and their mean."""
    ways: dict[str, list[list[tuple[int, float]]]] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"draw \d+, (.*?): (.*)", line):
            pairs = [pair.split(": ") for pair in match[2].split(", ")]
            ways.setdefault(match[1], []).append([(int(i), float(a)) for i, a in pairs])
    iterations = [i for i, _ in next(iter(ways.values()))[0]]
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for (way, draws), colour in zip(ways.items(), (curves.BLUE, curves.ORANGE), strict=True):
        for draw in draws:
            axes.plot(iterations, [a for _, a in draw], ".", color=colour, alpha=0.4)
        means = [sum(draw[k][1] for draw in draws) / len(draws) for k in range(len(iterations))]
        axes.semilogx(iterations, means, color=colour, label=way)
    axes.set_xticks(iterations, [str(i) for i in iterations], minor=False)
    axes.minorticks_off()
    axes.set_xlabel("iteration")
    axes.set_ylabel("test accuracy")
    axes.legend(frameon=False)
    axes.grid(color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=110)


RECIPES: dict[str, Callable[[Work], None]] = {
    recipe.__name__: recipe
    for recipe in (
        digits,
        lenet,
        fashion_mnist,
        mnist_siamese,
        mnist_autoencoder,
        finetuning,
        char_rnn,
        logistic_regression,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECIPES))
    parser.add_argument("--into", type=Path, default=HERE, metavar="FOLDER")
    parser.add_argument("--mnist", type=Path, metavar="FOLDER")
    parser.add_argument("--fashion-mnist", type=Path, metavar="FOLDER")
    parser.add_argument("--iterations", type=int, default=0, metavar="N")
    options = parser.parse_args()
    if not options.names:
        print(*RECIPES, sep="\n")
    for folder in ("into", "mnist", "fashion_mnist"):  # commands run in another folder
        if getattr(options, folder):
            setattr(options, folder, getattr(options, folder).resolve())
    if unknown := set(options.names) - set(RECIPES):
        parser.error(f"no recipe {', '.join(sorted(unknown))}; there are {', '.join(RECIPES)}")
    if options.iterations and options.into == HERE:
        parser.error("--iterations is for a try: it needs --into, so that the results stay")
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            print(f"# {name}", flush=True)
            RECIPES[name](Work(name, options, Path(folder)))


if __name__ == "__main__":
    main()
