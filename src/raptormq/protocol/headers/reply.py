"""Header of PUSH_REPLY_MESSAGE_TO_CLIENT (326), by which a broker delivers a reply (324, 325) to the requester
(``ReplyMessageRequestHeader``).
"""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class ReplyMessageRequestHeader(Header):
    """326: the fields of the reply's send request, with hosts as ``ip:port`` and times in ms. The body is that of the
    reply.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    born_host: str
    store_host: str
    store_timestamp: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool = False
