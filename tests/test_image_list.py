"""Lists of images: what people's files look like."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe.errors import DataError
from caffe.image_list import read_image_list


def read(tmp_path: Path, content: bytes) -> list[tuple[str, int, str]]:
    path = tmp_path / "list.txt"
    path.write_bytes(content)
    found = read_image_list(str(path))
    assert len(found) == len(found.labels) == len(found.lines)
    return [
        (name, label, found.place(i).rpartition(":")[2])
        for i, (name, label) in enumerate(zip(found.paths, found.labels.tolist(), strict=True))
    ]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"a.png 3\nb.png 4\n", [("a.png", 3, "1"), ("b.png", 4, "2")]),
        (b"a.png 3\r\nb.png 4\r\n", [("a.png", 3, "1"), ("b.png", 4, "2")]),
        (b"a.png 3", [("a.png", 3, "1")]),
        (b"\n\na.png 3\n\n  \t\nb.png 4\n\n", [("a.png", 3, "3"), ("b.png", 4, "6")]),
        (b"my pictures/a b.png 3\n", [("my pictures/a b.png", 3, "1")]),
        (b"a.png\t3\n", [("a.png", 3, "1")]),
        (b"a\tb.png \t 3 \t\n", [("a\tb.png", 3, "1")]),
        (b"a.png 3  \n", [("a.png", 3, "1")]),
        (b"a.png -1\nb.png +2\nc.png 007\n", [("a.png", -1, "1"), ("b.png", 2, "2"), ("c.png", 7, "3")]),
        (b"\xef\xbb\xbfa.png 3\n", [("a.png", 3, "1")]),
        ("Käse/ß.png 3\n".encode(), [("Käse/ß.png", 3, "1")]),
        ("Käse/ß.png 3\r\nb.png 4\r\n".encode("utf-16"), [("Käse/ß.png", 3, "1"), ("b.png", 4, "2")]),
        (b"\xfe\xff" + "b.png 4".encode("utf-16-be"), [("b.png", 4, "1")]),
        (b"2 3\n", [("2", 3, "1")]),
        (b"a.png 2147483647\nb.png -2147483648\n", [("a.png", 2**31 - 1, "1"), ("b.png", -(2**31), "2")]),
        (b"", []),
        (b"\n \n", []),
    ],
)
def test_lines_that_mean_something(
    tmp_path: Path, content: bytes, wanted: list[tuple[str, int, str]]
) -> None:
    assert read(tmp_path, content) == wanted


def test_a_path_that_is_no_utf8_names_the_same_file(tmp_path: Path) -> None:
    name = b"caf\xe9.png"
    (Path.cwd() / name.decode("utf-8", "surrogateescape")).write_bytes(b"here")
    ((path, _, _),) = read(tmp_path, name + b" 1\n")
    assert Path(path).read_bytes() == b"here"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"a.png", r'list.txt:2: "a.png" has no label'),
        (b"my pictures.png", r'list.txt:2: "my pictures.png": the label "pictures.png" is not an integer'),
        (b"a.png 1.5", r'the label "1.5" is not an integer'),
        (b"a.png 0.0 1 2 x", r'the label "x" is not an integer'),
        (b"a.png 1e3", "is not an integer"),
        (b"a.png 1_000", "is not an integer"),
        ("a.png ١".encode(), "is not an integer"),
        (b"a.png 2147483648", "does not fit into 32 bits"),
        (b"a.png " + b"9" * 5000, "does not fit into 32 bits"),
        (b"x" * 5000, r'xxx\.\.\." has no label'),
    ],
)
def test_a_line_that_means_nothing_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, b"good.png 1\n" + line + b"\nalso good.png 2\n")
    assert "list.txt:2: " in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_list_that_is_not_there() -> None:
    with pytest.raises(DataError, match="cannot read the list of images 'none.txt': No such file"):
        read_image_list("none.txt")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(content)
    try:
        images = read_image_list(str(path))
    except DataError:
        return
    assert len(images.paths) <= content.count(b"\n") + content.count(b"\r") + 1
    assert all(path and path == path.strip(" \t\r\n") for path in images.paths)
