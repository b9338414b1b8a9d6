"""RECALL_MESSAGE (370): a producer cancels a timer message before it is due (``RecallMessageProcessor``).

The recall is stored as a separate timer record, which becomes due just before the message.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.config import BrokerConfig
from raptormq.broker.delay.timer_message import TimerRules, deletion_keys, set_timer
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.tables import TopicTable
from raptormq.broker.tag_code import tag_code
from raptormq.errors import MessageError
from raptormq.protocol import properties as names
from raptormq.protocol.bodies.topic_config import Perm
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.recall import RecallMessageRequestHeader, RecallMessageResponseHeader
from raptormq.protocol.naturals import parse_natural
from raptormq.protocol.properties import encode_properties
from raptormq.protocol.recall_handle import RecallHandle, decode_recall_handle
from raptormq.storage.queue import PendingRecord
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

_TAG = "_RECALL_TAG_"
_DUE_DIGITS = 18


class RecallHandlers:
    """Stores recalls of timer messages."""

    def __init__(
        self,
        writer: InternalWriter,
        topics: TopicTable,
        config: BrokerConfig,
        rules: TimerRules,
        clock: Callable[[], int],
    ) -> None:
        self._writer = writer
        self._topics = topics
        self._config = config
        self._rules = rules
        self._clock = clock

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader, self.recall)

    async def recall(
        self, connection: Connection, command: RemotingCommand, header: RecallMessageRequestHeader
    ) -> RemotingCommand:
        """370: store a recall. The response is success even if the message no longer exists."""
        if not self._config.timers.recall:
            raise Refused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if not self._config.policies.permission & Perm.WRITE:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker does not accept messages (brokerPermission)")
        if header.topic not in self._topics.configs:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
        handle, due = self._check(header)
        await self._writer.write_confirmed([self._record(handle, due)])
        return response_to(command, header=RecallMessageResponseHeader(handle.unique_key))

    def _check(self, header: RecallMessageRequestHeader) -> tuple[RecallHandle, int]:
        try:
            handle = decode_recall_handle(header.recall_handle)
        except MessageError as error:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
        if handle.topic != header.topic:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self._config.identity.broker_name:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        due = parse_natural(handle.due, _DUE_DIGITS) or 0
        if not 0 < due - self._clock() < self._config.timers.max_delay_s * 1000:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle, due

    def _record(self, handle: RecallHandle, due: int) -> PendingRecord:
        with_topic, unique_key = deletion_keys(handle.topic, handle.unique_key)
        text = encode_properties(
            {
                names.TAGS: _TAG,
                names.TIMER_DELETE_KEY: with_topic if self._config.timers.recall_names_topic else unique_key,
                names.UNIQUE_KEY: handle.unique_key,
                names.TIMER_DELIVER_MS: str(due),
            }
        )
        out_ms = self._rules.out_ms(text)
        if out_ms is None:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        properties = text.encode()
        return set_timer(
            PendingRecord(handle.topic, 0, b"0", properties, tag_code(properties), born_timestamp=self._clock()),
            out_ms,
        )
