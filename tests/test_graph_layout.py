"""Layouts keep what makes a drawing readable: rows in order, nothing over anything else."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe.graph_layout import Layout, layout

GAP = 10


def check(result: Layout, widths: dict, heights: dict, edges: list) -> None:
    for source, target in edges:
        assert result.centres[source][1] < result.centres[target][1]
        along = [
            result.centres[source][1],
            *(y for _, y in result.routes[source, target]),
            result.centres[target][1],
        ]
        assert along == sorted(along)
    for a, b in itertools.combinations(widths, 2):
        (x1, y1), (x2, y2) = result.centres[a], result.centres[b]
        apart = abs(x1 - x2) >= (widths[a] + widths[b]) / 2 + GAP - 1e-6
        assert apart or abs(y1 - y2) >= (heights[a] + heights[b]) / 2 + GAP - 1e-6
    for node, (x, y) in result.centres.items():
        assert -1e-6 <= x - widths[node] / 2 and x + widths[node] / 2 <= result.size[0] + 1e-6
        assert -1e-6 <= y - heights[node] / 2 and y + heights[node] / 2 <= result.size[1] + 1e-6


@given(st.data(), st.integers(0, 12))
def test_nothing_overlaps(data: st.DataObject, count: int) -> None:
    sizes = st.floats(1, 100)
    widths = {n: data.draw(sizes) for n in range(count)}
    heights = {n: data.draw(sizes) for n in range(count)}
    pairs = list(itertools.combinations(range(count), 2))
    edges = data.draw(st.lists(st.sampled_from(pairs), max_size=20)) if pairs else []
    check(layout(widths, heights, edges, GAP), widths, heights, edges)


def test_a_chain_is_a_straight_line() -> None:
    sizes = dict.fromkeys("abcd", 20.0)
    result = layout(sizes, sizes, [("a", "b"), ("b", "c"), ("c", "d")], GAP)
    assert {x for x, _ in result.centres.values()} == {10}
    assert [y for _, y in result.centres.values()] == [10, 40, 70, 100]
    assert result.size == (20, 110)


def test_branches_do_not_cross() -> None:
    """Two branches whose second nodes are listed the other way round."""
    sizes = dict.fromkeys(["in", "a1", "b1", "b2", "a2"], 20.0)
    result = layout(sizes, sizes, [("in", "a1"), ("in", "b1"), ("a1", "a2"), ("b1", "b2")], GAP)
    x = {node: place[0] for node, place in result.centres.items()}
    assert (x["a1"] < x["b1"]) == (x["a2"] < x["b2"])


def test_a_long_edge_goes_around() -> None:
    """in -> add passes beside the two nodes of the other way, not through them."""
    sizes = dict.fromkeys(["in", "a", "b", "add"], 20.0)
    result = layout(sizes, sizes, [("in", "a"), ("a", "b"), ("b", "add"), ("in", "add")], GAP)
    route = result.routes["in", "add"]
    assert [y for _, y in route] == pytest.approx([20, 30, 50, 60, 80, 90])
    for (x, _), node in zip(route[1:-1], "aabb", strict=True):
        assert abs(x - result.centres[node][0]) >= 10 + GAP - 1e-6


def test_nothing_at_all() -> None:
    assert layout({}, {}, [], GAP).size == (0, 0)
