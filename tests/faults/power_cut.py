"""A folder of which a power failure leaves only what its process has synced, exactly as POSIX specifies: contents by
fsync or fdatasync of the file, names by fsync of their folder, everything by syncfs.

The library ``synced_only.c`` is preloaded into a real server and keeps a copy of the synced state. Current file systems
keep more than POSIX requires, and may at any time keep a part of the unsynced data.
:mod:`tests.storage.memory_filesystem` simulates this.
"""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

from tests.faults.preloaded import build_library

SOURCE = Path(__file__).with_name("synced_only.c")


class PowerCutVolume:
    """The folder :attr:`root` for the files of one process at a time."""

    def __init__(self, folder: Path) -> None:
        """``folder`` must be empty.

        Raises:
            CalledProcessError: The library cannot be built; the compiler has printed the reason.
        """
        self.root = folder / "volume"
        self.root.mkdir()
        self._kept = folder / "kept"
        self._kept.mkdir()
        self._library = build_library(SOURCE, folder)

    def environment(self) -> dict[str, str]:
        """Environment variables of the process."""
        return {
            "LD_PRELOAD": str(self._library),
            "SYNCED_ONLY_ROOT": str(self.root),
            "SYNCED_ONLY_KEPT": str(self._kept),
        }

    def cut(self) -> None:
        """Leave only durable data. The process must have ended."""
        inode = (self._kept / "root").read_text()  # missing if the library was not loaded into the process
        shutil.rmtree(self.root)
        self.root.mkdir()
        self._leave(self.root, inode)
        shutil.rmtree(self._kept)
        self._kept.mkdir()

    def durable(self, place: str) -> bytes | None:
        """Return what a power failure would leave now of the file at ``place`` below :attr:`root`; None without a
        file.
        """
        inode = (self._kept / "root").read_text()
        for part in place.split("/"):
            found = [entry for entry, _, name in self._names(inode) if name == part]
            if not found:
                return None
            inode = found[0]
        return self._contents(inode)

    def _contents(self, inode: str) -> bytes:
        contents = self._kept / inode
        return contents.read_bytes() if contents.exists() else b""

    def _leave(self, folder: Path, inode: str) -> None:
        for entry, mode, name in self._names(inode):
            path = folder / name
            if stat.S_ISDIR(mode):
                path.mkdir()
                self._leave(path, entry)
            else:
                path.write_bytes(self._contents(entry))
            path.chmod(stat.S_IMODE(mode))

    def _names(self, inode: str) -> list[tuple[str, int, str]]:
        names = self._kept / inode
        lines = names.read_text().splitlines() if names.exists() else []
        entries = [line.split(" ", 2) for line in lines]
        return [(entry, int(mode, 8), name) for entry, mode, name in entries]
