"""CONVERT_QUEUE (31001): starts, stops and reports the conversion of a topic's queues. RocketMQ has no such request."""

from __future__ import annotations

from raptormq.broker.conversions import Conversions
from raptormq.broker.tables import TopicTable
from raptormq.broker.validation import require_topic
from raptormq.errors import ConversionRefused
from raptormq.protocol.bodies.conversion import QueueConversionState
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.conversion import ConvertQueueRequestHeader
from raptormq.protocol.topic_attributes import BATCH_CQ, SIMPLE_CQ
from raptormq.protocol.topic_names import is_derived_topic, is_system_topic
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class ConversionHandlers:
    """Handles conversion requests. The response contains the new state."""

    def __init__(self, store: MessageStore, topics: TopicTable, conversions: Conversions) -> None:
        self._store = store
        self._topics = topics
        self._conversions = conversions

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.CONVERT_QUEUE, ConvertQueueRequestHeader, self.convert)

    async def convert(
        self, _: Connection, command: RemotingCommand, header: ConvertQueueRequestHeader
    ) -> RemotingCommand:
        """31001: start, stop or report a conversion.

        Raises:
            Refused: 17 for an unknown topic, 29 for an invalid request, 604 during the opposite conversion, and on a
                member of a replication group.
        """
        topic = header.topic
        require_topic(self._topics, topic)
        if header.action == "start":
            await self._start(topic, header.queue_type)
        elif header.action == "stop":
            await self._conversions.converter.stop(topic)
        elif header.action != "status":
            raise _invalid(f"action {header.action!r} is not start, stop or status")
        return response_to(command, body=self._state(topic).to_json())

    async def _start(self, topic: str, queue_type: str | None) -> None:
        if queue_type not in (BATCH_CQ, SIMPLE_CQ):
            raise _invalid(f"queueType {queue_type!r} is not {BATCH_CQ} or {SIMPLE_CQ}")
        if is_system_topic(topic) or is_derived_topic(topic):
            raise _invalid(f"topic {topic} is a system, retry or dead-letter topic and cannot be converted")
        if self._store.replica is not None:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                f"cannot convert the queues of {topic} on a member of a replication group, which has its own queues",
            )
        try:
            await self._conversions.order(topic, to_batch=queue_type == BATCH_CQ)
        except ConversionRefused as error:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, str(error)) from None

    def _state(self, topic: str) -> QueueConversionState:
        queue_type = BATCH_CQ if self._store.is_batch_topic(topic) else SIMPLE_CQ
        progress = self._conversions.converter.progress(topic)
        if progress is None:
            return QueueConversionState(topic, queue_type, "none")
        before, after = progress.checksums or ("", "")
        return QueueConversionState(
            topic,
            queue_type,
            progress.phase,
            progress.remark,
            progress.done,
            progress.total,
            progress.offset,
            before,
            after,
            BATCH_CQ if progress.to_batch else SIMPLE_CQ,
        )


def _invalid(remark: str) -> Refused:
    return Refused(ResponseCode.INVALID_PARAMETER, remark)
