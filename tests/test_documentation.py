"""The documentation's site: it builds, and every link in it leads somewhere."""

from __future__ import annotations

import html
import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

TOP = Path(__file__).parents[1]
SCRIPT = TOP / "scripts" / "docs"
PAGES: list[Path] = runpy.run_path(str(SCRIPT))["pages"]()
MARKDOWN = [page for page in PAGES if page.suffix == ".md"]


def lines_of_text(page: Path) -> list[str]:
    """Without fenced blocks."""
    text = (TOP / page).read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()


def test_every_document_is_a_page() -> None:
    documents = {path.relative_to(TOP) for path in (TOP / "docs").rglob("*.md")}
    documents |= {path.relative_to(TOP) for path in (TOP / "models").glob("*/readme.md")}
    assert documents <= set(PAGES)
    assert {"docs/results/lenet.png", "docs/results/char_rnn.log"} <= {page.as_posix() for page in PAGES}


@pytest.mark.parametrize("page", MARKDOWN, ids=str)
def test_links_lead_to_files(page: Path) -> None:
    """A folder will do where files are looked at, but not in a site."""
    for link in re.findall(r"(?<!`)\]\(([^)\s#]+)[^)\s]*\)", (TOP / page).read_text(encoding="utf-8")):
        assert ":" in link or (TOP / page.parent / link).is_file(), link


@pytest.mark.parametrize("page", MARKDOWN, ids=str)
def test_what_belongs_to_an_item_of_a_list_is_indented_by_four(page: Path) -> None:
    """With less, it is text below the list to Python-Markdown, though not to others."""
    lines = lines_of_text(page)
    for before, line in zip(lines, lines[1:], strict=False):
        assert before or not re.match(r" {1,3}\S", line), line


def test_decisions_are_listed() -> None:
    folder = TOP / "docs" / "decisions"
    listed = re.findall(r"\[(\d{4})\]\((\S+)\): (.*)", (folder / "index.md").read_text(encoding="utf-8"))
    titles = {path.name: path.read_text(encoding="utf-8").partition("\n")[0] for path in folder.glob("0*.md")}
    assert {file: f"# {number}: {title}" for number, file, title in listed} == titles


def test_the_site_is_built_and_whole(tmp_path: Path) -> None:
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("Zensical builds the site, and is not installed: pip install '.[docs]'")
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(site)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Caffe for today" in (site / "index.html").read_text(encoding="utf-8")
    for page in MARKDOWN:
        if page.name != "README.md":
            assert (site / page).with_suffix(".html").is_file(), page
    texts = {
        path: path.read_text(encoding="utf-8") for path in site.rglob("*.html") if path.name != "404.html"
    }
    for path, text in texts.items():
        for link in map(html.unescape, re.findall(r'(?:href|src)="([^"]+)"', text)):
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = Path(path.parent / unquote(file)).resolve() if file else path
            assert target.is_file(), f"{path.relative_to(site)}: {link}"
            if anchor and target in texts:
                assert f'id="{anchor}"' in texts[target], f"{path.relative_to(site)}: {link}"


def test_a_link_that_leads_nowhere_is_a_failure(tmp_path: Path) -> None:
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("Zensical builds the site, and is not installed: pip install '.[docs]'")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "scripts" / "docs").write_text(SCRIPT.read_text(encoding="utf-8"))
    (tmp_path / "docs" / "mkdocs.yml").write_text("site_name: A\ndocs_dir: pages\nnav:\n  - A: README.md\n")
    (tmp_path / "README.md").write_text("# A\n\n[b](docs/b.md)\n")
    done = subprocess.run(
        [sys.executable, "scripts/docs", "site"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0 and "page does not exist" in done.stderr + done.stdout
    assert not (tmp_path / "site").exists()
    (tmp_path / "docs" / "b.md").write_text("# B\n")
    subprocess.run([sys.executable, "scripts/docs", "site"], cwd=tmp_path, timeout=120, check=True)
    assert (tmp_path / "site" / "docs" / "b" / "index.html").is_file()
