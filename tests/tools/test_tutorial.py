"""The tutorial's blocks run, its links lead somewhere, and commands in all documents exist.

In docs/tutorial, a block of ```prototxt whose first line is `# name` is written to that file, so is one of
```python whose first line is `# name.py`; other ```python is executed, and each line of ```sh is run, from
top to bottom in an empty folder. Accuracies that a page states are those of its own log.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from caffe_tools import commands, gflags, main
from caffe_tools.flags import brew_options, log_options

TOP = Path(__file__).parents[2]
TUTORIAL = sorted((TOP / "docs" / "tutorial").glob("*.md"))
DOCUMENTS = sorted(
    [
        *TOP.glob("*.md"),
        *(path for part in ("docs", "models", "examples") for path in (TOP / part).rglob("*.md")),
    ]
)

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
_TOOLS = {*commands.TOOLS} - {"data", "db", "model", "net", "log", "shim"}


def page_id(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


@pytest.fixture
def _modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's folder is where its modules are found; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(Path.cwd()))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if (file := getattr(sys.modules[name], "__file__", None)) and Path(file).parent == Path.cwd():
            del sys.modules[name]


def with_marks(page: Path) -> object:
    """Pages that train for 600 iterations take too long for every run."""
    trains = "caffe train -solver digits/solver.prototxt\n```" in page.read_text(encoding="utf-8")
    return pytest.param(page, id=page_id(page), marks=[pytest.mark.full] if trains else [])


@pytest.mark.usefixtures("_modules")
@pytest.mark.parametrize("page", [with_marks(page) for page in TUTORIAL])
def test_blocks_run(page: Path, cli: Callable) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    log = ""
    for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        file = re.match(r"# (\w+\.(?:prototxt|py))\n", text)
        if file:
            Path(file[1]).write_text(text)
        elif language == "python":
            exec(compile(text, page.name, "exec"), namespace)
        elif language == "sh":
            for line in text.splitlines():
                log += run(line, cli)
        else:
            pytest.fail(f"{page.name}: a block of {language} that nobody checks")
    stated = re.search(r"accuracy (?:of about|is above) (0\.\d+)", page.read_text(encoding="utf-8"))
    if stated:
        last = re.findall(r"accuracy = (\S+)", log)[-1]
        assert float(last) == pytest.approx(float(stated[1]), abs=0.015)


def run(line: str, cli: Callable) -> str:
    """What it logs. As from a shell, modules in the working directory are found by PYTHONPATH only."""
    program, *words = shlex.split(line, comments=True)
    here = str(Path.cwd())
    path = [folder for folder in sys.path if folder not in ("", here)]
    if program == "PYTHONPATH=.":
        program, *words = words
        path.append(here)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", path)
        done = cli(*words) if program == "caffe" else cli(*words, tool=program)
    assert done.status == 0, f"{line}\n{done.err[-2000:]}"
    return done.err


@pytest.mark.parametrize("page", DOCUMENTS, ids=page_id)
def test_links_lead_to_files(page: Path) -> None:
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            assert link.startswith(("https://", "http://")), link
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page_id(page)}: {link}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def command_lines(page: Path) -> list[str]:
    """Lines of code that begin with one of our programs; placeholders and pipes are left out."""
    text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))
    lines = re.findall(r"^ *((?:caffe|" + "|".join(sorted(_TOOLS)) + r") [^\n|]*)$", text, re.MULTILINE)
    return [line for line in lines if "..." not in line]


@pytest.mark.parametrize("page", DOCUMENTS, ids=page_id)
def test_commands_exist(page: Path) -> None:
    common = [*brew_options(), *log_options(), main._PYTHON, main._DEBUG, main._HELP, main._VERSION]
    for line in command_lines(page):
        program, *words = shlex.split(line.partition(" 2>")[0], comments=True)
        name = program if program != "caffe" else words.pop(0)
        if name.startswith("-") or name == "help":
            continue
        try:
            command, _, rest = commands.find(name, words, {})
            gflags.parse(rest, gflags.table([*common, *command.params]))
        except click.UsageError as error:
            pytest.fail(f"{page_id(page)}: {line}: {error.message}")


def test_commands_are_found_in_documents() -> None:
    assert sum(len(command_lines(page)) for page in DOCUMENTS) > 80
