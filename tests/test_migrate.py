"""docs/migrate.md, done: its layer, its check, and its plugin package work as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import caffe
from caffe.errors import LayerError

TEXT = (Path(__file__).parents[1] / "docs" / "migrate.md").read_text()
LAYER, CHECK = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
(PYPROJECT,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)

NET = """
force_backward: true
layer { name: "in" type: "Input" top: "a" top: "x" top: "b"
        input_param { shape { dim: 2 dim: 3 } shape { dim: 2 dim: 3 dim: 2 dim: 4 }
                      shape { dim: 2 dim: 3 dim: 2 dim: 4 } } }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, on Python's path, with axpy.py."""
    Path("axpy.py").write_text(LAYER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "axpy", raising=False)
    return tmp_path


def python_layer() -> str:
    (text,) = re.findall(r'    layer \{\n      name: "add".*?\n    \}\n', TEXT, re.DOTALL)
    return NET + text


def test_the_layer_computes_what_it_says(folder: Path, rng: np.random.Generator) -> None:
    Path("net.prototxt").write_text(python_layer())
    net = caffe.Net("net.prototxt", caffe.TEST)
    a, x, b, top = (rng.standard_normal(s) for s in ((2, 3), (2, 3, 2, 4), (2, 3, 2, 4), (2, 3, 2, 4)))
    y = net.forward(a=a, x=x, b=b)["y"]
    diffs = net.backward(y=top)
    for n, c in np.ndindex(2, 3):
        np.testing.assert_allclose(y[n, c], a[n, c] * x[n, c] + b[n, c], atol=1e-5)
        np.testing.assert_allclose(diffs["x"][n, c], a[n, c] * top[n, c], atol=1e-5)
        np.testing.assert_allclose(diffs["a"][n, c], (x[n, c] * top[n, c]).sum(), atol=1e-5)
    np.testing.assert_allclose(diffs["b"], top, atol=1e-6)


def test_its_check_passes_and_its_errors_name_the_layer(folder: Path) -> None:
    exec(CHECK, {})
    Path("net.prototxt").write_text(
        python_layer().replace("shape { dim: 2 dim: 3 }", "shape { dim: 2 dim: 4 }")
    )
    with pytest.raises(
        LayerError, match=r"layer 'add' .*a must be \(N, C\) of x \(2, 3, 2, 4\), not \(2, 4\)"
    ):
        caffe.Net("net.prototxt", caffe.TEST)


def test_registered_by_a_script(folder: Path) -> None:
    import axpy

    from caffe.layer_registry import unregister_layer

    Path("net.prototxt").write_text(
        NET + 'layer { name: "l" type: "Axpy" bottom: "a" bottom: "x" bottom: "b" top: "y" }'
    )
    caffe.register_layer("Axpy")(axpy.AxpyLayer)
    try:
        assert caffe.Net("net.prototxt", caffe.TEST).blobs["y"].shape == (2, 3, 2, 4)
    finally:
        unregister_layer("Axpy")


def test_installed_as_a_package(tmp_path: Path) -> None:
    """As an installer leaves it: the module, and beside it what the package announces."""
    project = tomllib.loads(PYPROJECT)["project"]
    site = tmp_path / "site"
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (site / "axpy.py").write_text(LAYER)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    ((group, points),) = project["entry-points"].items()
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    Path("net.prototxt").write_text(
        NET + 'layer { name: "l" type: "Axpy" bottom: "a" bottom: "x" bottom: "b" top: "y" }'
    )
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import caffe
assert "Axpy" in caffe.layer_type_list() and "axpy" not in sys.modules
print(caffe.Net("net.prototxt", caffe.TEST).layer_dict["l"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(site)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "<caffe.Layer 'l' (Axpy)>"
