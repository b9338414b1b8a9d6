"""How far the delivery of each delay level has come (``config/delayOffset.json``, ``ScheduleMessageService``).

``{"dataVersion": {...}, "offsetTable": {"1": 17}, "logOffset": 4096, "crc32": 123}``: level -> offset of the first
message in its queue that was not yet delivered. The others RocketMQ neither reads nor keeps: ``crc32`` seals the file
(:func:`~raptormq.json_file.sealed`), ``logOffset`` says of which moment all saved progress of deliveries is at least:
everything that was delivered before this offset of the log is in it, what was delivered behind it the log tells
(:mod:`raptormq.broker.delivered`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raptormq.files import Files
from raptormq.json_file import JsonFile, with_checksum
from raptormq.protocol.bodies.members import object_at, parse_integer
from raptormq.protocol.bodies.topic_config import DataVersion


class DelayProgress:
    """Offsets by level."""

    def __init__(self, file: JsonFile, clock: Callable[[], int]) -> None:
        """Read the file; there need not be one.

        Raises:
            StoreDamaged: file and backup are damaged.
        """
        saved = file.load(_decode)
        self.is_known = saved is not None
        """Whether there was a file."""
        self.offsets, self._version, self.log_offset = saved or ({}, DataVersion(), None)
        """By level; ``log_offset`` is None where the file does not say: RocketMQ wrote it, or an older version."""
        self._file = file
        self._clock = clock
        self._saved = dict(self.offsets)

    def forget(self) -> None:
        """What is saved is not to be believed."""
        self.offsets.clear()
        self.log_offset = 0

    @property
    def is_saved(self) -> bool:
        """Whether the file has all offsets."""
        return self.offsets == self._saved

    def to_dict(self, log_offset: int) -> dict[str, Any]:
        """Return the content of the file as it is now; ``log_offset`` is where the log ends, or less."""
        self._version = self._version.next(self._clock())
        return {
            "dataVersion": self._version.to_dict(),
            "offsetTable": dict(self.offsets),
            "logOffset": log_offset,
        }

    def save(self, contents: dict[str, Any]) -> None:
        """Write what :meth:`to_dict` returned; durable on return. Waits for the disk.

        Raises:
            OSError: the old contents are still there.
        """
        self._file.save(with_checksum(contents))
        self._saved = contents["offsetTable"]
        self.log_offset = contents["logOffset"]


def delays_file(path: str, files: Files | None) -> JsonFile:
    """Return the file of the progress at ``path``."""
    without = (
        "without it what was delivered is read from the log; delayed messages that Apache RocketMQ or an older version"
        " has delivered are delivered again"
    )
    return JsonFile(path, files, key="offsetTable", without=without)


def _decode(value: dict[str, Any]) -> tuple[dict[int, int], DataVersion, int | None]:
    offsets = {int(level): parse_integer(offset) for level, offset in object_at(value, "offsetTable").items()}
    log_offset = value.get("logOffset")
    return (
        offsets,
        DataVersion.from_dict(value.get("dataVersion")),
        None if log_offset is None else parse_integer(log_offset),
    )
