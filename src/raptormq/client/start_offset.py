"""Where a group starts in a queue: where it stands, else where its settings say.

What a broker answers to members of a group without progress depends on the age of the queue: offset 0 while the first
message is still there, so that a group on a young topic misses nothing, else "not found", and only then the settings
count. A reader that was told where to start asks for stored progress alone. Brokers know no progress of a broadcasting
member, so there the settings alone count, on young topics too.
Neighbours: `queue_reader`, `pull_consumer`. Source: RocketMQ `RebalancePushImpl.computePullFromWhereWithException`.
"""

from __future__ import annotations

from raptormq.client.config import ConsumeFromWhere
from raptormq.client.offsets import OffsetRequests, QueueOffset
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import RETRY_PREFIX


async def start_offset(
    offsets: OffsetRequests,
    address: str,
    group: str | None,
    queue: MessageQueue,
    consume_from: ConsumeFromWhere,
    consume_from_ms: int = 0,
    *,
    zero_on_young_topic: bool = False,
) -> QueueOffset:
    """Return the first offset to read; without a group there is no progress and the settings decide.

    Raises:
        TransportError, ServerError: the broker does not answer, or refuses.
    """
    if group is not None:
        committed = await offsets.committed(address, group, queue, zero_on_young_topic=zero_on_young_topic)
        if committed is not None:
            return committed
    if queue.topic.startswith(RETRY_PREFIX):
        return QueueOffset(0, None)
    if consume_from is ConsumeFromWhere.LAST:
        return await offsets.max_offset(address, queue)
    if consume_from is ConsumeFromWhere.TIMESTAMP:
        return await offsets.offset_by_time(address, queue, consume_from_ms)
    return await offsets.min_offset(address, queue)
