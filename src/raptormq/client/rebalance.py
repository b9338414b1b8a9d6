"""Which member of a consumer group reads which queues: the "AVG" strategy, pure.

There is no coordinator: every member computes the same answer from the same two lists, so members written in
different languages may share a group only when they agree on the order of the lists and on the arithmetic.
Neighbour: `rebalancing` feeds it with routes and member lists. Source: RocketMQ `AllocateMessageQueueAveragely`.
"""

from __future__ import annotations

from collections.abc import Iterable

from raptormq.protocol.message import MessageQueue


def allocate_averagely(queues: Iterable[MessageQueue], client_ids: Iterable[str], client_id: str) -> list[MessageQueue]:
    """Return the queues that `client_id` reads, in order.

    Over all of `client_ids` every queue appears exactly once, shares are contiguous and differ by at most one, and the
    first members get the larger ones. A client that is not in the list reads nothing: the broker does not know it yet.
    """
    members = sorted(set(client_ids), key=_utf16)
    ordered = sorted(set(queues), key=lambda queue: (_utf16(queue.topic), _utf16(queue.broker_name), queue.queue_id))
    if client_id not in members or not ordered:
        return []
    index = members.index(client_id)
    share, larger_shares = divmod(len(ordered), len(members))
    if index < larger_shares:
        start = index * (share + 1)
        return ordered[start : start + share + 1]
    start = index * share + larger_shares
    return ordered[start : start + share]


def _utf16(text: str) -> bytes:
    # Java compares UTF-16 units, Python code points; they differ for characters beyond U+FFFF.
    return text.encode("utf-16-be", "surrogatepass")
