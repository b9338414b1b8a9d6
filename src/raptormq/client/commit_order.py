"""In which order progress is stored: the queues of one broker one after the other, different brokers at the same time.

Apache RocketMQ loses one of two first commits of a group that arrive at the same time: each makes the table of the
topic's offsets, and the later one replaces the other's. Whoever waits for each answer is safe.
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


async def commit_in_order(
    progress: Mapping[MessageQueue, T], commit: Callable[[MessageQueue, T], Awaitable[None]]
) -> dict[MessageQueue, RaptorMQError]:
    """Call `commit(queue, progress)` for all and return the failures by queue.

    A broker that cannot be reached is not tried again for each of its queues: they all get the failure of the first
    one.
    """
    by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in sorted(progress):
        by_broker[queue.broker_name].append(queue)
    failures: dict[MessageQueue, RaptorMQError] = {}

    async def commit_all(queues: list[MessageQueue]) -> None:
        unreachable: RaptorMQError | None = None
        for queue in queues:
            if unreachable is None:
                try:
                    await commit(queue, progress[queue])
                    continue
                except (TransportError, NoRoute) as error:
                    unreachable = error
                except RaptorMQError as error:
                    failures[queue] = error
                    continue
            failures[queue] = unreachable

    await asyncio.gather(*map(commit_all, by_broker.values()))
    return failures
