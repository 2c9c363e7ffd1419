"""What notebooks show of a Net, a Blob and a Solver: tables that an HTML reader can read back."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np

import caffe
from caffe.html_table import html_table

NET = """
name: "a <b> & c"
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
"""


def read(text: str) -> tuple[str, list[list[str]]]:
    """(caption, rows)"""
    table = ElementTree.fromstring(text)
    rows = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
    return table.findtext("caption") or "", rows


def test_any_text_comes_back() -> None:
    rows = [["<a>", "b"], ["&amp;", '"'], ["", "×"]]
    assert read(html_table(rows, "c & d")) == ("c & d", rows)
    assert read(html_table(rows[:1])) == ("", rows[:1])


def test_a_net() -> None:
    Path("net.prototxt").write_text(NET)
    caption, rows = read(caffe.Net("net.prototxt", caffe.TRAIN)._repr_html_())
    assert caption == "a <b> & c"
    assert rows[0][0] == "layer"
    assert rows[2] == ["ip", "InnerProduct", "ip", "2×4", "16", "24"]
    assert rows[-1][0] == "3 layers"


def test_a_blob() -> None:
    blob = caffe.Blob((2, 2))
    blob.data[...] = [[1, np.nan], [3, np.inf]]
    blob.diff[...] = np.nan
    caption, rows = read(blob._repr_html_())
    assert caption == "caffe.Blob 2 x 2"
    assert rows == [
        ["", "least", "mean", "most", "standard deviation", "not finite"],
        ["data", "1", "2", "3", "1", "2"],
        ["diff", "", "", "", "", "4"],
    ]
    assert read(caffe.Blob((0,))._repr_html_())[1][1] == ["data", "", "", "", "", "0"]


def test_a_solver() -> None:
    Path("net.prototxt").write_text(NET)
    Path("solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.5 lr_policy: "step" gamma: 0.1 stepsize: 2 max_iter: 1000 '
        'snapshot_prefix: "s"'
    )
    solver = caffe.get_solver("solver.prototxt")
    before = dict(read(solver._repr_html_())[1])
    assert before == {
        "SGDSolver": "a <b> & c",
        "iteration": "0 of 1,000",
        "learning rate": "0.5 (step)",
        "loss": "not known yet",
        "test nets": "0",
        "last snapshot": "none",
    }
    solver.step(2)
    solver.snapshot()
    after = dict(read(solver._repr_html_())[1])
    assert after["iteration"] == "2 of 1,000"
    assert after["learning rate"] == "0.05 (step)"
    assert float(after["loss"]) == solver.smoothed_loss
    assert after["last snapshot"] == "s_iter_2.solverstate"
