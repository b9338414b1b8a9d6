"""The body of BATCH_ACK_MESSAGE (200151), as clients of Apache RocketMQ encode it (``BatchAckMessageRequestBody``)."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from raptormq.protocol.bodies.pop import BatchAck
from raptormq.protocol.bodies.tolerant_json import dumps


def encode_batch_acks(broker_name: str, acks: Sequence[BatchAck]) -> bytes:
    """Return the body of 200151."""
    rows = [
        {
            "b": _bits(ack), "c": ack.group, "it": 0, "pt": ack.pop_time, "q": ack.queue_id, "r": ack.kind,
            "rq": ack.revive_queue, "so": ack.start_offset, "t": ack.topic,
        }
        for ack in acks
    ]  # fmt: skip
    return dumps({"acks": rows, "brokerName": broker_name})


def _bits(ack: BatchAck) -> str:
    bits = sum(1 << (offset - ack.start_offset) for offset in ack.offsets)
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
