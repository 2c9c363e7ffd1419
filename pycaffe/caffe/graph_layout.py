"""Places for the nodes of an acyclic graph, in rows from its sources to its sinks.

The usual way of drawing such graphs in layers: a node's row is its longest way from a source; edges over
several rows pass through empty places; within rows, nodes are sorted by the mean place of their neighbours,
up and down a few times; then each row is moved as near to its neighbours as its widths allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_SWEEPS = 8

Node = Any
Point = tuple[float, float]


@dataclass
class Layout:
    """centres: (across, along) of each node. routes: for each edge the points it passes, two by two, each
    pair on either side of the space between two rows. size: (across, along)."""

    centres: dict[Node, Point] = field(default_factory=dict)
    routes: dict[tuple[Node, Node], list[Point]] = field(default_factory=dict)
    size: Point = (0, 0)


def layout(
    widths: Mapping[Node, float],
    heights: Mapping[Node, float],
    edges: Sequence[tuple[Node, Node]],
    gap: float,
) -> Layout:
    """Places for nodes of these sizes across and along the direction of the edges, `gap` apart.

    The nodes stand in an order in which no edge leads backwards.
    """
    rank = dict.fromkeys(widths, 0)
    below: dict[Node, list[Node]] = {node: [] for node in widths}
    for source, target in edges:
        below[source].append(target)
    for node in widths:
        for target in below[node]:
            rank[target] = max(rank[target], rank[node] + 1)

    rows: list[list[Node]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for node in widths:
        rows[rank[node]].append(node)
    above: dict[Node, list[Node]] = {node: [] for node in widths}
    links: dict[Node, list[Node]] = {node: [] for node in widths}
    chains: dict[tuple[Node, Node], list[Node]] = {}
    for source, target in dict.fromkeys(edges):
        places: list[Node] = [(source, target, k) for k in range(rank[source] + 1, rank[target])]
        for k, place in enumerate(places, rank[source] + 1):
            rows[k].append(place)
            above[place], links[place] = [], []
        chain = [source, *places, target]
        chains[source, target] = places
        for first, second in zip(chain, chain[1:], strict=False):
            links[first].append(second)
            above[second].append(first)

    across = _across(rows, above, links, widths, gap)
    result = Layout()
    borders: list[tuple[float, float]] = []
    edge = 0.0
    for row in rows:
        height = max(heights.get(node, 0) for node in row)
        borders.append((edge, edge + height))
        edge += height + gap
    left = min((across[n] - widths.get(n, 0) / 2 for n in across), default=0)
    right = max((across[n] + widths.get(n, 0) / 2 for n in across), default=0)
    result.centres = {node: (across[node] - left, sum(borders[rank[node]]) / 2) for node in widths}
    for (source, target), places in chains.items():
        route = result.routes[source, target] = []
        chain = [source, *places, target]
        for k, (first, second) in enumerate(zip(chain, chain[1:], strict=False), rank[source]):
            route.append((across[first] - left, borders[k][1]))
            route.append((across[second] - left, borders[k + 1][0]))
    result.size = (right - left, edge - gap if rows else 0)
    return result


def _across(
    rows: list[list[Node]],
    above: Mapping[Node, list[Node]],
    below: Mapping[Node, list[Node]],
    widths: Mapping[Node, float],
    gap: float,
) -> dict[Node, float]:
    place: dict[Node, float] = {node: i for row in rows for i, node in enumerate(row)}
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for row in rows if downwards else reversed(rows):
            row.sort(key=lambda node: _mean(place, neighbours[node], place[node]))
            place.update((node, i) for i, node in enumerate(row))
    for row in rows:
        place.update(zip(row, _spread(row, [0.0] * len(row), widths, gap), strict=True))
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for row in rows if downwards else reversed(rows):
            wanted = [_mean(place, neighbours[node], place[node]) for node in row]
            place.update(zip(row, _spread(row, wanted, widths, gap), strict=True))
    return place


def _mean(place: Mapping[Node, float], nodes: Sequence[Node], otherwise: float) -> float:
    return sum(place[node] for node in nodes) / len(nodes) if nodes else otherwise


def _spread(
    row: Sequence[Node], wanted: Sequence[float], widths: Mapping[Node, float], gap: float
) -> list[float]:
    """Places in this order, at least their widths and a gap apart, nearest to the wanted ones in the sense of
    least squares: neighbours that are too close become a block about their mean."""
    offsets = [0.0]
    for first, second in zip(row, row[1:], strict=False):
        offsets.append(offsets[-1] + (widths.get(first, 0) + widths.get(second, 0)) / 2 + gap)
    blocks: list[list[float]] = []  # sum of wanted places less offsets, and how many
    for want, offset in zip(wanted, offsets, strict=True):
        blocks.append([want - offset, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    starts = [total / count for total, count in blocks for _ in range(int(count))]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]
