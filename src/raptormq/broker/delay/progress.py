"""How far the delivery of each delay level has come (``config/delayOffset.json``, ``ScheduleMessageService``).

``{"dataVersion": {...}, "offsetTable": {"1": 17}}``: level -> offset of the first message in its queue that was not yet
delivered. It is written a little after the delivery, so a crash delivers a few messages twice and loses none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raptormq.files import Files
from raptormq.json_file import JsonFile
from raptormq.protocol.bodies.members import object_at, whole
from raptormq.protocol.bodies.topic_config import DataVersion


class DelayProgress:
    """Offsets by level."""

    def __init__(self, file: JsonFile, clock: Callable[[], int]) -> None:
        """Read the file; there need not be one.

        Raises:
            StoreDamaged: file and backup are damaged.
        """
        self.offsets, self._version = file.load(_decode) or ({}, DataVersion())
        self._clock = clock

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file."""
        self._version = self._version.next(self._clock())
        return {"dataVersion": self._version.to_dict(), "offsetTable": dict(self.offsets)}


def delays_file(path: str, files: Files | None) -> JsonFile:
    """Return the file of the progress at ``path``."""
    without = "without it the delayed messages that the log still has and that are due are delivered again"
    return JsonFile(path, files, key="offsetTable", without=without)


def _decode(value: dict[str, Any]) -> tuple[dict[int, int], DataVersion]:
    offsets = {int(level): whole(offset) for level, offset in object_at(value, "offsetTable").items()}
    return offsets, DataVersion.from_dict(value.get("dataVersion"))
