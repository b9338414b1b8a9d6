"""A wall clock that tests set while the process that reads it runs: ``shifted_clock.c`` is preloaded."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.faults.preloaded import build_library

SOURCE = Path(__file__).with_name("shifted_clock.c")


class ShiftedClocks:
    """The clocks of some processes, by name."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is there.

        Raises:
            CalledProcessError: the library cannot be built; the compiler has said why.
        """
        self._folder = folder
        self._library = build_library(SOURCE, folder)

    def environment(self, name: str) -> dict[str, str]:
        """What a process needs in its environment. Its clock is right as long as it was not set."""
        file = self._file(name)
        if not file.exists():
            file.write_bytes(struct.pack("q", 0))
        return {"LD_PRELOAD": str(self._library), "SHIFTED_CLOCK": str(file)}

    def set(self, name: str, ahead_s: int) -> None:
        """Let the clock of a process be ahead by so many seconds, or behind by a negative number."""
        with self._file(name).open("r+b", buffering=0) as file:  # in place: the process has mapped it
            file.write(struct.pack("q", ahead_s))

    def _file(self, name: str) -> Path:
        return self._folder / f"clock-{name}"
