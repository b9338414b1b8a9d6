"""Committed offsets of consumer groups (Apache RocketMQ ``ConsumerOffsetManager``, ``config/consumerOffset.json``).

``{"dataVersion": {...}, "offsetTable": {"topic@group": {"0": 123}}}``. The table is kept in memory and written every 5
seconds if it has changed. After a crash a group consumes up to 5 seconds of messages again (at-least-once).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from raptormq.errors import BodyError
from raptormq.files import Files
from raptormq.json_file import JsonFile, VersionedFile, dump_pretty
from raptormq.protocol.bodies.members import object_at, parse_integer

_SEPARATOR = "@"


class Snapshot(NamedTuple):
    """The encoded offsets at one point in time."""

    version: int
    data: bytes


class ConsumerOffsets:
    """The next offset to consume by topic, group and queue id."""

    def __init__(self, file: JsonFile, clock: Callable[[], int]) -> None:
        self._json = file
        self._file = VersionedFile(file)
        self._clock = clock
        self._table: dict[str, dict[int, int]] = {}
        self._counter = 0
        self._changed: set[str] = set()

    def load(self) -> None:
        """Read the file, if it exists.

        Raises:
            StoreDamaged: the file and its backup are damaged.
        """
        found = self._json.load(_decode)
        if found is not None:
            self._table, self._counter = found
            self._file.version = self._counter

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the committed offset, or None."""
        row = self._table.get(f"{topic}{_SEPARATOR}{group}")
        return row.get(queue_id) if row is not None else None

    def row(self, topic: str, group: str) -> Mapping[int, int]:
        """Return the committed offsets of ``group`` in ``topic`` by queue id. The mapping shows later commits."""
        return self._table.get(f"{topic}{_SEPARATOR}{group}", {})

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the committed offset. It may be lower than the current one."""
        key = f"{topic}{_SEPARATOR}{group}"
        row = self._table.get(key)
        if row is None:
            row = self._table[key] = {}
        if row.get(queue_id) != offset:
            row[queue_id] = offset
            self._counter += 1
            self._changed.add(key)

    def clamp(self, end_of: Callable[[str, int], int]) -> int:
        """Reduce offsets beyond the end of their queue to that end, and return how many there were.

        After a power cut the log may have lost its end, while the offsets were saved. Messages stored there next have
        not been consumed.
        """
        count = 0
        for key, row in self._table.items():
            topic = key.partition(_SEPARATOR)[0]
            for queue_id, offset in row.items():
                if offset > (end := end_of(topic, queue_id)):
                    row[queue_id] = end
                    count += 1
        self._counter += count
        return count

    def of_group(self, group: str) -> Iterator[tuple[str, dict[int, int]]]:
        """Yield topic and offsets by queue id for every topic with offsets of ``group``."""
        for key, row in self._table.items():
            topic, _, owner = key.partition(_SEPARATOR)
            if owner == group:
                yield topic, dict(row)

    def topics_and_groups(self) -> Iterator[tuple[str, str]]:
        """Yield topic and group of each entry that exists at the first iteration."""
        for key in list(self._table):
            topic, _, group = key.partition(_SEPARATOR)
            yield topic, group

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the groups that have committed an offset in ``topic``."""
        prefix = topic + _SEPARATOR
        return [key[len(prefix) :] for key in self._table if key.startswith(prefix)]

    def remove_topic(self, topic: str) -> None:
        """Remove all offsets in ``topic``."""
        self._remove([f"{topic}{_SEPARATOR}{group}" for group in self.groups_of_topic(topic)])

    def remove_group(self, group: str) -> None:
        """Remove all offsets of ``group``."""
        self._remove([f"{topic}{_SEPARATOR}{group}" for topic, _ in self.of_group(group)])

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            del self._table[key]
        self._changed.update(keys)
        self._counter += bool(keys)

    def take_changed_rows(self) -> dict[str, dict[int, int] | None]:
        """Return the rows by ``topic@group`` that commits and removals have changed since the last call. The value of a
        removed row is None.
        """
        changed, self._changed = self._changed, set()
        return {key: dict(self._table[key]) if key in self._table else None for key in changed}

    def mark_changed(self, key: str) -> None:
        """Make the next :meth:`take_changed_rows` return the row again."""
        self._changed.add(key)

    def rows(self) -> Iterator[tuple[str, dict[int, int]]]:
        """Yield the ``topic@group`` and a copy of each row that exists at the first iteration."""
        for key in list(self._table):
            if key in self._table:
                yield key, dict(self._table[key])

    def set_row(self, key: str, row: dict[int, int] | None) -> None:
        """Set the row of a ``topic@group`` to that of another replica; None removes it."""
        if self._table.get(key) != row:
            if row is None:
                del self._table[key]
            else:
                self._table[key] = dict(row)
            self._counter += 1

    def forget_other_rows(self, keys: Collection[str]) -> None:
        """Remove every row whose ``topic@group`` is not among ``keys``."""
        for key in [key for key in self._table if key not in keys]:
            self.set_row(key, None)

    def snapshot(self) -> Snapshot | None:
        """Return the snapshot to write, or None if the file contains every change."""
        if self._counter == self._file.version:
            return None
        return Snapshot(self._counter, dump_pretty(self.as_json()))

    def as_json(self) -> dict[str, Any]:
        """Return the contents of the file."""
        version = {"counter": self._counter, "stateVersion": 0, "timestamp": self._clock()}
        return {"dataVersion": version, "offsetTable": self._table}

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Write the result of :meth:`snapshot`. Callable from any thread; blocks on the disk.

        Raises:
            OSError: the file is unchanged.
        """
        self._file.save(*snapshot)


def offsets_file(path: str, files: Files) -> JsonFile:
    """Return the file of the offsets at ``path``."""
    return JsonFile(path, files, key="offsetTable", without="without it all consumer groups start as new groups")


def _decode(value: dict[str, Any]) -> tuple[dict[str, dict[int, int]], int]:
    """Return the offsets and the number of the last change. Raises BodyError if ``value`` is not valid."""
    table: dict[str, dict[int, int]] = {}
    for key, row in object_at(value, "offsetTable").items():
        if _SEPARATOR not in key:
            raise BodyError(f"{key!r:.80} is not of the form topic@group")
        table[key] = {int(queue): parse_integer(offset) for queue, offset in row.items()}
    return table, parse_integer(object_at(value, "dataVersion").get("counter") or 0)
