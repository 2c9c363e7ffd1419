"""Data is found in a checkout and in an installed package, and its absence is said clearly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from caffe import resources
from caffe.errors import DataError


def installed(tmp_path: Path, kinds: tuple[str, ...]) -> Path:
    """A package laid out as a wheel lays it out: `caffe/_data/<kind>`, no checkout around it."""
    site = tmp_path / "lib" / "site-packages"
    package = site / "caffe"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for name in ("resources.py", "errors.py"):
        shutil.copy(Path(resources.__file__).with_name(name), package)
    for kind in kinds:
        (package / "_data" / kind).mkdir(parents=True)
        (package / "_data" / kind / "here.txt").write_text(kind)
    (tmp_path / "models").mkdir()  # a stranger's folder where a checkout would have its own
    return site


def ask(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from caffe.resources import data_path; print(data_path(*sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-S", "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_finds_the_schema():
    path = resources.data_path("proto", "caffe.proto")
    assert "message NetParameter" in path.read_text(encoding="utf-8")


def test_without_parts_it_is_the_folder():
    assert (resources.data_path("proto") / "caffe.proto").is_file()


def test_installed_package_reads_its_own_files(tmp_path):
    site = installed(tmp_path, resources.KINDS)
    for kind in resources.KINDS:
        answer = ask(site, kind, "here.txt")
        assert answer.stdout.strip() == str(site / "caffe" / "_data" / kind / "here.txt"), answer.stderr


def test_installed_package_without_data_says_how_to_mend_it(tmp_path):
    answer = ask(installed(tmp_path, ()), "models")
    assert answer.returncode == 1
    assert "lacks its models files; reinstall it" in answer.stderr


def test_unknown_kind_names_the_known_ones():
    message = r"unknown kind 'model'; known: proto, cuda_kernels, models; did you mean 'models'"
    with pytest.raises(DataError, match=message):
        resources.data_path("model")


def test_absent_file_names_its_neighbours():
    message = r"no 'cafe.proto' in .*proto; it holds: caffe.proto; did you mean 'caffe.proto'"
    with pytest.raises(DataError, match=message):
        resources.data_path("proto", "cafe.proto")


@pytest.mark.parametrize("parts", [("..", "pyproject.toml"), ("/etc/passwd",), ("a", "..", "..", "tests")])
def test_no_way_out_of_the_folder(parts):
    with pytest.raises(DataError, match="leads out of the folder"):
        resources.data_path("proto", *parts)
