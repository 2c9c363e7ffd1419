"""Counter-based random numbers: what is drawn depends on names and counters, never on order.

A stream belongs to one layer of one net: key = (net seed, layer name). A draw is addressed by
(iteration, sub-iteration), so that prefetch depth, threads and engines do not change it, and a resumed
run needs only its counters. The generator is Philox4x64-10 (Salmon et al., SC'11); the 64-bit words
are split into 32-bit ones, low half first, which any engine can reproduce.
"""

from __future__ import annotations

import hashlib

import numpy as np

_WORD = 0xFFFFFFFFFFFFFFFF


class Stream:
    """Random numbers of one owner.

    seed: any hashable tuple of integers or one integer (the net's); name: the layer's.
    """

    def __init__(self, seed: int | tuple[int, ...], name: str):
        digest = hashlib.blake2b(repr((seed, name)).encode(), digest_size=16).digest()
        self.key = (int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little"))
        self._bits = np.random.Philox(key=np.array(self.key, np.uint64))
        self._state = self._bits.state

    def _at(self, iteration: int, sub: int) -> np.random.Philox:
        # Word 0 counts blocks of four within a draw, so that 2**64 of them fit before words 1 and 2.
        self._state["state"]["counter"] = np.array([0, sub & _WORD, iteration & _WORD, 0], np.uint64)
        self._state["buffer_pos"] = 4
        self._state["has_uint32"] = 0
        self._bits.state = self._state
        return self._bits

    def bits32(self, count: int, iteration: int, sub: int = 0) -> np.ndarray:
        """count uniform 32-bit words as uint32, element i depending only on (key, iteration, sub, i)."""
        return self._at(iteration, sub).random_raw((count + 1) // 2).view(np.uint32)[:count]

    def generator(self, iteration: int = 0, sub: int = 0) -> np.random.Generator:
        """A NumPy generator that starts at this counter; draws from it are sequential."""
        # As an array: a list with a word past 2**63 would pass through float64.
        counter = np.array([0, sub & _WORD, iteration & _WORD, 0], np.uint64)
        bits = np.random.Philox(key=np.array(self.key, np.uint64), counter=counter)
        return np.random.Generator(bits)
