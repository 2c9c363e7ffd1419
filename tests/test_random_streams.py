"""Draws depend on their address alone."""

from __future__ import annotations

import numpy as np

from caffe.execution import ExecutionContext
from caffe.random_streams import Stream

M0, M1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
W0, W1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
MASK = 2**64 - 1


def philox4x64(counter: list[int], key: tuple[int, int]) -> list[int]:
    """Philox4x64-10 as published (Salmon et al. 2011), in Python integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = M0 * c0, M1 * c2
        c0, c1, c2, c3 = (p1 >> 64) ^ c1 ^ k0, p1 & MASK, (p0 >> 64) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + W0) & MASK, (k1 + W1) & MASK
    return [c0, c1, c2, c3]


def test_bits_are_philox_at_the_address() -> None:
    stream = Stream((3, 0), "drop1")
    got = stream.bits32(16, iteration=7, sub=2)
    # NumPy advances its counter before the first block.
    words = [w for block in (1, 2) for w in philox4x64([block, 2, 7, 0], stream.key)]
    expected = [half for w in words for half in (w & 0xFFFFFFFF, w >> 32)]
    assert got.tolist() == expected


def test_draws_do_not_depend_on_order_or_length() -> None:
    stream, other = Stream(1, "a"), Stream(1, "a")
    long = stream.bits32(101, 3, 1)
    stream.bits32(5, 9)
    assert np.array_equal(other.bits32(7, 3, 1), long[:7])
    assert np.array_equal(stream.bits32(101, 3, 1), long)


def test_different_addresses_differ() -> None:
    stream = Stream(1, "a")
    draws = [stream.bits32(4, i, s) for i in range(3) for s in range(3)]
    draws += [Stream(1, "b").bits32(4, 0), Stream(2, "a").bits32(4, 0), Stream((1, 1), "a").bits32(4, 0)]
    assert len({tuple(d) for d in draws}) == len(draws)


def test_bits_are_uniform() -> None:
    bits = Stream(1, "a").bits32(100_000, 0)
    assert abs(bits.mean() / 2**32 - 0.5) < 0.005
    assert abs((bits < 2**30).mean() - 0.25) < 0.005


def test_generators_start_at_their_address() -> None:
    stream = Stream(1, "a")
    first = stream.generator(4, 1).standard_normal(5)
    stream.bits32(10, 0)
    assert np.array_equal(stream.generator(4, 1).standard_normal(5), first)
    assert not np.array_equal(stream.generator(4, 2).standard_normal(5), first)


def test_scratch_grows_and_is_shared_by_use() -> None:
    run = ExecutionContext((1, 0))
    a = run.scratch("columns", (2, 3))
    assert a.shape == (2, 3) and a.dtype == np.float32
    assert np.shares_memory(run.scratch("columns", (5,)), a)
    assert run.scratch("columns", (100,)).size == 100
    assert not np.shares_memory(run.scratch("columns", (5,), np.float64), run.scratch("columns", (5,)))


def test_reseeding_continues_another_run() -> None:
    run, other = ExecutionContext((1, 0)), ExecutionContext((2, 0))
    assert not np.array_equal(run.bits32("d", 4), other.bits32("d", 4))
    other.reseed((1, 0))
    assert np.array_equal(run.bits32("d", 4), other.bits32("d", 4))
