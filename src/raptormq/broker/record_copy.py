"""A message of the log as it is written again: retried, due, asked about, or popped and not acknowledged."""

from __future__ import annotations

from raptormq.broker.delivered.origin import origin_field
from raptormq.broker.send.tag_code import tag_code
from raptormq.protocol.record import StoredMessage
from raptormq.storage.log_batch import PendingRecord


def record_copy(
    message: StoredMessage, topic: str, queue_id: int, properties: str, retries: int = 0, *, once: bool = False
) -> PendingRecord:
    """Return ``message`` for another place, with other properties (text form) and so many more reconsume times; body,
    flags and birth stay. A copy that is to be made ``once`` names its origin; else that of ``message`` is forgotten.
    """
    text = properties.encode()
    return PendingRecord(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        properties=text,
        tag_code=tag_code(text),
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times + retries,
        prepared_transaction_offset=origin_field(message.physical_offset) if once else 0,
    )
