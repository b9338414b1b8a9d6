"""How far the delivery of each delay level has come (``config/delayOffset.json``, ``ScheduleMessageService``).

``{"dataVersion": {...}, "offsetTable": {"1": 17}}``: level -> offset of the first message in its queue that was not yet
delivered. It is written a little after the delivery, so a crash delivers a few messages twice and loses none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raptormq.errors import BodyError, StoreDamaged
from raptormq.protocol.bodies.topic_config import DataVersion
from raptormq.storage.json_file import JsonFile


class DelayProgress:
    """Offsets by level."""

    def __init__(self, file: JsonFile, clock: Callable[[], int]) -> None:
        """Read the file; there need not be one.

        Raises:
            StoreDamaged: file and backup are unreadable, or not of this shape.
        """
        saved = file.load() or {}
        try:
            self.offsets = {int(level): int(offset) for level, offset in (saved.get("offsetTable") or {}).items()}
            self._version = DataVersion.from_dict(saved.get("dataVersion"))
        except (AttributeError, TypeError, ValueError, BodyError) as error:
            raise StoreDamaged(f"{file.path} does not hold the offsets of delay levels: {error}") from error
        self._clock = clock

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file."""
        self._version = self._version.next(self._clock())
        return {"dataVersion": self._version.to_dict(), "offsetTable": dict(self.offsets)}
