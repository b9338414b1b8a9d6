"""The topic table: topics of the broker with their settings (``TopicConfigManager``, file ``topics.json``).

:class:`TopicTable` has a version. The writer of its file (:mod:`raptormq.broker.table_files`) and the registration with
name servers (:mod:`raptormq.broker.registration`) listen to its changes.

A topic has an id (:mod:`raptormq.protocol.topic_ids`) from its creation to its deletion. If a table has no ids, because
an older version wrote it, all its topics get ids at the first start. In a table with ids, a topic without an id was
created by another broker or restored from its queues (:mod:`raptormq.broker.table_files`). It gets no id, because a new
id means that the topic was created again and its old messages were deleted.

:func:`apply_attributes` applies the changes ``+key=value,-key`` of a request.
:mod:`raptormq.broker.tables.attributes` describes the attributes.

:func:`system_topics` returns the topics that every broker creates at its first start. Tools use them: the route of the
topic with the name of the cluster contains all brokers of the cluster, the route of the topic with the name of the
broker contains this broker. ``TBW102`` is the template for routes and settings of unknown topics.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from raptormq.broker.config import Identity, Policies
from raptormq.broker.tables.attributes import TOPIC_ATTRIBUTES, EffectNotices, change_attributes
from raptormq.errors import StorageError
from raptormq.protocol import topic_names
from raptormq.protocol.bodies.topic_config import (
    READ_WRITE,
    DataVersion,
    Perm,
    TopicConfig,
    TopicConfigTable,
    parse_attributes,
)


def apply_attributes(text: str | None, current: Mapping[str, str] | None) -> dict[str, str]:
    """Return the attributes of a topic after a request.

    ``text`` contains the changes; None and an empty text mean no change. ``current`` is None for a new topic.

    Raises:
        BodyError: the text is malformed.
        MessageError: a key or value is unknown or not supported yet, or the attribute is fixed.
    """
    changes, removed = parse_attributes(text)
    return change_attributes("topic", TOPIC_ATTRIBUTES, changes, removed, current)


_TEMPLATE = READ_WRITE | int(Perm.INHERIT)
_DELAY_LEVELS = 18


def system_topics(identity: Identity, policies: Policies) -> list[TopicConfig]:
    """Return the system topics of a broker."""
    cluster, broker = identity.cluster_name, identity.broker_name
    topics = [
        _topic(topic_names.SELF_TEST_TOPIC, 1),
        _topic(topic_names.BENCHMARK_TOPIC, 1024),
        _topic(cluster, 16, _TEMPLATE if policies.cluster_topic else int(Perm.INHERIT)),
        _topic(broker, 1, _TEMPLATE if policies.broker_topic else int(Perm.INHERIT)),
        _topic(topic_names.OFFSET_MOVED_EVENT, 1),
        _topic(topic_names.SCHEDULE_TOPIC, _DELAY_LEVELS),
        _topic(topic_names.reply_topic(cluster), 1),
        _topic(f"{topic_names.REVIVE_PREFIX}{cluster}", 8),
        _topic(f"{topic_names.SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{broker}", 1, int(Perm.INHERIT)),
        _topic(topic_names.HALF_TOPIC, 1),
        _topic(topic_names.OP_HALF_TOPIC, 1),
        _topic(topic_names.TIMER_TOPIC, 1),
    ]
    if policies.auto_create_topic:
        topics.append(_topic(topic_names.AUTO_CREATE_TOPIC, policies.default_queue_count, _TEMPLATE))
    if policies.trace_topic:
        topics.append(_topic(topic_names.TRACE_TOPIC, 1))
    return topics


def _topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queues, queues, perm)


Listener = Callable[[str], None]


def _random_id() -> str:
    return uuid.uuid4().hex


MAX_QUEUES = 65_536
"""Maximum number of queues of a topic. Each queue has a directory, so a typing error must not create more."""


class TopicTable:
    """All topics of one broker.

    The send path reads ``configs`` directly. Only the methods of this class change ``configs``.
    """

    def __init__(
        self, table: TopicConfigTable, clock: Callable[[], int], new_id: Callable[[], str] = _random_id
    ) -> None:
        self.configs: dict[str, TopicConfig] = dict(table.topics)
        self.version: DataVersion = table.data_version
        self._plain = {name: config.to_stored() for name, config in table.topics.items()}
        self.defers_deletions = False
        """Whether a deleted topic stays in ``topics.json``, and cannot be created again, until `finish_deletion`."""
        self._deleting: dict[str, dict[str, Any]] = {}
        """Objects in ``topics.json`` of the topics whose deletion is not finished, by name."""
        self._clock = clock
        self._new_id = new_id
        self._is_saved: Callable[[str], bool] = lambda _: True
        self._listeners: list[Listener] = []
        self._notices = EffectNotices("topic", TOPIC_ATTRIBUTES)
        for name, config in self.configs.items():
            self._notices.log_new(name, config.attributes)

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with the name of each topic that is created, changed or deleted."""
        self._listeners.append(listener)

    def listen_to_deletions(self, listener: Listener) -> None:
        """Call ``listener`` with the name of each topic that is deleted."""
        self.listen(lambda topic: None if topic in self.configs else listener(topic))

    def get(self, topic: str) -> TopicConfig | None:
        """Return the configuration of a topic."""
        return self.configs.get(topic)

    def put(self, config: TopicConfig) -> bool:
        """Create or change a topic. Return False if nothing has changed. The id in ``config`` is ignored.

        Raises:
            StorageError: the topic is being deleted.
        """
        if config.topic_name in self._deleting:
            raise StorageError(f"topic {config.topic_name} is being deleted: retry")
        current = self.configs.get(config.topic_name)
        if current == config:
            return False
        self._set(config, self._new_id() if current is None else current.topic_id)
        return True

    def restore(self, config: TopicConfig) -> None:
        """Add a topic that existed earlier and whose id is unknown."""
        self._set(config, "")

    def adopt(self, config: TopicConfig) -> None:
        """Create or change a topic with the configuration and id of another broker."""
        if self.configs.get(config.topic_name) != config:
            self._set(config, config.topic_id)

    def stored(self, topic: str) -> dict[str, Any] | None:
        """Return the object of a topic in ``topics.json``, or None. Callers must not modify it."""
        return self._plain.get(topic)

    def assign_missing_ids(self) -> int:
        """Assign an id to each topic, if the table has no ids. Return the number of changed topics."""
        if any(config.topic_id for config in self.configs.values()):
            return 0
        for config in list(self.configs.values()):
            self._set(config, self._new_id())
        return len(self.configs)

    def publish_ids_when(self, is_saved: Callable[[str], bool]) -> None:
        """Publish only the ids of topics for which ``is_saved`` is true, so that a published id survives a crash."""
        self._is_saved = is_saved

    def published_id(self, topic: str) -> str | None:
        """Return the published id of a topic, or None."""
        config = self.configs.get(topic)
        return config.topic_id or None if config is not None and self._is_saved(topic) else None

    def _set(self, config: TopicConfig, topic_id: str) -> None:
        name = config.topic_name
        self._deleting.pop(name, None)
        self.configs[name] = config = replace(config, topic_id=topic_id)
        self._plain[name] = config.to_stored()
        self._notices.log_new(name, config.attributes)
        self._changed(name)

    def delete(self, topic: str) -> bool:
        """Remove a topic. Return False if it does not exist."""
        if self.configs.pop(topic, None) is None:
            if not self.defers_deletions:
                self.finish_deletion(topic)
            return False
        plain = self._plain.pop(topic)
        if self.defers_deletions:
            self._deleting[topic] = plain
        self._changed(topic)
        return True

    @property
    def deleting(self) -> Collection[str]:
        """Topics whose deletion is not finished."""
        return self._deleting.keys()

    def finish_deletion(self, topic: str) -> None:
        """Remove a deleted topic from ``topics.json``, see `defers_deletions`."""
        if self._deleting.pop(topic, None) is not None:
            self._changed(topic)

    def add_missing(self, configs: Iterable[TopicConfig]) -> None:
        """Create the topics that do not exist. Other topics are not changed."""
        for config in configs:
            if config.topic_name not in self.configs:
                self.put(config)

    def auto_create(self, topic: str, template: str, queues: int) -> TopicConfig | None:
        """Create ``topic`` from ``template`` with at most ``queues`` queues, and return it. Return None if the template
        does not exist or has no INHERIT permission.
        """
        base = self.configs.get(template)
        if base is None or not base.perm & Perm.INHERIT or topic in self._deleting:
            return None
        count = max(1, min(queues, base.write_queue_nums))
        config = replace(
            base,
            topic_name=topic,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=base.perm & ~int(Perm.INHERIT),
            attributes={},
        )
        self.put(config)
        return self.configs[topic]

    def ensure_retry_topic(self, group: str, queues: int) -> TopicConfig:
        """Return the retry topic of a consumer group. Create it if it does not exist."""
        name = topic_names.retry_topic(group)
        config = self.configs.get(name)
        if config is None:
            config = TopicConfig(name, queues, queues, READ_WRITE)
            self.put(config)
        return self.configs[name]

    def snapshot(self) -> TopicConfigTable:
        """Return a copy of the table."""
        return TopicConfigTable(dict(self.configs), self.version)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``topics.json``. The objects of the topics are cached, because every change writes the
        whole table, which may have thousands of topics.
        """
        return {"dataVersion": self.version.to_dict(), "topicConfigTable": self._plain | self._deleting}

    def bump_version(self) -> None:
        """Increment the version, so that name servers accept the next registration without a changed topic."""
        self.version = self.version.next(self._clock())

    def _changed(self, topic: str) -> None:
        self.bump_version()
        for listener in self._listeners:
            listener(topic)
