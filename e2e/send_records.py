"""Program that runs in a pod and sends each of the first COUNT records until a broker acknowledges it.

    python send_records.py RECORDS.json.gz NAME_SERVERS TOPIC PACE COUNT STOP

The second half is sent in small chunks with PACE seconds between two of them until the file STOP exists, so that sends
fail while a broker is down. The key of a message is the number of its record. A record whose response was lost is sent
again, so readers must remove duplicates by key. Lines of the output are JSON.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raptormq.client import Message, Producer, SendStatus
from raptormq.errors import RaptorMQError

CHUNK, SMALL_CHUNK = 100, 10
RETRY_S = 0.1

failures: Counter[str] = Counter()


def say(**values: Any) -> None:
    """Print one line for the test."""
    print(json.dumps(values), flush=True)


async def send(producer: Producer, topic: str, number: int, record: dict[str, Any]) -> str:
    """Send one record until it is acknowledged. Return the broker that stored it."""
    body = json.dumps({"number": number, **record}).encode()
    while True:
        try:
            result = await producer.send(Message(topic, body, keys=(str(number),)))
        except RaptorMQError as error:
            failures[type(error).__name__] += 1
        else:
            if result.status is SendStatus.SEND_OK:
                return result.queue.broker_name
            failures[result.status.name] += 1  # a master without a slave stores the message before it refuses the send
        await asyncio.sleep(RETRY_S)


async def send_chunk(producer: Producer, topic: str, chunk: Sequence[tuple[int, dict[str, Any]]]) -> list[str]:
    """Send records concurrently. Return the brokers that stored them."""
    return await asyncio.gather(*(send(producer, topic, number, record) for number, record in chunk))


async def main(path: str, name_servers: str, topic: str, pace_s: str, count: str, stop: str) -> None:
    """Send the first records of a file."""
    records: list[dict[str, Any]] = json.loads(gzip.decompress(Path(path).read_bytes()))[: int(count)]
    by_broker: Counter[str] = Counter()
    async with Producer("e2e", name_servers=name_servers) as producer:
        numbered = list(enumerate(records))
        half, start = len(records) // 2, 0
        while start < len(records):
            end = min(start + CHUNK, half) if start < half else start + (CHUNK if Path(stop).exists() else SMALL_CHUNK)
            by_broker.update(await send_chunk(producer, topic, numbered[start:end]))
            start = end
            if start == half:
                say(half=half)
            if start >= half and not Path(stop).exists():
                await asyncio.sleep(float(pace_s))
    say(acknowledged=by_broker.total(), by_broker=by_broker, failures=failures)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
