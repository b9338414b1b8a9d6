"""What of a file is in the page cache, asked of the kernel."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

from raptormq.storage.real_filesystem import RealFileSystem


def pages_in_memory(path: Path) -> list[bool]:
    """For each page of a file whether it is in the page cache (mincore)."""
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
    """Whether a volume's pages can be given back: those of a volume that is memory itself cannot."""
    file = RealFileSystem().open(str(folder / "page"), create=True)
    file.write_at(0, [bytes(4096)], 4096)
    file.sync()
    os.posix_fadvise(file._fd, 0, 0, os.POSIX_FADV_DONTNEED)
    is_gone = file.read_cached(0, 4096) is None
    file.close()
    return is_gone
