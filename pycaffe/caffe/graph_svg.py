"""A graph as SVG, without Graphviz."""

from __future__ import annotations

import html
from collections.abc import Iterator

from . import graph_layout
from .net_graph import Graph, Node

_FONT, _LINE, _LETTER, _PAD, _GAP = 12, 16, 7.2, 8, 28


def svg(graph: Graph, rankdir: str) -> str:
    """The drawing, its edges in the direction "LR", "TB", "RL" or "BT"."""
    along_x = rankdir in ("LR", "RL")
    boxes = {
        name: (2 * _PAD + _LETTER * max(map(len, node.lines)), 2 * _PAD + _LINE * len(node.lines))
        for name, node in graph.nodes.items()
    }
    across = {name: box[1] if along_x else box[0] for name, box in boxes.items()}
    along = {name: box[0] if along_x else box[1] for name, box in boxes.items()}
    plan = graph_layout.layout(across, along, list(graph.edges), _GAP)
    width, height = (size + 2 * _GAP for size in (plan.size[::-1] if along_x else plan.size))

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x, y = (coordinate + _GAP for coordinate in (point[::-1] if along_x else point))
        return (width - x if rankdir == "RL" else x), (height - y if rankdir == "BT" else y)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="{_FONT}" '
        'text-anchor="middle">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>',
    ]
    for (source, target), label in graph.edges.items():
        out, into = plan.centres[source], plan.centres[target]
        points = [
            (out[0], out[1] + along[source] / 2),
            *plan.routes[source, target],
            (into[0], into[1] - along[target] / 2),
        ]
        lines += _edge([place(point) for point in points], label, along_x)
    for name, node in graph.nodes.items():
        lines += _box(node, place(plan.centres[name]), boxes[name])
    return "\n".join([*lines, "</svg>", ""])


def _edge(points: list[tuple[float, float]], label: str, along_x: bool) -> Iterator[str]:
    """Straight through rows, curved between them."""
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x, y), (to_x, to_y) in zip(points[1::2], points[2::2], strict=False):
        mid_x, mid_y = (x + to_x) / 2, (y + to_y) / 2
        bend = (mid_x, y, mid_x, to_y) if along_x else (x, mid_y, to_x, mid_y)
        path += f" L{x:.1f},{y:.1f} C{bend[0]:.1f},{bend[1]:.1f} {bend[2]:.1f},{bend[3]:.1f}"
        path += f" {to_x:.1f},{to_y:.1f}"
    if points[-1] != points[-2]:
        path += f" L{points[-1][0]:.1f},{points[-1][1]:.1f}"
    yield f'<path d="{path}" fill="none" stroke="#555" marker-end="url(#tip)"/>'
    if label:
        (x, y), (to_x, to_y) = points[1], points[2]
        yield f'<text x="{(x + to_x) / 2:.1f}" y="{(y + to_y) / 2 - 3:.1f}">{html.escape(label)}</text>'


def _box(node: Node, centre: tuple[float, float], size: tuple[float, float]) -> Iterator[str]:
    left, top = centre[0] - size[0] / 2, centre[1] - size[1] / 2
    corner = 12 if node.blob else 3
    yield (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}" rx="{corner}" '
        f'fill="{node.colour}" stroke="#333"/>'
    )
    for k, line in enumerate(node.lines):
        weight = ' font-weight="bold"' if k == 0 else ""
        y = top + _PAD + _LINE * (k + 0.75)
        yield f'<text x="{centre[0]:.1f}" y="{y:.1f}"{weight}>{html.escape(line)}</text>'
