"""A folder of which a power cut leaves only what its process has synced, to the letter of POSIX: contents by fsync or
fdatasync of the file, names by fsync of their folder, everything by syncfs.

``synced_only.c`` beside it is a library that is preloaded into a real server and keeps that aside. Where nothing fails,
file systems of today leave more than POSIX says, and at any time some of what is not synced: that any part of it may
come through is the matter of :mod:`tests.storage.memory_filesystem`.
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
        """``folder`` is empty.

        Raises:
            CalledProcessError: the library cannot be built; the compiler has said why.
        """
        self.root = folder / "volume"
        self.root.mkdir()
        self._kept = folder / "kept"
        self._kept.mkdir()
        self._library = build_library(SOURCE, folder)

    def environment(self) -> dict[str, str]:
        """What the process needs in its environment."""
        return {
            "LD_PRELOAD": str(self._library),
            "SYNCED_ONLY_ROOT": str(self.root),
            "SYNCED_ONLY_KEPT": str(self._kept),
        }

    def cut(self) -> None:
        """Leave only what is durable; the process is dead, or has ended."""
        inode = (self._kept / "root").read_text()  # there unless the library was not in the process
        shutil.rmtree(self.root)
        self.root.mkdir()
        self._leave(self.root, inode)
        shutil.rmtree(self._kept)
        self._kept.mkdir()

    def durable(self, place: str) -> bytes | None:
        """Return what a cut would leave now of the file at ``place`` below :attr:`root`; None: nothing."""
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
