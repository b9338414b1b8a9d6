"""The broker's tables as records of the log: topics, consumer groups and consumer offsets of a group of members.

A member that leads appends what has changed to the topic :data:`TABLES_TOPIC`, queue 0. A topic's record is in the log
before any message of the topic, and a request that changes a table is answered when its record is confirmed. The
members that follow apply each record when it is dispatched: after everything before it in the log, and before
everything behind it. A new leader appends whole tables, so that what the others have and it has not is gone.

Body of a record, JSON; each member may be absent::

    {"topics":  {"orders": {as in topics.json}, "gone": null},   null: deleted, with its messages up to here
     "groups":  {"payers": {as in subscriptionGroup.json}, "gone": null},
     "offsets": {"orders@payers": {"0": 123}, "gone@payers": null},
     "forbidden": {"payers": {"orders": 4}},                     all of it
     "all": {"topics": ["orders", ...], "groups": [...], "offsets": [...]}}

``all`` ends a copy of whole tables, which has several records: whatever is not named there does not exist.

Consumer offsets are appended at most every :data:`OFFSETS_S`. Where a follower has to apply records again after a
start, it begins :data:`_LAG_S` before the last one that it had, as the files of the tables are saved after the fact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import orjson

from raptormq.broker.tables import GroupConfig, GroupTable, TopicTable
from raptormq.errors import BodyError, StorageError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.topic_config import TopicConfig
from raptormq.protocol.record import decode_record
from raptormq.protocol.topic_names import SYSTEM_PREFIX
from raptormq.storage.queue import AppendedLists, AppendResult, PendingRecord
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)

TABLES_TOPIC = f"{SYSTEM_PREFIX}REPLICATED_TABLES"
OFFSETS_S = 1.0
WHOLE_TABLES_S = 1_800.0
"""How often a leader appends whole tables again: retention deletes the old ones, at the earliest after an hour."""
_LAG_S = 15.0
_PER_RECORD = 1_000
"""Entries of a table in one record: some 300 KB of topics."""


class TableRecords:
    """Appends and applies the records. A builder of the dispatch (``raptormq.storage.records.IndexBuilder``)."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        dispatch_soon: Callable[[], None],
        clock_s: Callable[[], float],
    ) -> None:
        """``clock_s`` is a monotonic one, in seconds; ``dispatch_soon`` has the store dispatched what was appended."""
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = store.consumer_offsets
        self._dispatch_soon = dispatch_soon
        self._clock_s = clock_s
        self._leads = False
        self._applying = False
        self._written_groups: dict[str, GroupConfig] = {}
        self._written_forbidden: dict[str, dict[str, int]] = {}
        self._unwritten_topics: dict[str, None] = {}
        self._end = 0
        self._applied = 0
        self._applied_at: deque[tuple[float, int]] = deque()
        self._kept_offset = 0
        self._offsets_at = self._whole_at = 0.0
        topics.listen(self._topic_changed)
        groups.listen(self._groups_changed)

    # --- the leader ---

    def lead(self) -> None:
        """Append the whole tables, and what changes from now on."""
        self._leads = True
        self._unwritten_topics.clear()
        self._offsets.take_changed_rows()
        self._write_whole()

    def follow(self) -> None:
        """Apply records from now on."""
        self._leads = False

    def tick(self) -> None:
        """Append offsets that have changed, at most once in :data:`OFFSETS_S`, and what could not be appended."""
        now = self._clock_s()
        if now < self._offsets_at + OFFSETS_S:
            return
        self._offsets_at = now
        rows = self._offsets.take_changed_rows()
        if not self._leads:
            return
        try:
            if now >= self._whole_at + WHOLE_TABLES_S:
                self._write_whole()
                return
            self._write_topics()
            self._write_groups()
            for part in _parts(rows.items()):
                self._append({"offsets": part})
        except StorageError as error:
            for key in rows:
                self._offsets.mark_changed(key)
            logger.warning("the tables cannot be appended to the log now: %s", error)

    async def confirmed(self) -> None:
        """Wait until the group has every change so far.

        Raises:
            StorageError: a change cannot be appended, or this member no longer leads.
        """
        if self._leads:
            self._write_topics()
            self._write_groups()
            await self._store.wait_confirmed(self._end)

    def _topic_changed(self, topic: str) -> None:
        if self._leads and not self._applying:
            self._unwritten_topics[topic] = None
            try:
                self._write_topics()
            except StorageError as error:  # the message that follows fails for the same reason
                logger.warning("the change of topic %s cannot be appended to the log now: %s", topic, error)

    def _groups_changed(self) -> None:
        if self._leads and not self._applying:
            try:
                self._write_groups()
            except StorageError as error:
                logger.warning("the change of a consumer group cannot be appended to the log now: %s", error)

    def _write_topics(self) -> None:
        while self._unwritten_topics:
            names = list(islice(self._unwritten_topics, _PER_RECORD))
            self._append({"topics": {name: self._topics.stored(name) for name in names}})
            for name in names:
                del self._unwritten_topics[name]

    def _write_groups(self) -> None:
        written, configs = self._written_groups, self._groups.configs
        changed = {name: config for name, config in configs.items() if written.get(name) is not config}
        gone = written.keys() - configs.keys()
        for part in _parts({name: config.to_dict() for name, config in changed.items()}.items()):
            self._append({"groups": part})
        if gone:
            self._append({"groups": dict.fromkeys(gone)})
        if self._groups.forbidden != self._written_forbidden:
            self._append({"forbidden": self._groups.forbidden})
        self._written_groups = dict(configs)
        self._written_forbidden = {group: dict(row) for group, row in self._groups.forbidden.items()}

    def _write_whole(self) -> None:
        self._whole_at = self._clock_s()
        topics, groups, offsets = self._topics, self._groups, dict(self._offsets.rows())
        for part in _parts((name, topics.stored(name)) for name in topics.configs):
            self._append({"topics": part})
        for part in _parts((name, config.to_dict()) for name, config in groups.configs.items()):
            self._append({"groups": part})
        for rows in _parts(offsets.items()):
            self._append({"offsets": rows})
        everything = {"topics": list(topics.configs), "groups": list(groups.configs), "offsets": list(offsets)}
        self._append({"forbidden": groups.forbidden, "all": everything})
        self._written_groups = dict(groups.configs)
        self._written_forbidden = {group: dict(row) for group, row in groups.forbidden.items()}

    def _append(self, change: dict[str, Any]) -> None:
        body = orjson.dumps(change, option=orjson.OPT_NON_STR_KEYS)
        self._end = self._store.append([PendingRecord(TABLES_TOPIC, 0, body)]).end_offset
        self._dispatch_soon()

    # --- the followers ---

    async def catch_up(self, applied: int) -> None:
        """Apply what is in the queue from ``applied`` on: the tables on the disk may not have it.

        Raises:
            StorageError: the log cannot be read.
        """
        low, high = await self._store.queue_bounds(TABLES_TOPIC, 0)
        at = max(applied, low)
        while at < high:
            items = await self._store.queue_items(TABLES_TOPIC, 0, at, 32)
            for place, size, _ in items:
                record = await self._store.message_at(place)
                if record is not None:
                    self._apply(bytes(decode_record(bytes(record)).body), place + size)
            at += max(1, len(items))
        self._applied = high
        self._note_applied()

    def build(self, batch: AppendResult) -> None:
        """Apply the records of a batch (IndexBuilder)."""
        for index, record in enumerate(batch.records):
            if record.topic == TABLES_TOPIC:
                if not self._leads:
                    self._apply(bytes(record.body), batch.physical_offsets[index] + batch.sizes[index])
                self._applied = batch.queue_offsets[index] + 1
                self._note_applied()

    def build_lists(self, batch: AppendedLists) -> None:
        """Nothing: no client sends to the topic (IndexBuilder)."""

    @property
    def kept_offset(self) -> int:
        """The place in the queue up to which the files of the tables have the records."""
        oldest = self._clock_s() - _LAG_S
        while self._applied_at and self._applied_at[0][0] <= oldest:
            self._kept_offset = self._applied_at.popleft()[1]
        return self._kept_offset

    def _note_applied(self) -> None:
        now = self._clock_s()
        if not self._applied_at or now - self._applied_at[-1][0] >= OFFSETS_S:
            self._applied_at.append((now, self._applied))

    def _apply(self, body: bytes, end: int) -> None:
        self._applying = True
        try:
            change = orjson.loads(body)
            for name, topic in change.get("topics", {}).items():
                self._apply_topic(name, topic, end)
            for name, group in change.get("groups", {}).items():
                if group is None:
                    self._groups.delete(name)
                else:
                    self._groups.put(GroupConfig.from_dict(group))
            if "forbidden" in change:
                self._groups.forbid(change["forbidden"])
            for key, row in change.get("offsets", {}).items():
                self._offsets.set_row(key, row if row is None else {int(queue): at for queue, at in row.items()})
            if (everything := change.get("all")) is not None:
                self._forget_others(everything)
        except (BodyError, LookupError, AttributeError, TypeError, ValueError) as error:
            logger.error("a record of the tables that ends at %d cannot be read: %s", end, error)
        finally:
            self._applying = False

    def _apply_topic(self, name: str, topic: dict[str, Any] | None, end: int) -> None:
        if topic is not None:
            self._topics.adopt(TopicConfig.from_dict(topic))
            return
        self._topics.delete(name)
        if self._store.tombstone_offset(name) < end:  # else it was deleted before a start
            self._store.delete_topic(name, end)

    def _forget_others(self, everything: dict[str, list[str]]) -> None:
        topics, groups = set(everything["topics"]), set(everything["groups"])
        for topic in [topic for topic in self._topics.configs if topic not in topics]:
            self._topics.delete(topic)
        for group in [group for group in self._groups.configs if group not in groups]:
            self._groups.delete(group)
        self._offsets.forget_other_rows(set(everything["offsets"]))


def _parts(entries: Any) -> Iterator[dict[str, Any]]:
    """Yield the entries of a table in dictionaries of :data:`_PER_RECORD`."""
    iterator = iter(entries)
    while part := dict(islice(iterator, _PER_RECORD)):
        yield part
