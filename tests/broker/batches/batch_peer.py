"""Requests to BatchCQ topics."""

from __future__ import annotations

from collections.abc import Sequence

from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.language import Language
from tests.broker.harness import Peer, pull_fields, send_fields

TIMEOUT = 10.0


async def create_topic(peer: Peer, topic: str = "b", attributes: str = "+queue.type=BatchCQ") -> RemotingCommand:
    """Create a topic with two queues."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 2,
        "writeQueueNums": 2,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
        "attributes": attributes,
    }
    return await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


async def send_batch(
    peer: Peer,
    messages: Sequence[tuple[bytes, str]],
    properties: str = "UNIQ_KEY\x01BATCH\x02",
    queue_id: int = 0,
    topic: str = "b",
    body: bytes | None = None,
    **more: object,
) -> RemotingCommand:
    """Send bodies with their properties as one batch (320)."""
    if body is None:
        body = encode_batch([(3, each, text.encode()) for each, text in messages])
    fields = send_fields(topic, queue_id, properties) | {"m": "true"} | more
    return await peer.call(RequestCode.SEND_BATCH_MESSAGE, fields, body)


def named(*names: str) -> list[tuple[bytes, str]]:
    """Return messages with a unique key each."""
    return [(name.encode(), f"UNIQ_KEY\x01{name.upper()}\x02") for name in names]


async def old_pull(peer: Peer, offset: int, queue_id: int = 0, **more: object) -> RemotingCommand:
    """Pull like a client that does not support inner batches."""
    fields = pull_fields("b", offset, queue_id) | more
    text = {name: str(value) for name, value in fields.items()}
    command = RemotingCommand(RequestCode.PULL_MESSAGE, text, language=Language.GO, version=317)
    return await peer.connection.request(command, TIMEOUT)
