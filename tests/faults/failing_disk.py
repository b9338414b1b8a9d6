"""Disks that return EIO to a running process, or are full. The library ``failing_disk.c`` is preloaded into it."""

from __future__ import annotations

from enum import IntFlag
from pathlib import Path

from tests.faults.preloaded import build_library

SOURCE = Path(__file__).with_name("failing_disk.c")


class Failing(IntFlag):
    """Calls that the disk refuses, in the format of the library."""

    NOTHING = 0
    WRITES = 1
    SYNCS = 2
    ROOM = 4
    """A full disk: files do not grow. Allocated segments of the log can still be written."""


class FailingDisks:
    """The disks of several processes, by name."""

    def __init__(self, folder: Path) -> None:
        """``folder`` must exist.

        Raises:
            CalledProcessError: The library cannot be built; the compiler has printed the reason.
        """
        self._folder = folder
        self._library = build_library(SOURCE, folder)

    def environment(self, name: str, root: Path) -> dict[str, str]:
        """Return the environment variables of a process whose disk has the folder ``root``. The disk works until a
        fault is set.
        """
        if not self._file(name).exists():
            self._file(name).write_bytes(bytes([Failing.NOTHING]))
        return {
            "LD_PRELOAD": str(self._library),
            "FAILING_DISK": str(self._file(name)),
            "FAILING_DISK_ROOT": str(root),
        }

    def set(self, name: str, failing: Failing) -> None:
        """Make the disk of a process refuse these calls."""
        with self._file(name).open("r+b", buffering=0) as file:  # in place, because the process has mapped it
            file.write(bytes([failing]))

    def _file(self, name: str) -> Path:
        return self._folder / f"disk-{name}"
