"""The broker's own tables and the files below ``config`` that they live in.

:func:`load_tables` reads the tables of an earlier run. :func:`restore_lost_topics` makes topics again whose table was
lost: ``config/topics.json`` is gone or damaged, but there are queues. The backup of the file, where there is one, may
be a change behind.

Otherwise the messages of these topics would be hidden until somebody made the topics again by hand, and what is delayed
for them would be dropped when it is due. How many queues a topic had for reading and writing is not known any more: it
gets as many as have ever had a message. The type of the queues follows in
:meth:`raptormq.broker.conversions.Conversions.start`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from raptormq.broker.config import BrokerConfig
from raptormq.broker.delay.progress import DelayProgress, delays_file
from raptormq.broker.delay.timer_progress import TimerProgressFile
from raptormq.broker.tables import GroupTable, TopicTable, groups_file, system_topics
from raptormq.logs import get_logger
from raptormq.protocol.bodies.topic_config import READ_WRITE, TopicConfig, TopicConfigTable
from raptormq.security.tables import SecurityTables, load_security
from raptormq.storage.fs import FileSystem, RealFileSystem, TableSaver
from raptormq.storage.queue import topics_file
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)


def restore_lost_topics(tables: Tables, store: MessageStore) -> Tables:
    """Return ``tables`` with the topics that ``store`` has queues of, unless their last table was read."""
    if tables.topics_loaded:
        return tables
    topics = tables.topics
    lost = sorted(topic for topic in store.topics() if topic not in topics.configs)
    for topic in lost:
        count = max(store.queue_ids(topic)) + 1
        topics.restore(TopicConfig(topic, count, count, READ_WRITE))
    if lost:
        logger.warning("topics.json is gone or damaged: %d topics were made again from their queues", len(lost))
    return tables


@dataclass(frozen=True, slots=True)
class Tables:
    """The broker's own tables with the files they live in."""

    topics: TopicTable
    groups: GroupTable
    topics_saver: TableSaver
    groups_saver: TableSaver
    delays: DelayProgress
    timers_file: TimerProgressFile
    security: SecurityTables
    topics_loaded: bool
    """False when the last table of topics was not there: a first start, or it was lost or damaged."""

    @property
    def savers(self) -> tuple[TableSaver, ...]:
        """Of the tables that administrators and clients change."""
        return self.topics_saver, self.groups_saver, self.security.users_saver, self.security.acls_saver

    def retry_save(self) -> None:
        """Write those whose last write failed: the disk may have room now."""
        for saver in self.savers:
            saver.retry_save()


def load_tables(
    config: BrokerConfig,
    filesystem: FileSystem | None,
    clock: Callable[[], int],
    save_deletions: Callable[[], Awaitable[None]],
) -> Tables:
    """Read the tables of an earlier run and add what is missing. Topics are written after ``save_deletions``: no crash
    may give one the messages of another that had its name.

    Raises:
        StoreDamaged: a file and its backup cannot be read.
    """
    folder = Path(config.storage.root_dir) / "config"
    topics_json = topics_file(str(folder / "topics.json"), filesystem)
    groups_json = groups_file(str(folder / "subscriptionGroup.json"), filesystem)
    topics = TopicTable(topics_json.load(TopicConfigTable.from_dict) or TopicConfigTable(), clock)
    groups = groups_json.load(lambda saved: GroupTable(saved, clock)) or GroupTable(None, clock)
    tables = Tables(
        topics,
        groups,
        TableSaver(topics_json, topics.to_dict, save_deletions),
        TableSaver(groups_json, groups.to_dict),
        DelayProgress(delays_file(str(folder / "delayOffset.json"), filesystem), clock),
        TimerProgressFile(filesystem or RealFileSystem(), str(folder / "timercheck")),
        load_security(config.security, folder, filesystem),
        topics_json.is_newest,
    )
    topics.listen(tables.topics_saver.save_soon)
    topics.publish_ids_when(lambda topic: topic not in tables.topics_saver.unsaved)
    if count := topics.assign_missing_ids():
        logger.info("%d topics of a table without topic ids have one now", count)
    groups.listen(tables.groups_saver.save_soon)
    if not config.policies.auto_create_topic:
        topics.delete("TBW102")
    topics.add_missing(system_topics(config.identity, config.policies))
    return tables
