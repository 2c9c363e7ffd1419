"""The CUDA driver through PyCUDA: loading it, the one device of this process, and what its errors mean.

PyCUDA is imported here, once, when the first net prefers the engine. The device's primary context is used, so
that cuBLAS and NCCL share it; it is pushed in each thread that comes along, and popped when the thread or the
process ends (PyCUDA aborts a process whose contexts are still pushed).
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import logging
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

from ... import context
from ...errors import EngineError, ForkError
from ...execution import memory_text

log = logging.getLogger("caffe.engine")

_INSTALL = (
    "pip install 'pycaffe[cuda]' (it is compiled on installing: that needs the CUDA toolkit, its bin folder "
    "first in PATH, and a C++ compiler)"
)

_driver: Any = None
_device: Device | None = None
_lock = threading.RLock()
_forked = False


def load() -> Any:
    """The module pycuda.driver, initialised. Raises EngineError with the reason and the cure."""
    global _driver
    with _lock:
        if _driver is None:
            _driver = _import()
        return _driver


def _import() -> Any:
    try:
        import pycuda.driver as driver  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise EngineError(f"the GPU engine needs PyCUDA ({error}): {_INSTALL}") from error
    except ImportError as error:
        if "libcuda" in str(error):
            raise EngineError(
                f"PyCUDA is installed, but NVIDIA's driver is not ({error}): install the driver for this "
                "GPU, and in a container start it with --gpus all"
            ) from error
        raise EngineError(f"PyCUDA cannot be loaded ({error}): reinstall it, {_INSTALL}") from error
    try:
        driver.init()
        count = driver.Device.count()
    except driver.Error as error:
        if "no_device" in str(error).lower() or "no cuda-capable device" in str(error).lower():
            raise EngineError(f"{_no_device()} ({error})") from error
        raise EngineError(
            f"NVIDIA's driver is installed but cannot be used ({error}): `nvidia-smi` tells more; a driver "
            "that was just "
            "updated needs a restart, and its version must be new enough for the CUDA toolkit that PyCUDA "
            "was built with"
        ) from error
    if count == 0:
        raise EngineError(_no_device())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
    return driver


def _no_device() -> str:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    why = (
        f"CUDA_VISIBLE_DEVICES is '{hidden}'; unset it"
        if hidden is not None
        else "is there one in `nvidia-smi`?"
    )
    return f"there is no CUDA device here: {why}"


def _after_fork() -> None:
    global _forked
    _forked = _device is not None


def device_count() -> int:
    return load().Device.count()


def missing(ordinal: int) -> str:
    """What to say of a device that is not there."""
    return (
        f"there is no GPU {ordinal}: this machine has {device_count()}, numbered from 0 (`caffe "
        "device_query` lists them)"
    )


@functools.cache
def raw() -> ctypes.CDLL:
    """The driver's C interface, for the little that PyCUDA does not offer."""
    return ctypes.CDLL("libcuda.so.1")


class _Pushed:
    """A thread's hold on the context; dies with the thread."""

    def __init__(self, device: Device):
        device.context.push()
        self.context, self.thread = device.context, threading.get_ident()

    def __del__(self) -> None:
        # At exit this is called for threads that still live, from the main thread, whose context it is not.
        if self.context is not None and self.thread == threading.get_ident():
            self.context.pop()
            self.context = None


class Device:
    """The GPU of this process. Raises EngineError when there is none of that number.

    stream: all that the engine does runs on it, in order, but for `uploads`: copies of batches to come.
    capability: (major, minor). processors: its number of multiprocessors.
    """

    def __init__(self, ordinal: int):
        driver = load()
        if ordinal >= device_count():
            raise EngineError(missing(ordinal))
        self.ordinal = ordinal
        self.driver = driver
        self.handle = driver.Device(ordinal)
        self.name: str = self.handle.name()
        self.capability: tuple[int, int] = self.handle.compute_capability()
        attribute = driver.device_attribute
        self.processors: int = self.handle.get_attribute(attribute.MULTIPROCESSOR_COUNT)
        self._local, self._over = threading.local(), False
        try:
            self.context = self.handle.retain_primary_context()
            self.enter()
            self.stream, self.uploads = driver.Stream(), driver.Stream()
        except driver.Error as error:
            raise EngineError(
                f"GPU {ordinal} ({self.name}) cannot be used: {error}. Is it in exclusive mode, or its "
                "memory full? "
                "(`nvidia-smi`)"
            ) from error
        atexit.register(self._leave)

    def enter(self) -> None:
        """Make the context current in this thread, if it is not."""
        if getattr(self._local, "pushed", None) is None:
            self._local.pushed = _Pushed(self)

    def _leave(self) -> None:
        """At exit, in the main thread; also after an uncaught exception."""
        self.drain()
        self._over = True
        # PyCUDA says so of objects that another thread has made; the end of the process frees them.
        warnings.filterwarnings("ignore", r"\w+ in out-of-thread context", UserWarning)
        pushed = getattr(self._local, "pushed", None)
        if pushed is not None:
            pushed.__del__()

    def usable(self) -> bool:
        """False at exit, and in a forked child."""
        return not self._over and not _forked

    def drain(self) -> None:
        """Wait until no upload is under way, in a destructor or at exit, where nothing is raised."""
        if self.usable():
            self.enter()
            try:
                self.uploads.synchronize()
            except self.driver.Error as error:  # of a kernel's failure, which has been raised before
                log.debug("an upload has not been done: %s", error)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes."""
        self.enter()
        return self.driver.mem_get_info()

    def synchronize(self) -> None:
        """Wait until all that was asked of the device is done. Raises EngineError when some of it failed."""
        perform("waiting for the GPU", self.stream.synchronize)


def device() -> Device:
    """The device, its context current in this thread; chosen at the first call by `context.device()`.

    Raises EngineError when another device has been asked for since: a process keeps its first.
    """
    global _device
    if _forked:
        raise ForkError(
            "this process was forked after the GPU was used, and a GPU's context does not come along: use "
            "the 'spawn' start "
            "method of multiprocessing, or build the first net in the child"
        )
    current = _device
    if current is None:
        with _lock:
            current = _device = _device or Device(context.device())
    current.enter()
    return current


def usable() -> bool:
    """Has this process a device that may be called now? For destructors: never raises."""
    return _device is not None and _device.usable()


def check_device() -> None:
    """Raises EngineError when `set_device` has asked for another device than the one that this process
    uses."""
    if _device is not None and _device.ordinal != context.device():
        raise EngineError(
            f"this process uses GPU {_device.ordinal} already, so set_device({context.device()}) comes too "
            "late: call it before "
            "the first net is built, or use one process per GPU"
        )


def perform(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the driver's function returns. what: the operation, in words. Raises EngineError when it fails."""
    try:
        return function(*arguments)
    except _driver.Error as error:
        raise failure(what, error) from error


def event() -> Any:
    """A new event of the driver's."""
    return perform("making an event", device().driver.Event)


def order(later: Any, earlier: Any, mark: Any) -> None:
    """What comes on the stream `later` waits for all that is on the stream `earlier` now. mark: an event."""
    perform("an event", mark.record, earlier)
    perform("an event", later.wait_for_event, mark)


def failure(what: str, error: Exception) -> EngineError:
    """A driver's error as ours. what: the operation, in words."""
    text = str(error)
    cure = ""
    if "illegal" in text or "launch" in text.lower():
        cure = (
            "; a kernel failed, perhaps an earlier one: CUDA_LAUNCH_BLOCKING=1 in the environment names "
            "the right one, and "
            "compute-sanitizer its address. The GPU cannot be used by this process any more"
        )
    return EngineError(f"GPU: {what} failed: {text}{cure}")


def describe() -> str:
    """Devices and versions, for device_query and the log."""
    driver = load()
    version = driver.get_driver_version()
    lines = [f"CUDA {version // 1000}.{version % 1000 // 10}"]
    for ordinal in range(driver.Device.count()):
        handle = driver.Device(ordinal)
        major, minor = handle.compute_capability()
        memory = memory_text(handle.total_memory())
        processors = handle.get_attribute(driver.device_attribute.MULTIPROCESSOR_COUNT)
        lines.append(
            f"GPU {ordinal}: {handle.name()}, compute capability {major}.{minor}, {processors} "
            f"multiprocessors, {memory}"
        )
    return "; ".join(lines)
