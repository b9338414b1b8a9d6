"""Delivery progress of each delay level (``config/delayOffset.json``, ``ScheduleMessageService``).

``{"dataVersion": {...}, "offsetTable": {"1": 17}, "logOffset": 4096, "crc32": 123}``. ``offsetTable`` maps a level to
the queue offset of its first undelivered message. RocketMQ ignores and drops ``logOffset`` and ``crc32``. ``crc32`` is
the checksum of the file (:func:`~raptormq.json_file.with_checksum`). The saved progress includes all deliveries whose
copies are below ``logOffset`` in the log. The log is scanned for later deliveries (:mod:`raptormq.broker.delivered`).
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
        """Whether the file existed."""
        self.offsets, self._version, self.log_offset = saved or ({}, DataVersion(), None)
        """``log_offset`` is None if RocketMQ or an older version wrote the file."""
        self._file = file
        self._clock = clock
        self._saved = dict(self.offsets)

    def forget(self) -> None:
        """Discard saved progress that is ahead of the log."""
        self.offsets.clear()
        self._saved = {}
        self.log_offset = 0

    def reload(self) -> None:
        """Continue with the saved progress. The progress in memory may count deliveries that were truncated."""
        self.offsets = dict(self._saved)

    def replace(self, offsets: dict[int, int], log_offset: int | None) -> None:
        """Replace the progress by that of a master and write it; durable on return. Blocks on the disk.

        Raises:
            OSError: the write failed. The file has its old or its new content.
        """
        self.offsets, self.log_offset = dict(offsets), log_offset
        self._version = self._version.next(self._clock())
        contents = {"dataVersion": self._version.to_dict(), "offsetTable": self.offsets}
        self._file.save(with_checksum(contents if log_offset is None else contents | {"logOffset": log_offset}))
        self._saved = dict(offsets)

    @property
    def is_saved(self) -> bool:
        """Whether the file is up to date."""
        return self.offsets == self._saved

    def shown(self) -> dict[str, Any]:
        """Return the progress in the format of the file, for slaves. ``logOffset`` is the one last saved."""
        table = {"dataVersion": self._version.to_dict(), "offsetTable": dict(self.offsets)}
        return table if self.log_offset is None else table | {"logOffset": self.log_offset}

    def to_dict(self, log_offset: int) -> dict[str, Any]:
        """Return the current content of the file. ``log_offset`` must not exceed the end of the log."""
        self._version = self._version.next(self._clock())
        return {
            "dataVersion": self._version.to_dict(),
            "offsetTable": dict(self.offsets),
            "logOffset": log_offset,
        }

    def save(self, contents: dict[str, Any]) -> None:
        """Write the result of :meth:`to_dict` and sync it. Blocking.

        Raises:
            OSError: the write failed. The file has its old or its new content.
        """
        self._file.save(with_checksum(contents))
        self._saved = contents["offsetTable"]
        self.log_offset = contents["logOffset"]


def delays_file(path: str, files: Files | None) -> JsonFile:
    """Return the progress file at ``path``."""
    without = (
        "without it the broker scans the log for deliveries, and repeats deliveries of Apache RocketMQ or of an older"
        " version"
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
