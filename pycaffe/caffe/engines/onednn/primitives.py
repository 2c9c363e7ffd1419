"""oneDNN's objects in Python: memories, primitive descriptors, primitives.

Every handle is an opaque pointer. The only structure passed is the pair (argument index, memory) of an
execute call.
"""

from __future__ import annotations

import contextlib
import ctypes as c
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...places import aligned_zeros
from .layouts import AnyDesc, MemoryDesc
from .library import Library, OneDNNError, load

# dnnl_types.h
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
_QUERY_IMPL = 8
SRC_MD, DIFF_SRC_MD, WEIGHTS_MD, DIFF_WEIGHTS_MD, DST_MD, DIFF_DST_MD, WORKSPACE_MD, SCRATCHPAD_MD = range(
    129, 137
)

_SCRATCHPAD_USER = 1


class Argument(c.Structure):
    """dnnl_exec_arg_t"""

    _fields_ = [("index", c.c_int), ("memory", c.c_void_p)]


def post_operand(k: int) -> int:
    """Argument of execute for the second operand of the k-th post-operation."""
    return 32768 * (k + 1) | SRC_1


def scale_argument(argument: int) -> int:
    """Argument of execute for the factor of an argument."""
    return 4096 | argument


class Buffer:
    """Aligned, zeroed memory (the padding of blocked layouts must be zero) with its address."""

    __slots__ = ("bytes", "address")

    def __init__(self, nbytes: int):
        self.bytes = aligned_zeros(nbytes, np.uint8)
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
_ALONE = 1 << 15


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
