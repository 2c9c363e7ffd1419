"""What the distribution holds: two packages, the data below one of them, the console scripts, no more."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from caffe import version

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_nothing_but_our_packages_at_the_top(names):
    assert {name.split("/")[0] for name in names} == {
        "caffe",
        "caffe_tools",
        f"pycaffe-{version.DISTRIBUTION}.dist-info",
    }


def test_every_module_is_in_it(names):
    for root, package in (("pycaffe", "caffe"), ("tools", "caffe_tools")):
        modules = [path.relative_to(ROOT / root).as_posix() for path in (ROOT / root / package).rglob("*.py")]
        assert modules
        assert not set(modules) - set(names)
    assert "caffe/py.typed" in names


def test_data_folders_lie_below_the_package(names):
    assert "caffe/_data/proto/caffe.proto" in names
    for kind in ("cuda_kernels", "models"):
        tracked = subprocess.run(
            ["git", "ls-files", kind], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.split()
        assert not {f"caffe/_data/{name}" for name in tracked} - set(names)


def test_console_scripts_lead_somewhere(wheel):
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"pycaffe-{version.DISTRIBUTION}.dist-info/entry_points.txt").decode()
    entries = configparser.ConfigParser(delimiters=("=",))
    entries.read_string(text)
    scripts = dict(entries["console_scripts"])
    assert set(scripts) == {
        "caffe",
        "convert_imageset",
        "compute_image_mean",
        "extract_features",
        "convert_mnist_data",
        "convert_mnist_siamese_data",
        "convert_cifar_data",
        "upgrade_net_proto_text",
        "upgrade_net_proto_binary",
        "upgrade_solver_proto_text",
    }
    import caffe_tools.entry

    for target in scripts.values():
        module, function = target.split(":")
        assert module == "caffe_tools.entry"
        assert callable(getattr(caffe_tools.entry, function))


def test_unpacked_wheel_works_and_finds_its_data(wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = "import caffe; from caffe.resources import data_path; print(data_path('proto', 'caffe.proto'))"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == str(site / "caffe" / "_data" / "proto" / "caffe.proto"), done.stderr


def test_editable_install_points_at_both_roots(tmp_path):
    path = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["editable"]))
    with zipfile.ZipFile(path) as archive:
        (pth,) = [name for name in archive.namelist() if name.endswith(".pth")]
        roots = archive.read(pth).decode().split()
    assert {Path(root).resolve() for root in roots} == {ROOT / "pycaffe", ROOT / "tools"}


def test_source_archive_can_build_and_test_itself(tmp_path):
    path = next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path)))
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for needed in ("pyproject.toml", "LICENSE", "proto/caffe.proto", "tests/conftest.py"):
        assert needed in names
    # LevelDB's own files, some of them empty, some of them called .log
    assert "tests/golden/data/db/raw_leveldb_table/000006.log" in names
