"""Layouts: how oneDNN lays logical dimensions out in memory.

Descriptors are interned: two that describe the same layout are the same Python object, so that a layout can
be compared by identity and be the key of a SyncedMem's copy.
"""

from __future__ import annotations

import ctypes as c
import weakref
from collections.abc import Sequence
from typing import Any

from .library import Library, load

# dnnl_types.h
F32, S32, U8 = 3, 2, 6
ANY = 1
# Queries of a descriptor.
_QUERY_NDIMS, _QUERY_DIMS, _QUERY_TYPE, _QUERY_OFFSET, _QUERY_PADDED, _QUERY_STRIDES = (
    256,
    257,
    258,
    259,
    260,
    14,
)
_QUERY_BLOCKS, _QUERY_BLOCK_SIZES, _QUERY_BLOCK_AXES = 263, 264, 265

_DIMS = c.c_int64 * 12


def dims(values: Sequence[int]) -> Any:
    return _DIMS(*values)


class MemoryDesc:
    """A layout: logical dimensions and how they lie in memory. Made by the functions below; interned.

    shape: logical dimensions. nbytes: memory needed, padding included. plain: dense and in C order, so
    that the host's own array has this layout. key: what makes two descriptors equal.
    """

    __slots__ = ("handle", "shape", "nbytes", "plain", "key", "strides", "padded", "_library", "__weakref__")

    _interned: weakref.WeakValueDictionary[tuple, MemoryDesc] = weakref.WeakValueDictionary()

    handle: Any
    shape: tuple[int, ...]
    nbytes: int
    plain: bool
    key: tuple

    @classmethod
    def of(cls, handle: Any, owned: bool) -> MemoryDesc:
        """The interned object for a handle; a borrowed handle is cloned when it is new, an owned one
        destroyed when it is not."""
        library = load()
        key = _describe(library, handle)
        known = cls._interned.get(key)
        if known is not None:
            if owned:
                library.dll.dnnl_memory_desc_destroy(handle)
            return known
        desc = cls.__new__(cls)
        if owned:
            desc.handle = handle
        else:
            desc.handle = c.c_void_p()
            library.call("dnnl_memory_desc_clone", c.byref(desc.handle), handle)
        desc._library, desc.key = library, key
        desc.shape, desc.padded, desc.strides = key[1], key[2], key[3]
        desc.nbytes = _size(library, desc.handle)
        desc.plain = (
            key[0] == F32 and key[5] == 0 and _in_c_order(desc.shape, desc.strides, desc.padded, key[4])
        )
        cls._interned[key] = desc
        return desc

    def __del__(self) -> None:
        if self.handle:
            self._library.dll.dnnl_memory_desc_destroy(self.handle)

    def __repr__(self) -> str:
        return f"<MemoryDesc {self.tag()} {self.shape}>"

    def tag(self) -> str:
        """As oneDNN writes it: "aBcd16b"."""
        axes = {axis for axis, _ in self.key[4]}
        order = sorted(range(len(self.shape)), key=lambda k: -self.strides[k])
        letters = "".join(chr(65 + k) if k in axes else chr(97 + k) for k in order)
        return letters + "".join(f"{size}{chr(97 + axis)}" for axis, size in self.key[4])


def _in_c_order(
    shape: Sequence[int], strides: Sequence[int], padded: Sequence[int], blocks: Sequence[tuple[int, int]]
) -> bool:
    """Do elements lie as in C order? Blocked channels do where they are whole blocks and no axis follows
    them."""
    stride = 1
    if blocks:
        (axis, size), *more = blocks
        if more or tuple(shape) != tuple(padded) or any(n != 1 for n in shape[axis + 1 :]):
            return False
        if strides[axis] != size and shape[axis] != size:
            return False
        stride = shape[axis]
        shape, strides = shape[:axis], strides[:axis]
    for n, step in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and step != stride:
            return False
        stride *= n
    return True


def _size(library: Library, handle: Any) -> int:
    function = library.dll.dnnl_memory_desc_get_size
    function.restype = c.c_size_t
    return int(function(handle))


def _describe(library: Library, handle: Any) -> tuple:
    def integer(what: int) -> int:
        value = c.c_int()
        library.call("dnnl_memory_desc_query", handle, what, c.byref(value))
        return value.value

    def array(what: int, count: int) -> tuple[int, ...]:
        pointer = c.POINTER(c.c_int64)()
        library.call("dnnl_memory_desc_query", handle, what, c.byref(pointer))
        return tuple(pointer[i] for i in range(count))

    n, kind = integer(_QUERY_NDIMS), integer(_QUERY_TYPE)
    if n == 0:
        return (kind, (), (), (), (), 0)
    blocks = integer(_QUERY_BLOCKS)
    inner = (
        tuple(zip(array(_QUERY_BLOCK_AXES, blocks), array(_QUERY_BLOCK_SIZES, blocks), strict=True))
        if blocks
        else ()
    )
    offset = c.c_int64()
    library.call("dnnl_memory_desc_query", handle, _QUERY_OFFSET, c.byref(offset))
    return (
        kind,
        array(_QUERY_DIMS, n),
        array(_QUERY_PADDED, n),
        array(_QUERY_STRIDES, n),
        inner,
        offset.value,
    )


class AnyDesc:
    """A descriptor that leaves the layout to the primitive (format_tag any); not interned."""

    __slots__ = ("handle", "shape", "_library")

    def __init__(self, shape: Sequence[int]):
        self._library = load()
        self.handle, self.shape = c.c_void_p(), tuple(shape)
        self._library.call(
            "dnnl_memory_desc_create_with_tag", c.byref(self.handle), len(shape), dims(shape), F32, ANY
        )

    def __del__(self) -> None:
        if self.handle:
            self._library.dll.dnnl_memory_desc_destroy(self.handle)


def strided(shape: Sequence[int], strides: Sequence[int], kind: int = F32) -> MemoryDesc:
    """Layout with these strides, in elements."""
    handle = c.c_void_p()
    load().call(
        "dnnl_memory_desc_create_with_strides", c.byref(handle), len(shape), dims(shape), kind, dims(strides)
    )
    return MemoryDesc.of(handle, owned=True)


def plain(shape: Sequence[int]) -> MemoryDesc:
    """C order. A scalar counts as one element of one axis."""
    shape = tuple(shape) or (1,)
    strides = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        strides[k] = strides[k + 1] * max(1, shape[k + 1])
    return strided(shape, strides)


# Format tags nCw16c, nChw16c, nCdhw16c and those with blocks of 8, by number of axes (dnnl_format_tag_t).
_BLOCKED_TAGS = {16: {3: 56, 4: 78, 5: 121}, 8: {3: 69, 4: 102, 5: 142}}


def blocked(shape: Sequence[int]) -> MemoryDesc:
    """The layout in which activations of this shape usually run: channels in blocks of the instruction set's
    width for 3 to 5 axes, C order otherwise."""
    if len(shape) not in (3, 4, 5) or min(shape) == 0:
        return plain(shape)
    library = load()
    tag = _BLOCKED_TAGS[library.channel_block][len(shape)]
    handle = c.c_void_p()
    library.call("dnnl_memory_desc_create_with_tag", c.byref(handle), len(shape), dims(shape), F32, tag)
    return MemoryDesc.of(handle, owned=True)


def channels_last(shape: Sequence[int]) -> MemoryDesc:
    """The layout for channels that would fill their blocks badly: all channels of a pixel side by side."""
    if len(shape) not in (3, 4, 5) or min(shape) == 0:
        return plain(shape)
    strides, stride = [0] * len(shape), 1
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[axis] = stride
        stride *= shape[axis]
    return strided(shape, strides)


def activations(shape: Sequence[int], like: MemoryDesc) -> MemoryDesc:
    """The layout for activations of this shape that come from, or go with, others of that layout."""
    last = len(like.shape) > 2 and not like.plain and not like.key[4] and like.strides[1] == 1
    return channels_last(shape) if last else blocked(shape)


def submemory(parent: MemoryDesc, shape: Sequence[int], offsets: Sequence[int]) -> MemoryDesc:
    """A region of parent's memory. Raises OneDNNError when it does not start at a block."""
    handle = c.c_void_p()
    load().call(
        "dnnl_memory_desc_create_submemory", c.byref(handle), parent.handle, dims(shape), dims(offsets)
    )
    return MemoryDesc.of(handle, owned=True)


def reshaped(desc: MemoryDesc, shape: Sequence[int]) -> MemoryDesc:
    """The same memory seen with another shape. Raises OneDNNError when the layout does not allow it."""
    handle = c.c_void_p()
    load().call("dnnl_memory_desc_reshape", c.byref(handle), desc.handle, len(shape), dims(shape))
    return MemoryDesc.of(handle, owned=True)
