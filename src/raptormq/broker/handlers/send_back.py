"""CONSUMER_SEND_MSG_BACK (36): schedules a retry of a message that a consumer failed to process
(``AbstractSendMessageProcessor.consumerSendMsgBack``).

The request contains the log offset of the message, not its body. The broker reads the message and stores a copy with
incremented reconsume times and the properties RETRY_TOPIC (original topic) and ORIGIN_MESSAGE_ID (original id). The
request sets the delay level of the copy. Level 0 selects a level that increases with each retry.
"""

from __future__ import annotations

from functools import partial

from raptormq.broker.config import Policies
from raptormq.broker.delay.delayed_message import waiting
from raptormq.broker.internal_writer import InternalWriter, record_copy
from raptormq.broker.metrics import Statistics
from raptormq.broker.retries import RetryTopics
from raptormq.broker.security.authorized_records import AuthorizedRecords
from raptormq.broker.security.required_permissions import to_consume
from raptormq.broker.tables import GroupConfig
from raptormq.errors import RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.bodies.topic_config import Perm
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.delay_levels import FIRST_RETRY_LEVEL
from raptormq.protocol.headers.client import SendBackRequestHeader
from raptormq.protocol.message_id import offset_id
from raptormq.protocol.properties import decode_properties, without_pop_properties
from raptormq.protocol.record import StoredMessage, decode_record
from raptormq.protocol.topic_names import SCHEDULE_TOPIC
from raptormq.storage.queue import PendingRecord
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class SendBackHandlers:
    """Stores retries of messages that consumers send back."""

    def __init__(
        self,
        store: MessageStore,
        records: AuthorizedRecords,
        writer: InternalWriter,
        retries: RetryTopics,
        statistics: Statistics,
        policies: Policies,
    ) -> None:
        self._records = records
        self._writer = writer
        self._retries = retries
        self._statistics = statistics
        self._policies = policies
        self._level_count = len(store.config.delays_ms)

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.CONSUMER_SEND_MSG_BACK, SendBackRequestHeader, self.send_back)

    async def send_back(
        self, connection: Connection, command: RemotingCommand, header: SendBackRequestHeader
    ) -> RemotingCommand:
        """36: store a copy of the message. After the response the consumer may commit its offset."""
        if not self._policies.permission & Perm.WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, "this broker does not accept messages (brokerPermission)")
        group = self._retries.group(header.group)
        if group.retry_queue_nums <= 0:  # retries are disabled for the group
            return response_to(command)
        message = await self._read(connection, command, header)
        record = self._copy(message, group, header)
        await self._retries.saved()
        await self._writer.write_confirmed([record])
        origin = decode_properties(message.properties).get(names.RETRY_TOPIC, message.topic)
        self._statistics.count_send_back(origin, header.group)
        return response_to(command)

    async def _read(
        self, connection: Connection, command: RemotingCommand, header: SendBackRequestHeader
    ) -> StoredMessage:
        """Return the message at the log offset of the request. Its unique key selects one message of a batch."""
        offset, needs = header.offset, partial(to_consume, header.group)
        # A consumer may retry a message of a topic that was deleted after the delivery.
        data = await self._records.message_at(
            connection, command, needs, offset, unique_key=header.origin_msg_id or "", include_deleted=True
        )
        if data is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        try:
            return decode_record(data)
        except RecordError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the message at offset {offset} is damaged: {error}") from error

    def _copy(self, message: StoredMessage, group: GroupConfig, header: SendBackRequestHeader) -> PendingRecord:
        most = group.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        found = without_pop_properties(decode_properties(message.properties))
        origin = {
            names.RETRY_TOPIC: message.topic,
            names.ORIGIN_MESSAGE_ID: offset_id(message.store_host, message.physical_offset),
        }
        needed = {name: value for name, value in origin.items() if name not in found} | {names.WAIT: "false"}
        if message.reconsume_times >= most or header.delay_level < 0:
            topic, queue_id = self._retries.dead_letter_topic(group.name), 0
            needed[names.DELAY] = "0"
        else:
            config, retry_queue = self._retries.retry_queue(group)
            level = min(header.delay_level or FIRST_RETRY_LEVEL + message.reconsume_times, self._level_count)
            topic = SCHEDULE_TOPIC
            queue_id, to_wait = waiting(found, config.topic_name, retry_queue, level)
            needed |= to_wait
        return record_copy(message, topic, queue_id, self._writer.properties.fit(topic, found, needed), retries=1)
