"""Fills topics of a real broker for the tests of the Spark source."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from raptormq.client import AdminClient, ClientConfig, Message, MessageQueue, Producer

BROKER = "broker-a"
_LIMIT_S = 60.0


def create_topic(name_server: str, topic: str, queues: int, attributes: dict[str, str] | None = None) -> None:
    """Create a topic, or add queues to it."""

    async def create() -> None:
        async with AdminClient(name_servers=name_server) as admin:
            await admin.create_topic(topic, read_queues=queues, write_queues=queues, attributes=attributes)

    asyncio.run(create())


def make_again(name_server: str, topic: str, queues: int) -> None:
    """Delete a topic and create one of the same name."""

    async def delete() -> None:
        async with AdminClient(name_servers=name_server) as admin:
            await admin.delete_topic(topic)

    asyncio.run(delete())
    create_topic(name_server, topic, queues)


def send(name_server: str, messages: Sequence[Message], queues: int, broker: str = BROKER) -> None:
    """Send messages of one topic, number n to queue n modulo `queues`. Each is sent separately, so that large bodies
    are compressed.
    """
    client_config = ClientConfig(name_servers=name_server, request_timeout=_LIMIT_S)

    async def send_all() -> None:
        async with Producer("tests", client_config=client_config) as producer:
            targets = [MessageQueue(messages[0].topic, broker, number) for number in range(queues)]
            for first in range(0, len(messages), 64):
                portion = list(enumerate(messages))[first : first + 64]
                sends = (producer.send(each, queue=targets[n % queues], timeout=_LIMIT_S) for n, each in portion)
                await asyncio.gather(*sends)

    asyncio.run(send_all())


def sample_messages(topic: str, count: int, seed: int = 1) -> list[Message]:
    """Return messages with keys k0, k1, ..., one of three tags, and a body that producers compress in every tenth."""
    random_bytes = random.Random(seed).randbytes
    return [
        Message(
            topic,
            (b"long and dull " * 500 if number % 10 == 0 else b"") + random_bytes(20),
            tags=("JFK", "LGA", "EWR")[number % 3],
            keys=(f"k{number}", "all"),
            properties={"number": str(number)},
        )
        for number in range(count)
    ]
