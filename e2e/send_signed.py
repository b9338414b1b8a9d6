"""Runs in a pod: sends message after message with the credentials of its environment until /tmp/stop is there.

    python send_signed.py NAME_SERVERS TOPIC

Then one line of JSON says how many were acknowledged and found again, what failed on the way, and the longest time
without an acknowledgement. A message is sent again until it is acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path

from raptormq.client import Message, Producer, PullConsumer, SendStatus
from raptormq.errors import RaptorMQError

PACE_S = 0.02
STOP = Path("/tmp/stop")


async def main(name_servers: str, topic: str) -> None:
    """Sends, then reads everything."""
    failures: Counter[str] = Counter()
    acknowledged: set[str] = set()
    longest, last = 0.0, time.monotonic()
    async with Producer("e2e-signed", name_servers=name_servers) as producer:
        number = 0
        while not STOP.exists():
            try:
                result = await producer.send(Message(topic, b"signed", keys=(str(number),)))
            except RaptorMQError as error:
                failures[f"{type(error).__name__}: {error}"[:120]] += 1
                await asyncio.sleep(PACE_S)
                continue
            if result.status is SendStatus.SEND_OK:
                acknowledged.add(str(number))
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
                number += 1
            await asyncio.sleep(PACE_S)
    missing = acknowledged - await stored(name_servers, topic)
    told = {"acknowledged": len(acknowledged), "missing": len(missing), "longest_gap_s": round(longest, 2)}
    print(json.dumps(told | {"failures": failures}), flush=True)


async def stored(name_servers: str, topic: str) -> set[str]:
    """Keys of all messages of the topic."""
    keys: set[str] = set()
    async with PullConsumer(name_servers=name_servers) as consumer:
        for queue in await consumer.queues(topic):
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset)
                keys.update(key for message in result.messages() for key in message.keys)
                offset = result.next_offset
    return keys


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
