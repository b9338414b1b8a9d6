"""Replication of the broker's tables through the log: topics, groups, request modes, offsets, users and permissions.

The leader appends changes to the topic :data:`TABLES_TOPIC`, queue 0. The record of a topic precedes every message of
the topic in the log. A request that changes a table is answered when its record is confirmed. Followers apply a record
when it is dispatched, so in the order of the log. The leader changes its tables at once, but deletes the queues of a
topic at the same place of the log as its followers. A new leader appends a snapshot of all tables, which removes
entries that only other members have, and restores those that only other members have deleted.

Body of a record in JSON; each field is optional::

    {"topics":  {"orders": {as in topics.json}, "gone": null},   null: deleted, with its messages before this record
     "groups":  {"payers": {as in subscriptionGroup.json}, "gone": null},
     "offsets": {"orders@payers": {"0": 123}, "gone@payers": null},
     "modes":   {"orders": {as in messageRequestMode.json}, "gone": null},
     "security": {"users": [as in users.json], "acls": [as in acls.json]},   complete
     "ends":    {"orders": {"0": 123}},                          queues whose messages have all been deleted
     "forbidden": {"payers": {"orders": 4}},                     complete
     "all": {"topics": ["orders", ...], "groups": [...], "modes": [...], "offsets": [...]}, "records": 4}

A snapshot has several records. ``all`` is in the last one and lists every entry; entries that are not listed do not
exist. ``records`` is the number of the records before it.

The leader also appends a snapshot when retention has deleted the beginning of the log, because a new member receives
only the rest.

Consumer offsets are appended at most every :data:`OFFSETS_S`. After a start, a member applies the records again from
the beginning of the last complete snapshot. The files of the tables may be older, because they are saved with a delay,
or not at all on a full disk, and the ends of queues are in no file.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from logging import WARNING
from typing import Any

import orjson

from raptormq.broker.tables import GroupConfig, GroupTable, RequestModeTable, TopicTable
from raptormq.errors import BodyError, NotLeader, StorageError
from raptormq.log_throttle import LogThrottle
from raptormq.logs import get_logger
from raptormq.protocol.bodies.topic_config import TopicConfig
from raptormq.protocol.record import decode_record
from raptormq.protocol.topic_names import TABLES_TOPIC
from raptormq.security.tables import SecurityTables
from raptormq.storage.queue import AppendedLists, AppendResult, PendingRecord
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)

REPLICATED_TABLES = (
    "topics.json",
    "subscriptionGroup.json",
    "messageRequestMode.json",
    "delayOffset.json",
    "timercheck",
)
"""Files in ``config`` that a member with an empty log does not need, because their contents are in the log or derived
from it."""
OFFSETS_S = 1.0
SNAPSHOT_S = 1_800.0
"""Interval of snapshots in seconds. It is shorter than an hour, after which retention may delete the previous snapshot.
"""
_PER_RECORD = 1_000
"""Maximum number of table entries in one record: about 300 KB of topics."""


class TableRecords:
    """Appends and applies table records. Implements ``raptormq.storage.records.IndexBuilder`` for the dispatch."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        modes: RequestModeTable,
        dispatch_soon: Callable[[], None],
        clock_s: Callable[[], float],
        security: SecurityTables | None = None,
    ) -> None:
        """Create the records and subscribe to changes of the tables.

        Args:
            store: the store of the member.
            topics: the topics.
            groups: the consumer groups.
            modes: the request modes of the groups.
            dispatch_soon: schedules the dispatch of appended records.
            clock_s: monotonic clock in seconds.
            security: users and permissions, if they are replicated.
        """
        self._security = security
        self._security_is_written = True
        self._store = store
        self._failures: LogThrottle[str] = LogThrottle()
        self._topics = topics
        self._groups = groups
        self._modes = modes
        self._offsets = store.consumer_offsets
        self._dispatch_soon = dispatch_soon
        self._clock_s = clock_s
        self._leads = False
        self._applying = False
        self._written_groups: dict[str, GroupConfig] = {}
        self._written_forbidden: dict[str, dict[str, int]] = {}
        self._written_modes: dict[str, dict[str, Any]] = {}
        self._unwritten_topics: dict[str, None] = {}
        self._unwritten_deletions: dict[str, None] = {}
        """Deleted topics whose deletion record is not appended yet."""
        self._deletions: deque[tuple[int, str]] = deque()
        """Deletions that the leader has appended and not dispatched yet, in order: the end of the record, and the
        topic.
        """
        self._dispatched_deletion = asyncio.Event()
        self._end = 0
        self.snapshot_offset = 0
        """Queue offset of the first record of the last complete snapshot that is dispatched; 0 if it is not known.
        :meth:`catch_up` must apply all records from this one on.
        """
        self._appended_snapshot: tuple[int, int] | None = None
        """A snapshot that the leader has appended and not dispatched yet: its end, and :attr:`snapshot_offset` after
        its dispatch.
        """
        self._log_start = 0
        self._offsets_at = self._snapshot_at = 0.0
        topics.listen(self._topic_changed)
        groups.listen(self._groups_changed)
        modes.listen(self._modes_changed)
        if security is not None:
            security.users.on_change(self._security_changed)
            security.acls.on_change(self._security_changed)

    # --- the leader ---

    def lead(self) -> None:
        """Begin to lead: append a snapshot now, and every later change."""
        self._leads = self._topics.defers_deletions = True
        self._unwritten_topics.clear()
        # Their earlier records, if there were any, may be truncated.
        self._unwritten_deletions = dict.fromkeys(self._topics.deleting)
        self._snapshot_at = self._clock_s() - SNAPSHOT_S  # still due if appending fails
        self._write_snapshot()
        self._write_topics()

    def follow(self) -> None:
        """Begin to follow: apply the records of another leader from now on."""
        self._leads = self._topics.defers_deletions = False
        self._deletions.clear()  # the records of the group delete the topics, or its next snapshot has them
        self._appended_snapshot = None
        self._dispatched_deletion.set()

    def log_shrunk(self) -> None:
        """Append a snapshot, because retention may have deleted the previous one."""
        if self._leads:
            try:
                self._write_snapshot()
            except StorageError as error:
                self._log_failure("the tables", error)

    def tick(self) -> None:
        """Append changed offsets, at most once per :data:`OFFSETS_S`, and changes that could not be appended before."""
        if self._clock_s() >= self._offsets_at + OFFSETS_S:
            self.flush()

    def flush(self) -> None:
        """Append all changes now. Before a transfer of leadership this prevents offsets from going back."""
        self._offsets_at = now = self._clock_s()
        if not self._leads:
            self._offsets.take_changed_rows()
            return
        try:
            if now >= self._snapshot_at + SNAPSHOT_S or self._store.start_offset > self._log_start:
                self._write_snapshot()
            else:
                self._write_changes()
        except StorageError as error:
            self._log_failure("the tables", error)

    def check_leads(self, leadership: int) -> None:
        """Raise an error unless this member has led since ``leadership`` was read (:attr:`MessageStore.leadership`).

        Raises:
            NotLeader: changes that were made then may be lost.
        """
        if not self._leads:
            raise NotLeader("this member does not lead its group any more: whether the change is made is not known")
        self._store.check_leadership(leadership)

    async def confirmed(self, leadership: int) -> None:
        """Wait until all changes are confirmed that were made under ``leadership``.

        Raises:
            StorageError: a change cannot be appended, or this member has ceased to lead since ``leadership`` was read.
        """
        self.check_leads(leadership)
        self._write_changes()
        end = self._end
        await self._store.wait_confirmed(end)
        while self._deletions and self._deletions[0][0] <= end:
            self._dispatched_deletion.clear()
            await self._dispatched_deletion.wait()

    def delete_queues(self, topic: str) -> None:
        """Delete the queues of a topic that is not in the table. The leader deletes them like its followers when the
        record is dispatched: if the next leader does not have the record, the topic and its messages remain.
        """
        if all(topic != each for _, each in self._deletions):
            self._topic_changed(topic)

    def _topic_changed(self, topic: str) -> None:
        if self._leads and not self._applying:
            if topic in self._topics.configs:
                self._unwritten_topics[topic] = None
            else:
                self._unwritten_topics.pop(topic, None)
                self._unwritten_deletions[topic] = None
            try:
                self._write_topics()
            except StorageError as error:  # the message that follows fails for the same reason
                self._log_failure(f"the change of topic {topic}", error)

    def _groups_changed(self) -> None:
        if self._leads and not self._applying:
            try:
                self._write_groups()
            except StorageError as error:
                self._log_failure("the change of a consumer group", error)

    def _modes_changed(self) -> None:
        if self._leads and not self._applying:
            try:
                self._write_modes()
            except StorageError as error:
                self._log_failure("the change of a request mode", error)

    def _security_changed(self) -> None:
        if self._leads and not self._applying:
            self._security_is_written = False
            try:
                self._write_security()
            except StorageError as error:
                self._log_failure("the change of users and permissions", error)

    def _log_failure(self, what: str, error: StorageError) -> None:
        self._failures.log(logger, WARNING, what, "cannot append %s to the log; retrying: %s", what, error)

    def _write_changes(self) -> None:
        self._write_topics()
        self._write_groups()
        self._write_modes()
        self._write_security()
        self.write_offsets()

    def write_offsets(self) -> None:
        """Append the changed offsets now, so that every record that this leader appends later follows them in the log.

        Raises:
            StorageError: they cannot be appended, or this member does not lead.
        """
        rows = self._offsets.take_changed_rows()
        lasting = {key: None if self._is_being_deleted(key) else row for key, row in rows.items()}
        try:
            for part in _parts(lasting.items()):
                self._append({"offsets": part})
        except StorageError:
            for key in rows:
                self._offsets.mark_changed(key)
            raise

    def _write_security(self) -> None:
        if self._security is not None and not self._security_is_written:
            self._append({"security": self._security.to_dict()})
            self._security_is_written = True

    def _write_topics(self) -> None:
        while self._unwritten_deletions:
            names = list(islice(self._unwritten_deletions, _PER_RECORD))
            self._append({"topics": dict.fromkeys(names)})
            for name in names:
                del self._unwritten_deletions[name]
                self._deletions.append((self._end, name))
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

    def _write_modes(self) -> None:
        written, modes = self._written_modes, self._modes.by_topic()
        changed: dict[str, Any] = {topic: row for topic, row in modes.items() if written.get(topic) != row}
        for part in _parts((changed | dict.fromkeys(written.keys() - modes.keys())).items()):
            self._append({"modes": part})
        self._written_modes = modes

    def _write_snapshot(self) -> None:
        log_start = self._store.start_offset
        topics, groups, modes = self._topics, self._groups, self._modes.by_topic()
        offsets = {key: row for key, row in self._offsets.rows() if not self._is_being_deleted(key)}
        parts: Iterator[dict[str, Any]] = chain(  # one at a time: all of them may be large
            ({"topics": part} for part in _parts((name, topics.stored(name)) for name in topics.configs)),
            ({"groups": part} for part in _parts((name, group.to_dict()) for name, group in groups.configs.items())),
            ({"modes": part} for part in _parts(modes.items())),
            ({"offsets": part} for part in _parts(offsets.items())),
            () if self._security is None else ({"security": self._security.to_dict()},),
            ({"ends": part} for part in _parts(self._store.expired_queue_ends().items())),
        )
        count = 0
        for part in parts:
            self._append(part)
            count += 1
        everything = {
            "topics": list(topics.configs),
            "groups": list(groups.configs),
            "modes": list(modes),
            "offsets": list(offsets),
        }
        last = self._append({"forbidden": groups.forbidden, "all": everything, "records": count})
        self._appended_snapshot = self._end, last - count
        self._security_is_written = True
        self._offsets.take_changed_rows()
        self._log_start = log_start
        self._snapshot_at = self._clock_s()
        self._written_groups = dict(groups.configs)
        self._written_modes = modes
        self._written_forbidden = {group: dict(row) for group, row in groups.forbidden.items()}

    def _is_being_deleted(self, key: str) -> bool:
        """Return whether a row of offsets (``topic@group``) belongs to a topic that is being deleted. No member may
        keep the row after the deletion.
        """
        return key.partition("@")[0] in self._topics.deleting

    def _append(self, change: dict[str, Any]) -> int:
        """Append a record and return its queue offset."""
        body = orjson.dumps(change, option=orjson.OPT_NON_STR_KEYS)
        appended = self._store.append([PendingRecord(TABLES_TOPIC, 0, body)])
        self._end = appended.end_offset
        self._dispatch_soon()
        return appended.queue_offsets[0]

    # --- the followers ---

    async def catch_up(self, snapshot_offset: int) -> None:
        """Apply the records in the queue from ``snapshot_offset`` on, which the tables on the disk may lack.

        Raises:
            StorageError: the log cannot be read.
        """
        low, high = await self._store.queue_bounds(TABLES_TOPIC, 0)
        at = max(snapshot_offset, low)
        while at < high:
            items = await self._store.queue_items(TABLES_TOPIC, 0, at, 32)
            for place, size, _ in items:
                record = await self._store.message_at(place)
                if record is not None:
                    stored = decode_record(bytes(record))
                    self._apply(bytes(stored.body), place + size, stored.queue_offset)
            at += max(1, len(items))

    def build(self, batch: AppendResult) -> None:
        """Apply the table records of a dispatched batch (IndexBuilder)."""
        for index, record in enumerate(batch.records):
            if record.topic == TABLES_TOPIC:
                end = batch.physical_offsets[index] + batch.sizes[index]
                if self._leads:
                    self._delete_dispatched(end)
                    if self._appended_snapshot is not None and self._appended_snapshot[0] <= end:
                        self.snapshot_offset = self._appended_snapshot[1]
                        self._appended_snapshot = None
                else:
                    self._apply(bytes(record.body), end, batch.queue_offsets[index])

    def _delete_dispatched(self, end: int) -> None:
        self._applying = True
        try:
            while self._deletions and self._deletions[0][0] <= end:
                at, name = self._deletions[0]
                self._store.delete_topic(name, at)
                self._deletions.popleft()
                self._topics.finish_deletion(name)
        finally:
            self._applying = False
            self._dispatched_deletion.set()

    def build_lists(self, batch: AppendedLists) -> None:
        """Do nothing: clients cannot send to the topic (IndexBuilder)."""

    def _apply(self, body: bytes, end: int, offset: int) -> None:
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
            for topic, row in change.get("modes", {}).items():
                self._modes.put_topic(topic, row)
            if "forbidden" in change:
                self._groups.forbid(change["forbidden"])
            for key, row in change.get("offsets", {}).items():
                self._offsets.set_row(key, row if row is None else {int(queue): at for queue, at in row.items()})
            if self._security is not None and "security" in change:
                self._security.adopt(change["security"])
            self._apply_ends(change.get("ends", {}), end)
            if (everything := change.get("all")) is not None:
                self._remove_unlisted(everything)
                self.snapshot_offset = offset - change.get("records", offset)
        except (BodyError, LookupError, AttributeError, TypeError, ValueError) as error:
            logger.error("the table record that ends at log offset %d cannot be decoded: %s", end, error)
        finally:
            self._applying = False

    def _apply_ends(self, by_topic: dict[str, dict[str, int]], end: int) -> None:
        for topic, ends in by_topic.items():
            if topic in self._topics.configs and self._store.tombstone_offset(topic) < end:  # else deleted since
                for queue_id, at in ends.items():
                    self._store.begin_queue_at(topic, int(queue_id), at)

    def _apply_topic(self, name: str, topic: dict[str, Any] | None, end: int) -> None:
        if topic is not None:
            config = TopicConfig.from_dict(topic)
            if not config.is_batch:
                self._store.forget_batch_topic(name)  # this member led and had created it with another type
            self._topics.adopt(config)
            return
        self._topics.delete(name)
        if self._store.tombstone_offset(name) < end:
            self._store.delete_topic(name, end)
        else:  # it was deleted before a restart, and an earlier record has just restored its offsets
            self._offsets.remove_topic(name)

    def _remove_unlisted(self, everything: dict[str, list[str]]) -> None:
        topics, groups = set(everything["topics"]), set(everything["groups"])
        for topic in [topic for topic in self._topics.deleting if topic not in topics]:
            self._topics.finish_deletion(topic)
            self._store.forget_batch_topic(topic)
        for topic in [topic for topic in self._topics.configs if topic not in topics]:
            self._topics.delete(topic)
            self._store.forget_batch_topic(topic)  # this member led and had created it
        for group in [group for group in self._groups.configs if group not in groups]:
            self._groups.delete(group)
        if "modes" in everything:  # releases up to 0.2.0 do not replicate them
            for topic in self._modes.by_topic().keys() - set(everything["modes"]):
                self._modes.put_topic(topic, None)
        self._offsets.forget_other_rows(set(everything["offsets"]))


def _parts(entries: Any) -> Iterator[dict[str, Any]]:
    """Yield the entries of a table in dictionaries of at most :data:`_PER_RECORD` entries."""
    iterator = iter(entries)
    while part := dict(islice(iterator, _PER_RECORD)):
        yield part
