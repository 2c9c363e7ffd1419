"""Files that databases read: any part at any time, from any thread, never through a memory map.

A page of a memory map that a truncated file no longer backs kills the process with SIGBUS; a read
of the same place comes back short, and that can be reported.
"""

from __future__ import annotations

import os
import threading

from ..errors import DataError

_LARGE = 1 << 20


class FileReader:
    """A file opened for reading at any offset; several threads may use it.

    about: how errors begin, e.g. "LMDB 'train_lmdb'". Raises DataError when it cannot be opened.
    """

    def __init__(self, path: str, about: str):
        self.path, self.about = path, about
        self.name = os.path.basename(path)
        self._fd = -1
        self._lock = threading.Lock()
        try:
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise DataError(f"{about}: cannot open {self.name}: {error.strerror}") from error
        if hasattr(os, "posix_fadvise"):
            # Records are read in file order, more or less: let the system read far ahead.
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    @property
    def size(self) -> int:
        """Bytes in the file now."""
        return self._status().st_size

    @property
    def deleted(self) -> bool:
        """Has the last name of this file been removed?"""
        return self._status().st_nlink == 0

    def _status(self) -> os.stat_result:
        if self._fd < 0:
            raise DataError(f"{self.about}: it is closed")
        return os.fstat(self._fd)

    def read_some(self, offset: int, size: int) -> bytes:
        """Up to size bytes from offset; fewer only at the end of the file."""
        if self._fd < 0:
            raise DataError(f"{self.about}: it is closed")
        if size > _LARGE:  # memory is bounded by the file, whatever a damaged length says
            size = max(0, min(size, self.size - offset))
        try:
            data = self._read_at(size, offset)
            while len(data) < size and (more := self._read_at(size - len(data), offset + len(data))):
                data += more
        except OSError as error:
            raise DataError(
                f"{self.about}: reading {self.name} at byte {offset} failed: {error.strerror}"
            ) from error
        return data

    if hasattr(os, "posix_fadvise"):

        def announce(self, offset: int, size: int) -> None:
            """Say that this part will be read soon: the system may fetch it from the disk meanwhile."""
            os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_WILLNEED)

    else:

        def announce(self, offset: int, size: int) -> None:
            """This system takes no such hints."""

    if hasattr(os, "pread"):

        def _read_at(self, size: int, offset: int) -> bytes:
            return os.pread(self._fd, size, offset)

    else:  # Windows

        def _read_at(self, size: int, offset: int) -> bytes:
            with self._lock:
                os.lseek(self._fd, offset, os.SEEK_SET)
                return os.read(self._fd, size)

    def read(self, offset: int, size: int) -> bytes:
        """Exactly size bytes from offset. Raises DataError when the file is too short for that."""
        data = self.read_some(offset, size)
        if len(data) < size:
            raise DataError(
                f"{self.about}: {self.name} has {self.size} bytes, but bytes {offset} to {offset + size} are "
                "needed: it is truncated or damaged; copy or create the database again"
            )
        return data

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()
