"""`MessageTrace`: the message trace of one started producer or consumer, with its own sender.

It acquires the client instance for itself, so that the last records can be sent after the producer or consumer has
ended. See also: `client.trace` creates and collects the records. Source: RocketMQ `AsyncTraceDispatcher`.
"""

from __future__ import annotations

import time
from typing import Self

from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from raptormq.client.message import prepare_message
from raptormq.client.producer.sender import MessageSender
from raptormq.client.trace import TraceData, TraceDispatcher, TraceInterceptor
from raptormq.protocol.message import Message

_CONFIG = ProducerConfig(send_timeout=5.0)


class MessageTrace:
    """Traces one producer or consumer from its start to its end.

    Args:
        client_config: connection settings of the client that is traced.
        group: the producer or consumer group.
        topic: topic of the trace records.
    """

    def __init__(self, client_config: ClientConfig, group: str, topic: str) -> None:
        self._topic = topic
        self._instance = ClientInstance.acquire(client_config)
        self._sender = MessageSender(self._instance, f"_INNER_TRACE_PRODUCER-{group}", _CONFIG)
        self._dispatcher = TraceDispatcher(group, self._send)
        self.interceptor = TraceInterceptor(topic, self._dispatcher.add)
        """Creates the trace records."""

    @classmethod
    def start(cls, client_config: ClientConfig, group: str, config: ProducerConfig | ConsumerConfig) -> Self | None:
        """Start a trace if the configuration asks for one."""
        return cls(client_config, group, config.trace_topic) if config.message_trace else None

    async def close(self) -> None:
        """Send the last records, within about `ClientConfig.close_timeout`."""
        await self._dispatcher.close(self._instance.config.close_timeout)
        await self._instance.release()

    async def _send(self, data: TraceData) -> None:
        message = Message(self._topic, data.body, keys=data.keys)
        outgoing = prepare_message(message, self._instance.unique_ids, time.time_ns() // 1_000_000, _CONFIG)
        await self._sender.send(outgoing, None, None, _CONFIG.send_timeout)
