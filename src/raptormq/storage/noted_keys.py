"""Messages whose keys are to be entered into the index, gathered until there are enough of them, and their rows.

Neighbour: :mod:`~raptormq.storage.key_index` writes the rows; entered one by one they would cost ten times as much.
Most messages are noted with their properties. Those of a batch that is stored whole, when it was found on its way in
that unique keys of one length are all keys they have, are noted as one run of these: 0.1 us a message instead of 0.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raptormq.storage.key_hash import hash_units, topic_hashes
from raptormq.storage.message_keys import hashes_of_keys

_Longs = NDArray[np.int64]


class KeyRows(NamedTuple):
    """A row for each key, in the order of the log."""

    hashes: NDArray[np.int32]
    offsets: _Longs
    timestamps: _Longs


_Run = tuple[str, int, int, int, bytes]
"""Topic, offset, store time (ms), number of keys, and the keys back to back."""


class NotedKeys:
    """Columns of messages, and runs of unique keys."""

    __slots__ = ("_offsets", "_runs", "_texts", "_timestamps", "_topics", "count")

    def __init__(self) -> None:
        self._topics: list[str] = []
        self._texts: list[bytes] = []
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._runs: list[_Run] = []
        self.count = 0
        """Messages noted, batches included."""

    def note(self, topic: str, text: bytes, offset: int, timestamp: int) -> None:
        """Note a message by its properties."""
        self._topics.append(topic)
        self._texts.append(text)
        self._offsets.append(offset)
        self._timestamps.append(timestamp)
        self.count += 1

    def note_all(self, topic: str, texts: Sequence[bytes], offsets: Sequence[int], timestamp: int) -> None:
        """Note messages of one topic and time by their properties."""
        count = len(texts)
        self._topics.extend([topic] * count)
        self._texts.extend(texts)
        self._offsets.extend(offsets)
        self._timestamps.extend([timestamp] * count)
        self.count += count

    def note_run(self, topic: str, keys: bytes, count: int, offset: int, timestamp: int) -> None:
        """Note ``count`` unique keys of one length, ASCII and back to back, of messages at one place of the log."""
        self._runs.append((topic, offset, timestamp, count, keys))
        self.count += count

    def rows(self) -> KeyRows:
        """Return the rows of all that is noted."""
        parts: list[KeyRows] = []
        if self._texts:
            parts.append(self._rows_of_texts())
        by_length: dict[int, list[_Run]] = {}
        for run in self._runs:
            by_length.setdefault(len(run[4]) // run[3], []).append(run)
        parts += [_rows_of_runs(runs, length) for length, runs in by_length.items()]
        if len(parts) == 1:
            return parts[0]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(columns[1], kind="stable")
        return KeyRows(columns[0][order], columns[1][order], columns[2][order])

    def _rows_of_texts(self) -> KeyRows:
        hashes, owners = hashes_of_keys(self._topics, self._texts)
        offsets, timestamps = np.array(self._offsets, dtype=np.int64), np.array(self._timestamps, dtype=np.int64)
        return KeyRows(hashes, offsets[owners], timestamps[owners])


def _rows_of_runs(runs: Sequence[_Run], length: int) -> KeyRows:
    topics, offsets, timestamps, counts, keys = zip(*runs, strict=True)
    units = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, length)
    hashes = hash_units(topic_hashes(topics).repeat(counts), units)
    return KeyRows(
        hashes,
        np.array(offsets, dtype=np.int64).repeat(counts),
        np.array(timestamps, dtype=np.int64).repeat(counts),
    )
