"""Drawings of nets: draw_net and draw_net_to_file.

    caffe.draw.draw_net_to_file(caffe.Net("deploy.prototxt", caffe.TEST), "net.svg")

A Net shows shapes, parameters and multiply-adds; a NetParameter, which need not be runnable, what stands in
it. PNG, PDF and all else come from Graphviz's program `dot`; SVG does too where `dot` is, and needs nothing
else where it is not; HTML is a page with an SVG and, for a Net, its table. Source: pycaffe's draw.
"""

from __future__ import annotations

import html
import shutil
import subprocess
from pathlib import Path
from typing import Any

from . import net_summary
from .errors import CaffeError
from .graph_svg import svg
from .html_table import html_table
from .net import Net
from .net_graph import Graph, net_graph
from .net_graph import choose_color_by_layertype as choose_color_by_layertype
from .net_graph import get_edge_label as get_edge_label
from .net_graph import get_layer_label as get_layer_label
from .net_graph import get_layer_lr_mult as get_layer_lr_mult
from .net_graph import get_pooling_types_dict as get_pooling_types_dict
from .proto import caffe_pb2

RANKDIRS = ("LR", "TB", "RL", "BT")

# -- Graphviz ---------------------------------------------------------------------------------------------


def get_dot(
    caffe_net: Any,
    rankdir: str = "LR",
    label_edges: bool = True,
    phase: int | None = None,
    display_lrm: bool = False,
) -> str:
    """The drawing as text in Graphviz's language."""
    graph = net_graph(caffe_net, phase, label_edges, display_lrm)

    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'

    lines = [f"digraph {quoted(graph.name)} {{", f"  rankdir={_checked(rankdir)};"]
    for name, node in graph.nodes.items():
        separator = " " if rankdir in ("TB", "BT") and not node.blob else "\n"
        shape = "octagon" if node.blob else "box"
        lines.append(
            f"  {quoted(name)} [label={quoted(separator.join(node.lines))}, shape={shape}, "
            f'style=filled, fillcolor="{node.colour}"];'
        )
    for (source, target), label in graph.edges.items():
        text = f" [label={quoted(label)}]" if label else ""
        lines.append(f"  {quoted(source)} -> {quoted(target)}{text};")
    return "\n".join([*lines, "}", ""])


def get_pydot_graph(
    caffe_net: Any,
    rankdir: str,
    label_edges: bool = True,
    phase: int | None = None,
    display_lrm: bool = False,
) -> Any:
    """The drawing as a graph of pydot's, for programs that change it. Raises CaffeError without pydot."""
    try:
        import pydot  # type: ignore[import-not-found]
    except ImportError as error:
        raise CaffeError(
            f"get_pydot_graph needs pydot ({error}): pip install pydot. draw_net works without"
        ) from error
    return pydot.graph_from_dot_data(get_dot(caffe_net, rankdir, label_edges, phase, display_lrm))[0]


def _checked(rankdir: str) -> str:
    if rankdir not in RANKDIRS:
        raise CaffeError(f"rankdir must be one of {', '.join(RANKDIRS)}, not {rankdir!r}")
    return rankdir


def _run_dot(text: str, ext: str) -> bytes:
    program = shutil.which("dot")
    if program is None:
        raise CaffeError(
            f"a drawing as .{ext} needs Graphviz's program dot, which is not here: install graphviz (Debian "
            "and Ubuntu: apt install graphviz), or write .svg or .html, which need nothing"
        )
    done = subprocess.run([program, f"-T{ext}"], input=text.encode(), capture_output=True, check=False)
    if done.returncode:
        raise CaffeError(f"dot -T{ext} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


# -- HTML -----------------------------------------------------------------------------------------------


def _page(graph: Graph, drawing: str, caffe_net: Any) -> str:
    name = html.escape(graph.name)
    table = html_table(net_summary.table(caffe_net)) if isinstance(caffe_net, Net) else ""
    style = "body{font-family:sans-serif} td,th{padding:1px 10px}"
    return (
        f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{name}</title>'
        f"<style>{style}</style></head>\n<body><h1>{name}</h1>\n{drawing}{table}</body></html>\n"
    )


# -- drawings ---------------------------------------------------------------------------------------------


def draw_net(
    caffe_net: Net | caffe_pb2.NetParameter,
    rankdir: str,
    ext: str = "png",
    phase: int | None = None,
    display_lrm: bool = False,
) -> bytes:
    """The drawing of a net as a file's bytes.

    rankdir: the direction of the data, "LR", "TB", "RL" or "BT". ext: "svg", "html", "dot" (the text for
    Graphviz), or what Graphviz writes: "png", "pdf" ... phase: of a NetParameter, the layers of this phase;
    default: all. display_lrm: show the learning rates' factors too. Raises CaffeError.
    """
    ext = ext.lower()
    if ext == "dot":
        return get_dot(caffe_net, rankdir, True, phase, display_lrm).encode()
    if ext == "html" or (ext == "svg" and shutil.which("dot") is None):
        graph = net_graph(caffe_net, phase, True, display_lrm)
        drawing = svg(graph, _checked(rankdir))
        return (_page(graph, drawing, caffe_net) if ext == "html" else drawing).encode()
    return _run_dot(get_dot(caffe_net, rankdir, True, phase, display_lrm), ext)


def draw_net_to_file(
    caffe_net: Net | caffe_pb2.NetParameter,
    filename: str | Path,
    rankdir: str = "LR",
    phase: int | None = None,
    display_lrm: bool = False,
) -> None:
    """Write the drawing to a file, in the format that its name ends with. Raises CaffeError."""
    path = Path(filename)
    if not path.suffix:
        raise CaffeError(f"{path}: the name must end with a format: .svg, .html, .png, .pdf ...")
    data = draw_net(caffe_net, rankdir, path.suffix[1:], phase, display_lrm)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise CaffeError(f"cannot write {path}: {error.strerror}") from error
