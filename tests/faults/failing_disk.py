"""Disks that answer EIO while the process that uses them runs: ``failing_disk.c`` is preloaded."""

from __future__ import annotations

from enum import IntFlag
from pathlib import Path

from tests.faults.preloaded import build_library

SOURCE = Path(__file__).with_name("failing_disk.c")


class Failing(IntFlag):
    """What the disk refuses, as the library reads it."""

    NOTHING = 0
    WRITES = 1
    SYNCS = 2


class FailingDisks:
    """The disks of some processes, by name."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is there.

        Raises:
            CalledProcessError: the library cannot be built; the compiler has said why.
        """
        self._folder = folder
        self._library = build_library(SOURCE, folder)

    def environment(self, name: str, root: Path) -> dict[str, str]:
        """What a process needs in its environment whose disk has the folder ``root``. It is sound until it is set."""
        if not self._file(name).exists():
            self._file(name).write_bytes(bytes([Failing.NOTHING]))
        return {
            "LD_PRELOAD": str(self._library),
            "FAILING_DISK": str(self._file(name)),
            "FAILING_DISK_ROOT": str(root),
        }

    def set(self, name: str, failing: Failing) -> None:
        """Let the disk of a process refuse these calls from now on."""
        with self._file(name).open("r+b", buffering=0) as file:  # in place: the process has mapped it
            file.write(bytes([failing]))

    def _file(self, name: str) -> Path:
        return self._folder / f"disk-{name}"
