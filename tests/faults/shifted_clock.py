"""A wall clock of a running process that tests set. The library ``shifted_clock.c`` is preloaded into the process."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.faults.preloaded import build_library

SOURCE = Path(__file__).with_name("shifted_clock.c")


class ShiftedClocks:
    """The clocks of several processes, by name."""

    def __init__(self, folder: Path) -> None:
        """``folder`` must exist.

        Raises:
            CalledProcessError: The library cannot be built; the compiler has printed the reason.
        """
        self._folder = folder
        self._library = build_library(SOURCE, folder)

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment variables of a process. Its clock is correct until it is set."""
        file = self._file(name)
        if not file.exists():
            file.write_bytes(struct.pack("q", 0))
        return {"LD_PRELOAD": str(self._library), "SHIFTED_CLOCK": str(file)}

    def set(self, name: str, ahead_s: int) -> None:
        """Set the clock of a process this many seconds ahead; a negative number sets it back."""
        with self._file(name).open("r+b", buffering=0) as file:  # in place, because the process has mapped it
            file.write(struct.pack("q", ahead_s))

    def _file(self, name: str) -> Path:
        return self._folder / f"clock-{name}"
