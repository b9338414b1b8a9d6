"""The resident pages of a file according to the kernel, and an in-memory volume that records evictions."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from raptormq.storage.fs.real import RealFileSystem
from tests.storage.memory_filesystem import MemoryFile, MemoryFileSystem

P = ParamSpec("P")
T = TypeVar("T")


class Unloading(MemoryFile):
    """A file that reports evicted ranges to its volume."""

    def evict(self, offset: int, size: int) -> None:
        assert isinstance(self._volume, Volume)
        begin = int(self._path.rpartition("/")[2]) + offset
        self._volume.unloaded.append((begin, begin + size))


class Volume(MemoryFileSystem):
    def __init__(self) -> None:
        super().__init__()
        self.unloaded: list[tuple[int, int]] = []

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        return Unloading(self, path, file._node)


class Here:
    """Runs functions immediately."""

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(*args, **kwargs)


def pages_in_memory(path: Path) -> list[bool]:
    """Return whether each page of a file is in the page cache (mincore)."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        flags = (ctypes.c_ubyte * (len(mapping) // mmap.PAGESIZE))()
        here = ctypes.c_char.from_buffer(mapping)
        assert (
            ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(here)), ctypes.c_size_t(len(mapping)), flags)
            == 0
        )
        del here
        return [bool(flag & 1) for flag in flags]


def leaves_memory(folder: Path) -> bool:
    """Return whether pages of the volume can be evicted. Those of a memory-based volume cannot."""
    file = RealFileSystem().open(str(folder / "page"), create=True)
    file.write_at(0, [bytes(4096)], 4096)
    file.sync()
    os.posix_fadvise(file._fd, 0, 0, os.POSIX_FADV_DONTNEED)
    is_gone = file.read_cached(0, 4096) is None
    file.close()
    return is_gone
