"""Server-side assignment of queues to the members of a group (``QueryAssignmentProcessor``).

Clients with server-side rebalancing request their queues. In mode PULL, the strategy in the request divides the queues.
In mode POP, members share queues: a member consumes all queues (queue -1 of each broker), or its own share and the
shares of the next ``popShareQueueNum`` members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raptormq.broker.tables import POP, PULL, RequestMode
from raptormq.protocol.message import MessageQueue

ALL_QUEUES = -1


def allocate_averagely(queues: Sequence[MessageQueue], members: Sequence[str], member: str) -> list[MessageQueue]:
    """Strategy AVG: contiguous shares. The first members get the extra queues (``AllocateMessageQueueAveragely``)."""
    index, count = members.index(member), len(members)
    share, larger = divmod(len(queues), count)
    start = index * share + min(index, larger)
    return list(queues[start : start + share + (index < larger)])


def allocate_by_circle(queues: Sequence[MessageQueue], members: Sequence[str], member: str) -> list[MessageQueue]:
    """Strategy AVG_BY_CIRCLE: round-robin (``AllocateMessageQueueAveragelyByCircle``)."""
    return list(queues[members.index(member) :: len(members)])


Strategy = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]
STRATEGIES: dict[str, Strategy] = {"AVG": allocate_averagely, "AVG_BY_CIRCLE": allocate_by_circle}


def assign(
    queues: Sequence[MessageQueue], members: Sequence[str], member: str, strategy: Strategy, mode: RequestMode
) -> list[MessageQueue]:
    """Return the queues of a member of a clustering group. ``queues`` and ``members`` must be sorted."""
    if mode.mode == POP and (mode.share <= 0 or mode.share >= len(members) - 1):
        return list(dict.fromkeys(MessageQueue(queue.topic, queue.broker_name, ALL_QUEUES) for queue in queues))
    if member not in members or not queues:
        return []
    if mode.mode == PULL:
        return strategy(queues, members, member)
    index = members.index(member)
    if len(members) > len(queues):
        return [queues[index % len(queues)]]
    neighbours = [members[(index + step) % len(members)] for step in range(mode.share + 1)]
    return list(dict.fromkeys(queue for each in neighbours for queue in strategy(queues, members, each)))
