"""Administration of topics: 17, 18 (create, change), 215, 5002 (delete), 21, 351 (configuration), 202 (queue bounds),
305 (system topics) (``AdminBrokerProcessor``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from raptormq.broker.config import Identity, MetadataSettings, Policies
from raptormq.broker.cooperative import written
from raptormq.broker.handlers.pages import page_of
from raptormq.broker.metrics import last_stored_at
from raptormq.broker.tables import MAX_QUEUES, ChangeBarrier, GroupTable, TopicTable, apply_attributes
from raptormq.broker.validation import require_topic
from raptormq.errors import BodyError, MessageError, StorageError
from raptormq.protocol.bodies.members import names_at
from raptormq.protocol.bodies.queues import TopicOffset, encode_topic_stats
from raptormq.protocol.bodies.route import TopicList
from raptormq.protocol.bodies.tolerant_json import dumps, loads_request
from raptormq.protocol.bodies.topic_config import READ_WRITE, Perm, TopicConfig, TopicConfigTable
from raptormq.protocol.bodies.unreadable import Unreadable, unreadable_to_dict
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.topic import (
    AllTopicsRequestHeader,
    CreateTopicRequestHeader,
    TopicRequestHeader,
    TotalTopicResponseHeader,
)
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.pop_handle import pop_retry_topic
from raptormq.protocol.topic_attributes import MESSAGE_TYPE, MIXED
from raptormq.protocol.topic_names import RETRY_PREFIX, is_system_topic, topic_name_error
from raptormq.storage.background import cooperatively
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

_ALL_PERMS = READ_WRITE | int(Perm.INHERIT) | int(Perm.PRIORITY)


class TopicHandlers:
    """Creates, changes, deletes and lists topics."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        barrier: ChangeBarrier,
        identity: Identity,
        policies: Policies,
        metadata: MetadataSettings,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._barrier = barrier
        self._identity = identity
        self._policies = policies
        self._metadata = metadata

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader, self.create)
        router.add(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, self.create_list)
        router.add(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader, self.delete)
        router.add(RequestCode.DELETE_TOPIC_IN_BROKER_LIST, None, self.delete_list)
        router.add(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader, self.config)
        router.add(RequestCode.GET_ALL_TOPIC_CONFIG, AllTopicsRequestHeader, self.all_configs)
        router.add(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader, self.stats)
        router.add(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None, self.system_topics)

    async def create(
        self, _: Connection, command: RemotingCommand, header: CreateTopicRequestHeader
    ) -> RemotingCommand:
        """17: create a topic or change its queues, permissions and attributes."""
        wanted = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            header.order,
        )
        change = self._barrier.begin()
        self._topics.put(self._checked(wanted, header.attributes))
        await change.passed()
        return response_to(command)

    async def create_list(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """18: create or change several topics. If one is invalid, none is changed."""
        change = self._barrier.begin()
        values = loads_request(command.body).get("topicConfigList")
        if not isinstance(values, list):
            raise BodyError("topicConfigList is not a list")
        checked: list[TopicConfig] = []
        async for value in cooperatively(values):
            config = TopicConfig.from_dict(value)
            checked.append(self._checked(config, _changes(config.attributes)))
        async for config in cooperatively(checked):
            change.check()
            self._topics.put(config)
        await change.passed()
        return response_to(command)

    def _checked(self, wanted: TopicConfig, attributes: str | None) -> TopicConfig:
        """Return the new configuration of a topic.

        Raises:
            Refused: 29 or 1, the configuration is invalid.
        """
        self._check_name(wanted.topic_name)
        for name, count in (("read", wanted.read_queue_nums), ("write", wanted.write_queue_nums)):
            if not 0 < count <= MAX_QUEUES:
                raise _invalid(f"{count} {name} queues; expected 1 to {MAX_QUEUES}")
        if wanted.perm & ~_ALL_PERMS or not wanted.perm & READ_WRITE:
            raise _invalid(f"permission {wanted.perm} is not 2 (write), 4 (read) or 6 (both)")
        if wanted.topic_filter_type not in ("SINGLE_TAG", "MULTI_TAG"):
            raise _invalid(f"topicFilterType {wanted.topic_filter_type!r} is not SINGLE_TAG or MULTI_TAG")
        current = self._topics.get(wanted.topic_name)
        try:
            wanted.attributes = apply_attributes(attributes, current.attributes if current is not None else None)
        except (BodyError, MessageError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        was_mixed = current is not None and current.attributes.get(MESSAGE_TYPE) == MIXED
        if wanted.attributes.get(MESSAGE_TYPE) == MIXED and not (was_mixed or self._policies.mixed_topics):
            raise _invalid("MIXED message type is not supported. (enableMixedMessageType)")
        has_queues = current is None and self._store.queue_ids(wanted.topic_name)
        if has_queues and wanted.is_batch is not self._store.is_batch_topic(wanted.topic_name):
            remark = f"the store has queues of another type for topic {wanted.topic_name}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return wanted

    def _check_name(self, topic: str) -> None:
        if (fault := topic_name_error(topic)) is not None:
            raise _invalid(fault)
        if self._policies.validate_system_topics and self._is_own(topic):
            raise _invalid(f"The topic[{topic}] is conflict with system topic.")

    def _is_own(self, topic: str) -> bool:
        identity = self._identity
        return is_system_topic(topic) or topic in (identity.cluster_name, identity.broker_name)

    async def delete(self, _: Connection, command: RemotingCommand, header: TopicRequestHeader) -> RemotingCommand:
        """215: delete a topic with its queues, the offsets of its groups, and the retries of popped messages.

        The records remain in the log until they expire.
        """
        self._check_deletion(header.topic)
        await self._delete([header.topic])
        return response_to(command)

    async def delete_list(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """5002: delete several topics, like 215. If one may not be deleted, none is deleted."""
        found = names_at(loads_request(command.body), "topicList")
        if not found:
            raise _invalid("The specified topic list is blank.")
        for topic in found:
            self._check_deletion(topic)
        await self._delete(found)
        return response_to(command)

    def _check_deletion(self, topic: str) -> None:
        if not topic.strip():
            raise _invalid("The specified topic is blank.")
        if self._is_own(topic):
            raise _invalid(f"The topic[{topic}] is conflict with system topic.")

    async def _delete(self, topics: list[str]) -> None:
        named = [each for topic in topics for each in (topic, *self._retry_topics(topic))]
        change = self._barrier.begin()
        async for each in cooperatively(list(dict.fromkeys(named))):
            change.check()
            was_known = self._topics.delete(each)
            if was_known or self._store.queue_ids(each):
                self._barrier.delete_queues(each)
        await self._store.save_deletions()
        await change.passed()  # also without a change: the save of an earlier request may have failed

    def _retry_topics(self, topic: str) -> list[str]:
        """Return the retry topics of POP consumption for ``topic``. A new topic of the same name would deliver their
        messages.
        """
        found: list[str] = []
        for group in self._store.consumer_offsets.groups_of_topic(topic):
            first, second = pop_retry_topic(topic, group), pop_retry_topic(topic, group, v2=True)
            # If a group with this name exists, its retries are in the same topic.
            if self._groups.get(first.removeprefix(RETRY_PREFIX)) is None:
                found.append(first)
            found.append(second)
        return [each for each in found if each != topic and each in self._topics.configs]

    def config(self, _: Connection, command: RemotingCommand, header: TopicRequestHeader) -> RemotingCommand:
        """351: return the configuration of one topic."""
        config = self._topics.get(header.topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}")
        published = replace(config, topic_id=self._topics.published_id(header.topic) or "")
        return response_to(command, body=published.to_json())

    async def all_configs(
        self, _: Connection, command: RemotingCommand, header: AllTopicsRequestHeader
    ) -> RemotingCommand:
        """21: return the configuration of all topics, or of one page."""
        unreadable = unreadable_to_dict(await self._unreadable()) if header.with_unreadable else None
        version, configs = self._topics.version, self._topics.configs
        page = page_of(
            configs, version, self._metadata,
            first=header.topic_seq, limit=header.max_topic_num, seen=header.data_version,
        )  # fmt: skip
        table = TopicConfigTable(page, version)
        if unreadable is not None:
            body = dumps(table.to_dict() | unreadable)
        else:
            body = table.to_json_with_ids() if header.with_topic_ids else table.to_json()
        return response_to(command, header=TotalTopicResponseHeader(len(configs)), body=body)

    async def _unreadable(self) -> dict[str, Unreadable]:
        """Return the topics with messages in queues that consumers do not read."""
        found: dict[str, Unreadable] = {}
        async for config in cooperatively(list(self._topics.configs.values())):
            count = last = 0
            for queue_id in self._store.queue_ids(config.topic_name):
                if queue_id < config.read_queue_nums:
                    continue
                try:
                    low, high = await self._store.queue_bounds(config.topic_name, queue_id)
                except StorageError:
                    continue  # a damaged file of one queue does not keep the table of topics from the operator
                if high > low:
                    count, last = count + high - low, queue_id + 1
            if count:
                found[config.topic_name] = Unreadable(count, last)
        return found

    async def stats(self, _: Connection, command: RemotingCommand, header: TopicRequestHeader) -> RemotingCommand:
        """202: return the bounds of a topic's queues."""
        config = require_topic(self._topics, header.topic)
        offsets: dict[MessageQueue, TopicOffset] = {}
        async for queue_id in cooperatively(range(max(config.read_queue_nums, config.write_queue_nums))):
            low, high = await self._store.queue_bounds(header.topic, queue_id)
            updated = await last_stored_at(self._store, header.topic, queue_id) if high > low else 0
            queue = MessageQueue(header.topic, self._identity.broker_name, queue_id)
            offsets[queue] = TopicOffset(low, high, updated)
        return response_to(command, body=await written(lambda: encode_topic_stats(offsets), len(offsets)))

    def system_topics(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """305: return the system topics."""
        own = [topic for topic in self._topics.configs if self._is_own(topic)]
        return response_to(command, body=TopicList(own).to_json())


def _changes(attributes: Mapping[str, str]) -> str:
    """Return the attributes of a topic in a list as text. Keys may have a sign, which RocketMQ's tools send."""
    signed = (key if key[:1] in ("+", "-") else f"+{key}" for key in attributes)
    pairs = zip(signed, attributes.values(), strict=True)
    return ",".join(key if key[0] == "-" else f"{key}={text}" for key, text in pairs)


def _invalid(remark: str) -> Refused:
    return Refused(ResponseCode.INVALID_PARAMETER, remark)
