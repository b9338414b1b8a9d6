"""The topic table: which topics this broker serves, and their settings (``TopicConfigManager``, file ``topics.json``).

:class:`TopicTable` is a value with a version. The writer of its file (:mod:`raptormq.broker.table_files`) and the
registration with name servers (:mod:`raptormq.broker.registration`) listen to its changes. The clock (ms) is passed in.

Every topic gets an id (:mod:`raptormq.protocol.topic_ids`) when it is created and keeps it until it is deleted. The
topics of a table from before topic ids get theirs at the first start, all together. In a table with ids, a topic
without one was created by another broker or restored from its queues (:mod:`raptormq.broker.table_files`). It stays
without: a new id would claim that its messages are not the old ones.

:func:`apply_attributes` applies the ``+key=value,-key`` text of a topic request; which attributes there are is said in
:mod:`raptormq.broker.tables.attributes`.

:func:`system_topics` returns the topics that every broker has from its first start. Tools rely on them: the topic named
after the cluster has the routes of all its brokers, the topic named after the broker has the route to this one.
``TBW102`` is the template for routes and settings of unknown topics.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from raptormq.broker.config import Identity, Policies
from raptormq.broker.tables.attributes import TOPIC_ATTRIBUTES, EffectNotices, change_attributes
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
    """Return the attributes of a topic after a request: ``current`` (None for a new topic) changed as ``text`` says.

    No text changes nothing.

    Raises:
        BodyError: the text is malformed.
        MessageError: a key or value is unknown or not supported yet, or the attribute is fixed.
    """
    changes, removed = parse_attributes(text)
    return change_attributes("topic", TOPIC_ATTRIBUTES, changes, removed, current)


_TEMPLATE = READ_WRITE | int(Perm.INHERIT)
_DELAY_LEVELS = 18


def system_topics(identity: Identity, policies: Policies) -> list[TopicConfig]:
    """Return the system topics of a broker with these settings."""
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
"""Largest number of queues of one topic. More is a typing error that would create a directory for each."""


class TopicTable:
    """All topics of one broker.

    ``configs`` may be read directly, as the send path does for every message; changes go through the methods.
    """

    def __init__(
        self, table: TopicConfigTable, clock: Callable[[], int], new_id: Callable[[], str] = _random_id
    ) -> None:
        self.configs: dict[str, TopicConfig] = dict(table.topics)
        self.version: DataVersion = table.data_version
        self._plain = {name: config.to_stored() for name, config in table.topics.items()}
        self._clock = clock
        self._new_id = new_id
        self._is_saved: Callable[[str], bool] = lambda _: True
        self._listeners: list[Listener] = []
        self._notices = EffectNotices("topic", TOPIC_ATTRIBUTES)
        for name, config in self.configs.items():
            self._notices.look(name, config.attributes)

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with the name of every topic that is created, changed or deleted."""
        self._listeners.append(listener)

    def listen_to_deletions(self, listener: Listener) -> None:
        """Call ``listener`` with the name of every topic that is deleted."""
        self.listen(lambda topic: None if topic in self.configs else listener(topic))

    def get(self, topic: str) -> TopicConfig | None:
        """Return the configuration of a topic."""
        return self.configs.get(topic)

    def put(self, config: TopicConfig) -> bool:
        """Create or change a topic; False when nothing changed. The id of ``config`` is ignored."""
        current = self.configs.get(config.topic_name)
        if current == config:
            return False
        self._set(config, self._new_id() if current is None else current.topic_id)
        return True

    def restore(self, config: TopicConfig) -> None:
        """Add a topic that existed before and whose id is unknown."""
        self._set(config, "")

    def adopt(self, config: TopicConfig) -> None:
        """Create or change a topic as another broker has it, its id included."""
        if self.configs.get(config.topic_name) != config:
            self._set(config, config.topic_id)

    def stored(self, topic: str) -> dict[str, Any] | None:
        """Return a topic as ``topics.json`` has it; None without one. Not to be changed."""
        return self._plain.get(topic)

    def assign_missing_ids(self) -> int:
        """Give an id to each topic of a table from before topic ids; return the number of topics."""
        if any(config.topic_id for config in self.configs.values()):
            return 0
        for config in list(self.configs.values()):
            self._set(config, self._new_id())
        return len(self.configs)

    def publish_ids_when(self, is_saved: Callable[[str], bool]) -> None:
        """Publish the ids of those topics only for which ``is_saved`` is true, so that ids survive a crash."""
        self._is_saved = is_saved

    def published_id(self, topic: str) -> str | None:
        """Return the published id of a topic; None without one."""
        config = self.configs.get(topic)
        return config.topic_id or None if config is not None and self._is_saved(topic) else None

    def _set(self, config: TopicConfig, topic_id: str) -> None:
        name = config.topic_name
        self.configs[name] = config = replace(config, topic_id=topic_id)
        self._plain[name] = config.to_stored()
        self._notices.look(name, config.attributes)
        self._changed(name)

    def delete(self, topic: str) -> bool:
        """Remove a topic; False when there was none."""
        if self.configs.pop(topic, None) is None:
            return False
        del self._plain[topic]
        self._changed(topic)
        return True

    def add_missing(self, configs: Iterable[TopicConfig]) -> None:
        """Create the topics that do not exist; others are not changed."""
        for config in configs:
            if config.topic_name not in self.configs:
                self.put(config)

    def auto_create(self, topic: str, template: str, queues: int) -> TopicConfig | None:
        """Create ``topic`` from the template topic, with at most ``queues`` queues; None when the template does not
        allow it.
        """
        base = self.configs.get(template)
        if base is None or not base.perm & Perm.INHERIT:
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
        """Return the retry topic of a consumer group; it is created if it does not exist."""
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
        """Return the content of ``topics.json``. Cheap, because every change writes the whole table of possibly
        thousands of topics.
        """
        return {"dataVersion": self.version.to_dict(), "topicConfigTable": dict(self._plain)}

    def bump_version(self) -> None:
        """Increment the version, so that name servers accept the next registration although no topic has changed."""
        self.version = self.version.next(self._clock())

    def _changed(self, topic: str) -> None:
        self.bump_version()
        for listener in self._listeners:
            listener(topic)
