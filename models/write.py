"""Write the prototxts of the reference models, from the scripts beside them.

    python models/write.py                 all of them
    python models/write.py vgg16 nin       these

A script models/<name>/<name>.py has a docstring, whose first line names the net, and a function files(),
which gives the messages by file name. COMMENTS, if it has them, are texts by file name for the files' heads.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from common.text import prototxt
from google.protobuf.message import Message

FOLDER = Path(__file__).resolve().parent


def names() -> list[str]:
    """The models that are written by a script."""
    return sorted(path.parent.name for path in FOLDER.glob("*/*.py") if path.stem == path.parent.name)


def messages(name: str) -> dict[str, tuple[str, Message]]:
    """Heading and message of each prototxt of a model, by file name."""
    spec = importlib.util.spec_from_file_location(f"models_{name}", FOLDER / name / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    title = (module.__doc__ or name).splitlines()[0]
    origin = f"Written by models/{name}/{name}.py: python models/write.py {name}"
    comments = getattr(module, "COMMENTS", {})
    return {
        file: ("\n".join(filter(None, (title, comments.get(file), origin))), message)
        for file, message in module.files().items()
    }


def texts(name: str) -> dict[str, str]:
    """The text of each prototxt of a model."""
    return {file: prototxt(message, heading) for file, (heading, message) in messages(name).items()}


def main(chosen: list[str]) -> None:
    for name in chosen or names():
        for file, text in texts(name).items():
            (FOLDER / name / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
