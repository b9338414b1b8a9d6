"""All messages of a topic."""

from __future__ import annotations

from raptormq.client import MessageExt, PullConsumer


async def stored_messages(name_servers: str, topic: str) -> list[MessageExt]:
    """Return the messages that a topic has now, queue by queue: also a slow broker returns all of them."""
    found: list[MessageExt] = []
    async with PullConsumer(name_servers=name_servers) as reader:
        for queue in await reader.queues(topic):
            offset, end = await reader.min_offset(queue), await reader.max_offset(queue)
            while offset < end:
                pulled = await reader.pull(queue, offset, timeout=60)
                found += pulled.messages()
                offset = pulled.next_offset
    return found
