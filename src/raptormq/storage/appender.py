"""Writes groups to the end of the log, one write for each: all of a group, or nothing (``CommitLog.asyncPutMessage``).

Belongs to one thread. Neighbours: :mod:`~raptormq.storage.record_packer` and :mod:`~raptormq.storage.list_packer` make
the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from raptormq.storage.commit_log import CommitLog, Run
from raptormq.storage.consume_queue import ConsumeQueue
from raptormq.storage.list_packer import ListPacker
from raptormq.storage.log_batch import AppendedLists, AppendResult, PendingList, PendingRecord
from raptormq.storage.record_packer import RecordPacker
from raptormq.storage.write_gate import WriteGate

Pending_contra = TypeVar("Pending_contra", contravariant=True)
Group = TypeVar("Group", AppendResult, AppendedLists)


class Packer(Protocol[Pending_contra, Group]):
    """Makes bytes of what is to be appended, and hands out offsets."""

    def pack(self, pending: Sequence[Pending_contra], start: int, timestamp: int) -> tuple[Group, list[Run]]:
        """Pack for the place ``start`` with the store time ``timestamp`` (ms); or raise, having used up no offsets."""

    def take_back(self, group: Group) -> None:
        """Return the queue offsets of a group that did not make it into the log."""


class Appender:
    """The writing end of ``log``."""

    def __init__(
        self,
        log: CommitLog,
        gate: WriteGate,
        find_queue: Callable[[str, int], ConsumeQueue],
        clock: Callable[[], int],
        store_host: bytes,
    ) -> None:
        self._log = log
        self._gate = gate
        self._find_queue = find_queue
        self._clock = clock
        self.last_timestamp = 0
        """Store time of the last record, in ms; it never goes back."""
        self.record_count = 0
        self.byte_count = 0
        self.set_store_host(store_host)

    def set_store_host(self, host: bytes) -> None:
        """Set the STOREHOST of records to come: ip (4 or 16 bytes) and port (4)."""
        self._records = RecordPacker(self._find_queue, self._log.segment_size, host)
        self._lists = ListPacker(self._find_queue, self._log.segment_size, host)

    def append(self, records: Sequence[PendingRecord]) -> AppendResult:
        """Write single messages; raises as :meth:`~raptormq.storage.store.MessageStore.append`."""
        return self._append(self._records, records)

    def append_lists(self, lists: Sequence[PendingList]) -> AppendedLists:
        """Write lists of messages; raises as :meth:`~raptormq.storage.store.MessageStore.append`."""
        return self._append(self._lists, lists)

    def _append(self, packer: Packer[Pending_contra, Group], pending: Sequence[Pending_contra]) -> Group:
        self._gate.check()
        timestamp = max(self._clock(), self.last_timestamp)
        group, runs = packer.pack(pending, self._log.end_offset, timestamp)
        try:
            self._log.write(runs, group.end_offset)
        except BaseException:
            packer.take_back(group)
            raise
        self.last_timestamp = timestamp
        self.record_count += group.message_count
        self.byte_count += group.end_offset - group.start_offset
        return group
