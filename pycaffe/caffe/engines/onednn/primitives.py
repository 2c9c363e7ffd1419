"""oneDNN's objects in Python: memory descriptors, memories, primitive descriptors, primitives.

Every handle is an opaque pointer. The only structure passed is the pair (argument index, memory) of an
execute call. Descriptors are interned: two that describe the same layout are the same Python object,
so that a layout can be compared by identity and be the key of a SyncedMem's copy.
"""

from __future__ import annotations

import contextlib
import ctypes as c
import math
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .library import Library, OneDNNError, load

# dnnl_types.h
F32, S32, U8 = 3, 2, 6
ANY = 1
FORWARD_TRAINING, FORWARD_INFERENCE, BACKWARD, BACKWARD_DATA = 64, 96, 128, 160
# Arguments of execute.
SRC, SRC_1, DST, WEIGHTS, BIAS = 1, 2, 17, 33, 41
MEAN, VARIANCE, SCALE, SHIFT, WORKSPACE, SCRATCHPAD = 49, 50, 51, 52, 64, 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS, DIFF_BIAS, DIFF_SCALE, DIFF_SHIFT = 129, 145, 161, 169, 255, 256
MULTIPLE_SRC = 1024
# Algorithms.
CONVOLUTION_DIRECT, DECONVOLUTION_DIRECT = 1, 3
POOLING_MAX, POOLING_AVG_INCLUDE, POOLING_AVG_EXCLUDE = 511, 767, 1023
LRN_ACROSS, LRN_WITHIN = 2815, 3071
SOFTMAX_ACCURATE = 196608
RELU, TANH, ELU, ABS, LINEAR, SOFT_RELU, LOGISTIC, SWISH, CLIP = 32, 33, 34, 36, 38, 39, 41, 44, 46
RELU_DST, TANH_DST, ELU_DST, LOGISTIC_DST = 256, 257, 258, 260
BINARY_ADD, BINARY_MUL, BINARY_MAX, BINARY_SUB, BINARY_GE = 131056, 131057, 131058, 131061, 131062
# Flags of batch normalisation.
USE_GLOBAL_STATS, USE_SCALE, USE_SHIFT, FUSE_RELU = 1, 2, 4, 8
# Queries.
_QUERY_NDIMS, _QUERY_DIMS, _QUERY_TYPE, _QUERY_OFFSET, _QUERY_PADDED, _QUERY_STRIDES = (
    256,
    257,
    258,
    259,
    260,
    14,
)
_QUERY_BLOCKS, _QUERY_BLOCK_SIZES, _QUERY_BLOCK_AXES, _QUERY_IMPL = 263, 264, 265, 8
SRC_MD, DIFF_SRC_MD, WEIGHTS_MD, DIFF_WEIGHTS_MD, DST_MD, DIFF_DST_MD, WORKSPACE_MD, SCRATCHPAD_MD = range(
    129, 137
)

_SCRATCHPAD_USER = 1

_DIMS = c.c_int64 * 12


class Argument(c.Structure):
    """dnnl_exec_arg_t"""

    _fields_ = [("index", c.c_int), ("memory", c.c_void_p)]


def dims(values: Sequence[int]) -> Any:
    return _DIMS(*values)


def post_operand(k: int) -> int:
    """Argument of execute for the second operand of the k-th post-operation."""
    return 32768 * (k + 1) | SRC_1


def scale_argument(argument: int) -> int:
    """Argument of execute for the factor of an argument."""
    return 4096 | argument


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


class Buffer:
    """Aligned, zeroed memory (the padding of blocked layouts must be zero) with its address."""

    __slots__ = ("bytes", "address")

    def __init__(self, nbytes: int):
        spare = np.zeros(nbytes + 64, np.uint8)
        offset = -spare.ctypes.data % 64
        self.bytes = spare[offset : offset + nbytes]
        self.address = self.bytes.ctypes.data

    @property
    def floats(self) -> np.ndarray:
        """All of it as float32, in the order in which it lies."""
        return self.bytes[: self.bytes.size // 4 * 4].view(np.float32)


class Memory:
    """dnnl_memory: a layout bound to an address that may change between executions."""

    __slots__ = ("desc", "handle", "address", "keep", "_library", "__weakref__")

    def __init__(self, desc: MemoryDesc, buffer: Buffer | None = None):
        self._library, self.desc = load(), desc
        self.keep: Any = buffer  # whatever owns the memory at the address
        self.address = buffer.address if buffer is not None else 0
        self.handle = c.c_void_p()
        self._library.call(
            "dnnl_memory_create",
            c.byref(self.handle),
            desc.handle,
            self._library.engine,
            c.c_void_p(self.address),
        )

    def point(self, address: int) -> None:
        if address != self.address:
            self._library.call("dnnl_memory_set_data_handle", self.handle, c.c_void_p(address))
            self.address = address

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.dll.dnnl_memory_destroy(self.handle)


class Attributes:
    """Post-operations of a primitive. Scratch memory is always the caller's: oneDNN's own belongs to one
    thread."""

    __slots__ = ("handle", "_library")

    def __init__(self, post: Sequence[tuple] = (), scaled: Sequence[int] = ()):
        """post: ("sum", factor), ("eltwise", algorithm, alpha, beta) or ("binary", algorithm, layout) in
        order.
        scaled: arguments that get a factor when the primitive is run (`scale_argument`)."""
        self._library = library = load()
        self.handle = c.c_void_p()
        library.call("dnnl_primitive_attr_create", c.byref(self.handle))
        library.call("dnnl_primitive_attr_set_scratchpad_mode", self.handle, _SCRATCHPAD_USER)
        for argument in scaled:
            library.call("dnnl_primitive_attr_set_scales_mask", self.handle, argument, 0)
        if post:
            operations = c.c_void_p()
            library.call("dnnl_post_ops_create", c.byref(operations))
            for kind, *rest in post:
                if kind == "sum":
                    library.call("dnnl_post_ops_append_sum", operations, c.c_float(rest[0]), c.c_int32(0), 0)
                elif kind == "binary":
                    algorithm, layout = rest
                    library.call("dnnl_post_ops_append_binary", operations, algorithm, layout.handle)
                else:
                    algorithm, alpha, beta = rest
                    library.call(
                        "dnnl_post_ops_append_eltwise",
                        operations,
                        algorithm,
                        c.c_float(alpha),
                        c.c_float(beta),
                    )
            library.call("dnnl_primitive_attr_set_post_ops", self.handle, operations)
            library.dll.dnnl_post_ops_destroy(operations)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.dll.dnnl_primitive_attr_destroy(self.handle)


def _argument(value: Any) -> Any:
    if isinstance(value, float):
        return c.c_float(value)
    if value is None:
        return c.c_void_p(None)
    if type(value) is int:
        return value
    handle = getattr(value, "handle", value)
    return handle


# Elements that one thread moves, or tens of multiplications that it makes, in the time that starting another
# takes.
_ALONE = 1 << 16


def _work(kind: str, arguments: Sequence[Any]) -> int:
    """Elements of all operands; for products, a 32nd of their multiplications, if that is more."""
    shapes = [a.shape for a in arguments if isinstance(a, (MemoryDesc, AnyDesc))]
    total = sum(math.prod(shape) for shape in shapes)
    if "convolution" in kind:
        return max(total, math.prod(shapes[-1]) * math.prod(shapes[1]) // shapes[-1][1] // 32)
    if "inner_product" in kind:
        weights = math.prod(shapes[1])  # one row streams them at the speed of a cache
        return max(total - weights + weights // 8, shapes[0][0] * weights // 32)
    return total


@contextlib.contextmanager
def _threads(library: Library, alone: bool) -> Iterator[None]:
    """oneDNN decides how to share the work when a primitive is made; one that is made alone must be run
    alone."""
    if not alone or library.set_threads is None:
        yield
        return
    library.set_threads(1)
    try:
        yield
    finally:
        library.set_threads(library.threads)


class PrimitiveDesc:
    """What oneDNN will do, chosen for the given layouts.

    kind: "convolution_forward" and so on; arguments as in the C function after the engine, with Python
    objects of this module for handles, floats for floats and `dims(...)` for arrays of dimensions.
    Raises OneDNNError when oneDNN has no such primitive.
    alone: it is so little work that one thread does it sooner than two could be woken.
    """

    __slots__ = ("handle", "alone", "_library", "_keep")

    def __init__(self, kind: str, *arguments: Any, work: int | None = None):
        """work: elements read and written; None to count those of the arguments."""
        self._library = library = load()
        self.handle, self._keep = c.c_void_p(), arguments
        self.alone = (_work(kind, arguments) if work is None else work) <= _ALONE
        call = [_argument(a) for a in arguments]
        with _threads(library, self.alone):
            library.call(f"dnnl_{kind}_primitive_desc_create", c.byref(self.handle), library.engine, *call)

    @classmethod
    def of_many(
        cls,
        kind: str,
        target: MemoryDesc | None,
        sources: Sequence[MemoryDesc],
        numbers: Sequence[float] | int,
        attributes: Attributes,
    ) -> PrimitiveDesc:
        """Kinds with a variable number of sources: "sum" with factors as numbers, "concat" with an axis."""
        n = len(sources)
        handles = (c.c_void_p * n)(*(s.handle.value for s in sources))
        work = sum(math.prod(s.shape) for s in sources)
        if isinstance(numbers, int):
            return cls(kind, target, n, numbers, handles, attributes, work=work)
        return cls(kind, target, n, (c.c_float * n)(*numbers), handles, attributes, work=work)

    @classmethod
    def reorder(
        cls, source: MemoryDesc, target: MemoryDesc, attributes: Attributes | None = None
    ) -> PrimitiveDesc:
        library = load()
        desc = cls.__new__(cls)
        desc._library, desc._keep, desc.handle = library, (source, target, attributes), c.c_void_p()
        desc.alone = 2 * math.prod(source.shape) <= _ALONE
        with _threads(library, desc.alone):
            library.call(
                "dnnl_reorder_primitive_desc_create",
                c.byref(desc.handle),
                source.handle,
                library.engine,
                target.handle,
                library.engine,
                _argument(attributes),
            )
        return desc

    def desc(self, what: int, index: int = 0) -> MemoryDesc:
        """The layout that the primitive chose for one of its arguments."""
        function = self._library.dll.dnnl_primitive_desc_query_md
        function.restype = c.c_void_p
        return MemoryDesc.of(c.c_void_p(function(self.handle, what, index)), owned=False)

    @property
    def implementation(self) -> str:
        """Name of the code that will run; "ref" in it means slow."""
        text = c.c_char_p()
        self._library.call("dnnl_primitive_desc_query", self.handle, _QUERY_IMPL, 0, c.byref(text))
        return (text.value or b"").decode()

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.dll.dnnl_primitive_desc_destroy(self.handle)


class Primitive:
    """A compiled primitive with its arguments; calling it runs it.

    memories: {argument index: Memory}. Their addresses may be changed between calls with `point`.
    """

    __slots__ = ("desc", "handle", "memories", "_library", "_call", "_arguments", "_alone")

    def __init__(self, desc: PrimitiveDesc, memories: dict[int, Memory]):
        self._library = library = load()
        self.desc, self.memories = desc, memories
        self.handle = c.c_void_p()
        self._alone = desc.alone and library.set_threads is not None
        with _threads(library, desc.alone):
            library.call("dnnl_primitive_create", c.byref(self.handle), desc.handle)
        self._arguments = (Argument * len(memories))(
            *(Argument(k, m.handle.value) for k, m in memories.items())
        )
        self._call = (self.handle, library.stream, len(memories), self._arguments)

    def __call__(self) -> None:
        library = self._library
        if self._alone:
            library.set_threads(1)
            status = library.execute(*self._call)
            library.set_threads(library.threads)
        else:
            status = library.execute(*self._call)
        if status:
            raise OneDNNError("dnnl_primitive_execute", status)
        if library.waits:
            library.call("dnnl_stream_wait", library.stream)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.dll.dnnl_primitive_destroy(self.handle)


def reorder(source: Memory, target: Memory) -> Primitive:
    """The primitive that copies source into target's layout; needs no scratch memory of the caller's."""
    return Primitive(PrimitiveDesc.reorder(source.desc, target.desc), {SRC: source, DST: target})
