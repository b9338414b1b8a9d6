"""The tables of a broker and their files in the directory ``config``.

:func:`load_tables` reads the tables. :func:`restore_lost_topics` restores topics from their queues if
``config/topics.json`` is missing or damaged. The backup of the file does not contain the last change.

Without a restored topic, consumers could not read its messages, and due delayed messages for it would be dropped. The
original numbers of read and write queues are unknown. A restored topic has the number of queues that ever had a
message. :meth:`raptormq.broker.conversions.Conversions.start` restores the type of the queues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from raptormq.broker.config import BrokerConfig
from raptormq.broker.delay.progress import DelayProgress, delays_file
from raptormq.broker.delay.timer_progress import TimerProgressFile
from raptormq.broker.tables import (
    GroupTable,
    RequestModeTable,
    TopicTable,
    groups_file,
    request_modes_file,
    system_topics,
)
from raptormq.logs import get_logger
from raptormq.protocol.bodies.topic_config import READ_WRITE, Perm, TopicConfig, TopicConfigTable
from raptormq.protocol.topic_names import AUTO_CREATE_TOPIC, STAGED_COMMITS_TOPIC, STAGED_TOPIC
from raptormq.security.tables import SecurityTables, load_security
from raptormq.storage.fs import FileSystem, RealFileSystem, TableSaver
from raptormq.storage.queue import topics_file
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)


def restore_lost_topics(tables: Tables, store: MessageStore) -> Tables:
    """Add the topics of the queues in ``store`` to ``tables``, unless the newest topic table was read."""
    if tables.topics_loaded:
        return tables
    topics = tables.topics
    lost = sorted(topic for topic in store.topics() if topic not in topics.configs)
    for topic in lost:
        count = max(store.queue_ids(topic)) + 1
        topics.restore(TopicConfig(topic, count, count, READ_WRITE))
    if lost:
        logger.warning("topics.json is missing or damaged; restored %d topics from their queues", len(lost))
    return tables


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a broker and the writers of their files."""

    topics: TopicTable
    groups: GroupTable
    modes: RequestModeTable
    topics_saver: TableSaver
    groups_saver: TableSaver
    modes_saver: TableSaver
    delays: DelayProgress
    timers_file: TimerProgressFile
    security: SecurityTables
    topics_loaded: bool
    """False at a first start, and if the newest topic table is missing or damaged."""

    @property
    def savers(self) -> tuple[TableSaver, ...]:
        """The savers of tables that administrators and clients change."""
        security = self.security
        return self.topics_saver, self.groups_saver, self.modes_saver, security.users_saver, security.acls_saver

    def retry_save(self) -> None:
        """Write the tables whose last write failed."""
        for saver in self.savers:
            saver.retry_save()


def load_tables(
    config: BrokerConfig,
    filesystem: FileSystem | None,
    clock: Callable[[], int],
    save_deletions: Callable[[], Awaitable[None]],
) -> Tables:
    """Read the tables. Add missing topic ids, and the topics and users of the settings.

    ``save_deletions`` runs before each write of the topic table. Otherwise a crash could give a topic the messages of a
    deleted topic of the same name.

    Raises:
        StoreDamaged: a file and its backup cannot be read.
    """
    folder = Path(config.storage.root_dir) / "config"
    topics_json = topics_file(str(folder / "topics.json"), filesystem)
    groups_json = groups_file(str(folder / "subscriptionGroup.json"), filesystem)
    modes_json = request_modes_file(str(folder / "messageRequestMode.json"), filesystem)
    modes = modes_json.load(RequestModeTable) or RequestModeTable()
    topics = TopicTable(topics_json.load(TopicConfigTable.from_dict) or TopicConfigTable(), clock)
    groups = groups_json.load(lambda saved: GroupTable(saved, clock)) or GroupTable(None, clock)
    tables = Tables(
        topics,
        groups,
        modes,
        TableSaver(topics_json, topics.to_dict, save_deletions),
        TableSaver(groups_json, groups.to_dict),
        TableSaver(modes_json, modes.to_dict),
        DelayProgress(delays_file(str(folder / "delayOffset.json"), filesystem), clock),
        TimerProgressFile(filesystem or RealFileSystem(), str(folder / "timercheck")),
        load_security(config.security, folder, filesystem),
        topics_json.is_newest,
    )
    topics.listen(tables.topics_saver.save_soon)
    topics.publish_ids_when(lambda topic: topic not in tables.topics_saver.unsaved)
    if count := topics.assign_missing_ids():
        logger.info("assigned topic ids to %d topics of a table without ids", count)
    groups.listen(tables.groups_saver.save_soon)
    modes.listen(tables.modes_saver.save_soon)
    apply_settings(config, tables)
    return tables


def apply_settings(config: BrokerConfig, tables: Tables) -> None:
    """Create the missing topics and users of the settings, and delete TBW102 if ``autoCreateTopicEnable`` is false.

    A member of a group repeats this after it has adopted tables of a leader with other settings.
    """
    topics = tables.topics
    if not config.policies.auto_create_topic:
        topics.delete(AUTO_CREATE_TOPIC)
    topics.add_missing(system_topics(config.identity, config.policies))
    if config.staging.enabled:
        hidden = int(Perm.INHERIT)
        topics.add_missing(TopicConfig(topic, 1, 1, hidden) for topic in (STAGED_TOPIC, STAGED_COMMITS_TOPIC))
    tables.security.create_missing_users()
