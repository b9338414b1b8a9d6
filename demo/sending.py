"""First stage: sends lines as messages in lists, with several lists in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from demo.source_lines import SourceFile
from raptormq.client import AdminClient, Message, Producer, ProducerConfig

TOPIC = "library-lines"
QUEUES = 8
LISTS_IN_FLIGHT = 8
MAX_LIST_MESSAGES = 1000
# Keys, tags and ids are larger than most lines. The limit of a broker is 4 MiB per list; a quarter of that leaves
# enough room.
MAX_LIST_BODY_BYTES = 1 << 20
# A retry after a timeout could store a list twice. Use a long timeout and no retries.
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
    """Create the topic and send every line. `on_sent` is called with the number of messages of each acknowledged list.

    Raises:
        RaptorMQError: The topic could not be created, or a list was not acknowledged.
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
