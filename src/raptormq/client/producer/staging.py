"""`StagingClient`: stages lists of messages at brokers, and publishes the lists of a batch by one commit.

A low-level client for connectors. It has no state, does not select queues and does not retry. If a list was staged
twice after a lost response, the commit must name one of the two.
See also: `message.send_request` encodes lists. Source: `docs/adr/0051-staged-lists-and-one-commit-record.md`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from raptormq.client.cluster import InstanceClient, call_broker, fetch_cluster, require_success
from raptormq.client.config import ClientConfig, ProducerConfig
from raptormq.client.message import EncodedBatch, SendRequest, check_message, prepare_batch, prepare_encoded
from raptormq.errors import NoRoute, ServerError
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.bodies.staging import Decision, Ranges, decode_decision, encode_decision
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.headers.staging import (
    CommitStagedRequestHeader,
    CommitStagedResponseHeader,
    StageBatchResponseHeader,
)
from raptormq.protocol.message import Message, MessageQueue
from raptormq.protocol.schema import decode_header, encode_header
from raptormq.protocol.topic_names import AUTO_CREATE_TOPIC


class StagedCommit(NamedTuple):
    """The response to a commit."""

    decision: Decision
    """The effective decision, possibly of an earlier commit. It is empty if a later batch of the query is published;
    the lists of the commit are then not published."""
    is_published: bool
    """False while the broker is still publishing; the commit must then be repeated."""
    message_count: int
    """Number of messages published so far."""


class StagingClient(InstanceClient):
    """Stages lists and commits batches at the brokers of one cluster.

    Args:
        group: the producer group.
        config: limits of messages and lists.
        client_config: shared connections.
    """

    def __init__(self, group: str, *, config: ProducerConfig, client_config: ClientConfig) -> None:
        super().__init__("staging client", client_config)
        self._group = group
        self._config = config

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic.

        Raises:
            NoRoute, TransportError, ClientClosed: as in `Producer.send`.
        """
        found = await self._started_instance().routes.find_for_sending(topic, self._config.default_topic_queues)
        return list(found.write_queues)

    async def brokers(self) -> list[str]:
        """Return the names of all broker groups, sorted, also of those that are not registered any more.

        Raises:
            TransportError: no name server responds.
        """
        name_servers = self._started_instance().name_servers
        info = await fetch_cluster(name_servers, full_timeout=True, with_lost=True)
        return sorted(info.brokers.keys() | info.lost.keys())

    def check(self, message: Message) -> None:
        """Check a message as `stage` does, except for its size together with the other messages of its list.

        Raises:
            MessageError: the message breaks a rule.
        """
        check_message(message, self._config)

    async def stage(self, messages: Sequence[Message], queue: MessageQueue, query: str, batch: int) -> int:
        """Stage messages for a queue. Return the offset that identifies the list at the broker of the queue.

        Raises:
            MessageError: a message breaks a rule.
            ServerError: the broker refuses the list, or its flush or replication timed out (10, 11, 12).
            NoRoute, TransportError, ClientClosed: as in `Producer.send`.
        """
        ids = self._started_instance().unique_ids
        return await self._stage(prepare_batch(messages, ids, _now_ms(), self._config), queue, query, batch)

    async def stage_encoded(self, encoded: EncodedBatch, queue: MessageQueue, query: str, batch: int) -> int:
        """Stage messages that the application has encoded; arguments and errors are those of `stage`."""
        ids = self._started_instance().unique_ids
        return await self._stage(prepare_encoded(encoded, ids, _now_ms(), self._config), queue, query, batch)

    async def _stage(self, outgoing: SendRequest, queue: MessageQueue, query: str, batch: int) -> int:
        instance = self._started_instance()
        fields = {
            "a": self._group,
            "b": queue.topic,
            "c": AUTO_CREATE_TOPIC,
            "d": str(self._config.default_topic_queues),
            "e": str(queue.queue_id),
            "f": "0",
            "g": str(outgoing.born_ms),
            "h": "0",
            "i": outgoing.properties,
            "m": "true",
            "query": query,
            "batch": str(batch),
        }

        async def call(address: str) -> int:
            command = RemotingCommand(RequestCode.STAGE_BATCH, dict(fields), outgoing.body)
            answer = await instance.pool.request(address, command, instance.config.request_timeout)
            found = decode_header(StageBatchResponseHeader, require_success(answer, address).ext_fields)
            return found.staged_offset

        return await call_broker(instance.routes, queue, call)

    async def commit(
        self, broker: str, query: str, batch: int, decision: Mapping[str, Ranges], topic: str | None = None
    ) -> StagedCommit:
        """Request a broker group to publish its lists of a batch.

        `topic` is the topic to which the query writes, empty if its rows name their topics. The broker refuses a batch
        that it has committed for another topic.

        Raises:
            ServerError: the broker refuses the commit.
            NoRoute: the group has no master.
            TransportError: the broker, or every name server, does not respond.
        """
        answer, address = await self._request(broker, query, batch, encode_decision(decision), topic)
        require_success(answer, address)
        found = decode_header(CommitStagedResponseHeader, answer.ext_fields)
        held = decode_decision(answer.body) if answer.body else {}
        return StagedCommit(held, found.is_published, found.message_count)

    async def offers_staging(self, broker: str) -> bool:
        """Return whether a broker group supports staging. Errors are those of `commit`."""
        answer, address = await self._request(broker, "", 0, b"{}")  # invalid; brokers without staging answer 3
        if answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
            return answer.code == ResponseCode.INVALID_PARAMETER
        raise ServerError(answer.code, answer.remark or "", address)

    async def _request(
        self, broker: str, query: str, batch: int, body: bytes, topic: str | None = None
    ) -> tuple[RemotingCommand, str]:
        instance = self._started_instance()
        found = (await fetch_cluster(instance.name_servers)).brokers.get(broker)
        address = None if found is None else found.broker_addrs.get(MASTER_ID)
        if address is None:
            raise NoRoute(f"broker {broker} has no master now")
        fields = encode_header(CommitStagedRequestHeader(query, batch, topic))
        command = RemotingCommand(RequestCode.COMMIT_STAGED, fields, body)
        return await instance.pool.request(address, command, instance.config.request_timeout), address


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
