"""Copies the tables of a master to its slave: topics, groups, offsets and delivery progress.

The tables are copied every :data:`SYNC_S`. The topics are also copied when the log has a record of an unknown topic,
so that the slave knows the type of a queue before it builds the queue. The master adds a topic to its table before it
accepts a message of the topic. If a topic is still unknown after the copy, it was deleted, and its records are not
dispatched.

Commits of offsets that the slave has accepted are handed over to the master first, because the copy replaces them
(:mod:`~raptormq.broker.ha.accepted_commits`).

The delivery progress of delayed messages and timers counts delivered copies in the log. The slave saves it only when
its own log has reached the end that the master's log had at that time. Otherwise a promoted slave would count messages
as delivered whose copies it does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from raptormq.broker.delay.progress import DelayProgress
from raptormq.broker.delay.timer_progress import TimerProgress, TimerProgressFile
from raptormq.broker.ha.accepted_commits import AcceptedCommit, AcceptedCommits
from raptormq.broker.ha.master_client import MasterClient
from raptormq.broker.in_thread import run_to_completion
from raptormq.broker.service import cancel_and_wait
from raptormq.broker.tables import GroupConfig, GroupTable, RequestModeTable, TopicTable
from raptormq.errors import RaptorMQError, ServerError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.members import object_at
from raptormq.protocol.topic_names import is_derived_topic, is_system_topic
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)

SYNC_S = 3.0


@dataclass(frozen=True, slots=True)
class SyncedTables:
    """The tables that are copied."""

    topics: TopicTable
    groups: GroupTable
    delays: DelayProgress
    timers_file: TimerProgressFile
    modes: RequestModeTable
    commits: AcceptedCommits


class _Progress(NamedTuple):
    """Delivery progress that is valid once the local log has reached ``log_end``."""

    log_end: int
    delays: tuple[dict[int, int], int | None]
    timers: tuple[int, int] | None


class TableSync:
    """Background task that copies the tables of the master."""

    def __init__(self, tables: SyncedTables, store: MessageStore, client: MasterClient) -> None:
        self._tables = tables
        self._store = store
        self._client = client
        self._progress: _Progress | None = None
        self._written: _Progress | None = None
        self._task: asyncio.Task[None] | None = None
        self._logged_error = ""
        self._copied_to: int | None = None
        """End of the log before the last copy of the topics; None without one. All records below belong to topics of
        that copy or to earlier ones.
        """

    def start(self) -> None:
        """Copy the tables now and periodically, while the log of this broker is a prefix of the master's."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def save_commits(self) -> None:
        """Save the commits that are to be handed over. Called while the master does not respond."""
        await self._tables.commits.save()

    async def promoted(self) -> None:
        """Keep the own offsets, because this broker is the master from now on."""
        self._tables.commits.discard()
        await self._tables.commits.save()

    async def stop(self) -> None:
        """Stop after the write in progress, if there is one."""
        if self._task is not None:
            await cancel_and_wait(self._task)
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self._copy_tables()
                self._logged_error = ""
            except (RaptorMQError, OSError) as error:
                if str(error) != self._logged_error:
                    self._logged_error = str(error)
                    logger.warning("cannot copy the tables of the master; retrying: %s", error)
            await asyncio.sleep(SYNC_S)

    async def _copy_tables(self) -> None:
        await self.copy_topics()
        await self._copy_groups()
        await self._copy_offsets()
        modes = await self._client.request_modes()
        if modes is not None:
            self._tables.modes.replace(modes)
        await self.copy_progress()

    # --- topics and groups ---

    async def copy_topics(self) -> None:
        """Copy the topics now.

        Raises:
            RaptorMQError: the master did not respond, or its response is invalid.
        """
        begin = self._store.end_offset
        found = await self._client.topics()
        topics, copied_to = self._tables.topics, self._copied_to
        for name, topic in found.topics.items():
            own = topics.get(name)
            if own is not None and own.topic_id != topic.topic_id:  # recreated: the log has the offset of the deletion
                topics.delete(name)
                if topic.is_batch and not own.is_batch:
                    # Its messages that arrived before this copy are in SimpleCQ queues, which take no inner batches.
                    # BatchCQ queues take all messages, so those of the reverse case stay.
                    self._store.rebuild_topic(name, begin if copied_to is None else copied_to)
            topics.adopt(topic)
        self._copied_to = begin
        for name in [name for name in topics.configs if name not in found.topics and not _is_own(name)]:
            topics.delete(name)
            self._store.delete_topic(name)

    async def prepare(self, names: Collection[str], end_offset: int) -> None:
        """Ensure that the topics ``names`` are in the table. Topics that the master does not have are marked as deleted
        up to ``end_offset``.

        Raises:
            RaptorMQError: the master did not respond, or its response is invalid.
        """
        configs = self._tables.topics.configs
        if all(name in configs for name in names):
            return
        await self.copy_topics()
        for name in names:
            if name not in configs and not _is_own(name) and not is_derived_topic(name):
                self._store.delete_topic(name, end_offset)

    async def _copy_groups(self) -> None:
        value, groups = await self._client.groups(), self._tables.groups
        found = {name: GroupConfig.from_dict(each) for name, each in object_at(value, "subscriptionGroupTable").items()}
        for config in found.values():
            groups.put(config)
        for name in [name for name in groups.configs if name not in found]:
            groups.delete(name)
        groups.forbid(object_at(value, "forbiddenTable"))

    async def _copy_offsets(self) -> None:
        commits, offsets = self._tables.commits, self._store.consumer_offsets
        found = await self._client.offsets()
        while missing := commits.to_hand_over(found):  # consumers may commit meanwhile
            for commit in missing:
                await self._hand_over(commit)
            found = await self._client.offsets()
        for key, row in found.items():
            offsets.set_row(key, row)
        offsets.forget_other_rows(found)
        commits.copied(found)
        await commits.save()

    async def _hand_over(self, commit: AcceptedCommit) -> None:
        try:
            await self._client.commit(*commit)
        except ServerError as error:
            self._tables.commits.refused(commit, str(error))
        else:
            self._tables.commits.handed_over(commit)
            logger.info(
                "the master has offset %d of group %s in queue %d of topic %s, which was committed to this slave",
                commit.offset, commit.group, commit.queue_id, commit.topic,
            )  # fmt: skip

    # --- delivery progress ---

    async def copy_progress(self) -> None:
        """Request the delivery progress unless one is pending, and save it if the log has reached its ``log_end``."""
        if self._progress is None:
            delays, timers = await self._client.delays(), await self._client.timers()
            _, log_end = await self._client.log_bounds()  # requested last, so that it includes every counted copy
            self._progress = _Progress(log_end, delays, timers)
        if self._store.end_offset >= self._progress.log_end:
            progress, self._progress = self._progress, None
            if self._written is None or progress[1:] != self._written[1:]:
                await self._store.wait_flushed(progress.log_end)
                await run_to_completion(partial(self._write, progress))
                self._written = progress

    def _write(self, progress: _Progress) -> None:
        if progress.timers is not None:
            read_ms, known = progress.timers
            self._tables.timers_file.save(TimerProgress(read_ms, known, 0))
        self._tables.delays.replace(*progress.delays)


def _is_own(topic: str) -> bool:
    """Return whether ``topic`` is a system topic, which each broker creates itself."""
    return is_system_topic(topic)
