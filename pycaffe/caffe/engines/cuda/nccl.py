"""NCCL through its C API: the means of gradients over the GPUs of several processes.

Reductions run on a stream of their own, so that backward goes on meanwhile; events order the two streams.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from typing import Any

from ...errors import EngineError
from ...synced_mem import SyncedMem
from . import driver
from .cublas import open_library
from .place import modify

log = logging.getLogger("caffe.engine")

_FLOAT, _AVERAGE = 7, 4
# ncclAvg is there from 2.10 on.
_MINIMUM = 21000


class _UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


def _open() -> ctypes.CDLL:
    dll = open_library("nccl", (2,), "nvidia-nccl-cu13")
    dll.ncclGetErrorString.restype = ctypes.c_char_p
    pointer, size, integer = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    dll.ncclCommInitRank.argtypes = [pointer, integer, _UniqueId, integer]
    dll.ncclAllReduce.argtypes = [pointer, pointer, size, integer, integer, pointer, pointer]
    dll.ncclBroadcast.argtypes = [pointer, pointer, size, integer, integer, pointer, pointer]
    version = ctypes.c_int()
    dll.ncclGetVersion(ctypes.byref(version))
    if version.value < _MINIMUM:
        raise EngineError(
            f"NCCL is version {version.value}, and must be 2.10 or newer: pip install nvidia-nccl-cu13"
        )
    return dll


def new_id() -> str:
    """A name that the processes of one training share. Raises EngineError when there is no NCCL."""
    dll, uid = _open(), _UniqueId()
    status = dll.ncclGetUniqueId(ctypes.byref(uid))
    if status:
        raise EngineError(f"NCCL: ncclGetUniqueId failed: {dll.ncclGetErrorString(status).decode()}")
    return bytes(uid).hex()


class NcclCollective:
    """A Collective (data_parallel.py) over GPUs. Made by all ranks at once; returns when all have come."""

    def __init__(self, uid: str, rank: int, size: int):
        self.rank, self.size = rank, size
        self._dll, self._device = _open(), driver.device()
        self._communicator = ctypes.c_void_p()
        identity = _UniqueId.from_buffer_copy(bytes.fromhex(uid))
        self._call("ncclCommInitRank", ctypes.byref(self._communicator), size, identity, rank)
        self._stream = driver.perform("making a stream", self._device.driver.Stream)
        self._produced, self._reduced = driver.event(), driver.event()

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._dll, name)(*arguments)
        if status:
            text = self._dll.ncclGetErrorString(status).decode()
            raise EngineError(f"NCCL: {name} failed: {text}. NCCL_DEBUG=INFO in the environment tells more")

    def _order(self) -> None:
        """What comes on the stream of reductions comes after what has been launched so far."""
        driver.order(self._stream, self._device.stream, self._produced)

    def broadcast(self, mems: Sequence[SyncedMem]) -> None:
        addresses = [(modify(mem), mem.size) for mem in mems]
        self._order()
        self._call("ncclGroupStart")
        for address, count in addresses:
            self._call(
                "ncclBroadcast", address, address, count, _FLOAT, 0, self._communicator, self._stream.handle
            )
        self._call("ncclGroupEnd")
        self.finish()

    def start_mean(self, mems: Sequence[SyncedMem]) -> None:
        addresses = [(modify(mem), mem.size) for mem in mems]
        self._order()
        self._call("ncclGroupStart")
        for address, count in addresses:
            self._call(
                "ncclAllReduce",
                address,
                address,
                count,
                _FLOAT,
                _AVERAGE,
                self._communicator,
                self._stream.handle,
            )
        self._call("ncclGroupEnd")

    def finish(self) -> None:
        driver.order(self._device.stream, self._stream, self._reduced)

    def abort(self) -> None:
        communicator, self._communicator = self._communicator, ctypes.c_void_p()
        if communicator:
            self._dll.ncclCommAbort(communicator)
