"""In which order progress is stored: of each topic one queue first, then the others of a broker, some at a time;
different brokers at the same time.

Apache RocketMQ loses one of two first commits of a group that arrive at the same time: each makes the table of the
topic's offsets, and the later one replaces the other's. Once an answer has come the table is there.
Neighbours: `commits` and `pull_consumer` say what to store and how.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from raptormq.errors import NoRoute, RaptorMQError, TransportError
from raptormq.protocol.message import MessageQueue

T = TypeVar("T")
AT_A_TIME = 64
"""Commits under way at one broker: with one, 10,000 queues of a busy broker take minutes."""


async def commit_in_order(
    progress: Mapping[MessageQueue, T], commit: Callable[[MessageQueue, T], Awaitable[None]]
) -> dict[MessageQueue, RaptorMQError]:
    """Call `commit(queue, progress)` for all and return the failures by queue.

    A broker that cannot be reached is not tried again for each of its queues: they all get the failure of the first
    one.
    """
    by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in progress:
        by_broker[queue.broker_name].append(queue)
    failures: dict[MessageQueue, RaptorMQError] = {}

    async def commit_all(queues: list[MessageQueue]) -> None:
        unreachable: RaptorMQError | None = None
        known_topics: set[str] = set()

        async def commit_one(queue: MessageQueue) -> None:
            nonlocal unreachable
            if unreachable is not None:
                failures[queue] = unreachable
                return
            try:
                await commit(queue, progress[queue])
                known_topics.add(queue.topic)
            except (TransportError, NoRoute) as error:
                unreachable = failures[queue] = error
            except RaptorMQError as error:
                failures[queue] = error

        others: list[MessageQueue] = []
        for queue in queues:
            if queue.topic in known_topics:
                others.append(queue)
            else:
                await commit_one(queue)
        await _some_at_a_time(others, commit_one)

    await asyncio.gather(*map(commit_all, by_broker.values()))
    return failures


async def _some_at_a_time(queues: list[MessageQueue], commit: Callable[[MessageQueue], Awaitable[None]]) -> None:
    waiting = iter(queues)

    async def work() -> None:
        for queue in waiting:
            await commit(queue)

    await asyncio.gather(*(work() for _ in range(min(AT_A_TIME, len(queues)))))
