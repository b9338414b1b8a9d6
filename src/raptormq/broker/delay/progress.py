"""Delivery progress of each delay level (``config/delayOffset.json``, ``ScheduleMessageService``).

``{"dataVersion": {...}, "offsetTable": {"1": 17}, "logOffset": 4096, "crc32": 123}``: level -> offset of the first
undelivered message in its queue. RocketMQ neither reads nor keeps the other fields. ``crc32`` protects the file
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
    """Offset of the first undelivered message by level."""

    def __init__(self, file: JsonFile, clock: Callable[[], int]) -> None:
        """Read the file, which may be missing.

        Raises:
            StoreDamaged: file and backup are damaged.
        """
        saved = file.load(_decode)
        self.is_known = saved is not None
        """Whether there was a file."""
        self.offsets, self._version, self.log_offset = saved or ({}, DataVersion(), None)
        """``log_offset`` is None if the file was written by RocketMQ or an older version."""
        self._file = file
        self._clock = clock
        self._saved = dict(self.offsets)

    def forget(self) -> None:
        """Reset the progress, because the saved progress is invalid."""
        self.offsets.clear()
        self.log_offset = 0

    @property
    def is_saved(self) -> bool:
        """Whether the file is up to date."""
        return self.offsets == self._saved

    def to_dict(self, log_offset: int) -> dict[str, Any]:
        """Return the current content of the file; ``log_offset`` is at most the end of the log."""
        self._version = self._version.next(self._clock())
        return {
            "dataVersion": self._version.to_dict(),
            "offsetTable": dict(self.offsets),
            "logOffset": log_offset,
        }

    def save(self, contents: dict[str, Any]) -> None:
        """Write what :meth:`to_dict` returned; durable on return. Blocks on the disk.

        Raises:
            OSError: the old contents are still there.
        """
        self._file.save(with_checksum(contents))
        self._saved = contents["offsetTable"]
        self.log_offset = contents["logOffset"]


def delays_file(path: str, files: Files | None) -> JsonFile:
    """Return the file of the progress at ``path``."""
    without = (
        "without it the broker reads from the log what was delivered; delayed messages that Apache RocketMQ or an older"
        " version has delivered are delivered again"
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
