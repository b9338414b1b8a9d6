"""The first stage: lines become messages and travel in lists, several lists at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from demo.source_lines import SourceFile
from raptormq.client import AdminClient, Message, Producer, ProducerConfig

TOPIC = "library-lines"
QUEUES = 8
LISTS_IN_FLIGHT = 8
MAX_LIST_MESSAGES = 1000
# Keys, tags and ids weigh more than most lines. A broker takes lists of 4 MiB; a quarter leaves room for them.
MAX_LIST_BODY_BYTES = 1 << 20
# A list whose answer is late would be sent again and counted twice: rather wait longer, and fail if that does not help.
SENDING = ProducerConfig(send_timeout=30.0, retries=0)


def message_lists(files: Iterable[SourceFile]) -> Iterator[list[Message]]:
    """Yield all lines as messages (key: the file, tag: its package) in lists within both limits."""
    batch: list[Message] = []
    size = 0
    for file in files:
        for line in file.lines():
            if batch and (len(batch) == MAX_LIST_MESSAGES or size + len(line) > MAX_LIST_BODY_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(Message(TOPIC, line, tags=file.package, keys=(file.key,)))
            size += len(line)
    if batch:
        yield batch


async def send_lines(name_server: str, files: Iterable[SourceFile], on_sent: Callable[[int], None]) -> None:
    """Create the topic and send every line; `on_sent` hears how many messages each acknowledged list had.

    Raises:
        RaptorMQError: the topic could not be created, or a list was not acknowledged.
    """
    async with AdminClient(name_servers=name_server) as admin:
        await admin.create_topic(TOPIC, QUEUES, QUEUES)
    lists = message_lists(files)
    async with Producer("demo", name_servers=name_server, config=SENDING) as producer:

        async def send_from_shared_lists() -> None:
            for batch in lists:
                await producer.send_batch(batch)
                on_sent(len(batch))

        async with asyncio.TaskGroup() as senders:
            for _ in range(LISTS_IN_FLIGHT):
                senders.create_task(send_from_shared_lists())
