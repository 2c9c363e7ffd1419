"""The machine's peak: fused multiply-adds on registers alone, as machine code.

14 independent multiply-adds of 16 floats (AVX-512) or 8 (AVX2), in a loop. x86-64 with one of the two only;
elsewhere a large matrix product stands in, which is a little below the peak."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time

import numpy as np

_LOOPS = 20_000_000


def _code(wide: bool) -> tuple[bytes, int]:
    """(function of the count in rdi, floating-point operations per round)"""
    clear = b"".join(_zero(i) for i in range(16))
    body = b""
    for i in range(2, 16):
        last = 0xC0 | (i % 8) << 3
        if wide:  # vfmadd231ps zmm_i, zmm1, zmm0
            body += bytes([0x62, 0x72 | (0x80 if i < 8 else 0), 0x75, 0x48, 0xB8, last])
        else:  # vfmadd231ps ymm_i, ymm1, ymm0
            body += bytes([0xC4, 0x62 | (0x80 if i < 8 else 0), 0x75, 0xB8, last])
    return clear + _loop(body), 14 * (16 if wide else 8) * 2


def _zero(i: int) -> bytes:
    """vxorps xmm_i, xmm_i, xmm_i, which clears the whole register"""
    first = 0x40 | (0x80 if i < 8 else 0) | (0x20 if i < 8 else 0)
    return bytes([0xC4, first | 0x01, (~i & 15) << 3, 0x57, 0xC0 | (i % 8) << 3 | i % 8])


def _loop(body: bytes) -> bytes:
    decrement = b"\x48\xff\xcf"  # dec rdi
    back = -(len(body) + len(decrement) + 6)
    return body + decrement + b"\x0f\x85" + back.to_bytes(4, "little", signed=True) + b"\xc5\xf8\x77\xc3"


def _flags() -> set[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((set(line.split()) for line in file if line.startswith("flags")), set())
    except OSError:
        return set()


def measure(threads: int) -> float:
    """Floating-point operations a second with so many threads."""
    flags = _flags()
    if "fma" not in flags:
        a = np.ones((2048, 2048), np.float32)
        start = time.perf_counter()
        for _ in range(5):
            a @ a
        return 5 * 2 * 2048.0**3 / (time.perf_counter() - start)
    code, operations = _code("avx512f" in flags)
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    run = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(address)
    best = 0.0
    for _ in range(5):
        workers = [threading.Thread(target=run, args=(_LOOPS // 4,)) for _ in range(threads)]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = max(best, threads * (_LOOPS // 4) * operations / (time.perf_counter() - start))
    return best
