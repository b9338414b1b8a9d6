"""Runs in a pod: sends every record until a broker has acknowledged it, and says when half of them are.

    python send_records.py RECORDS.json.gz NAME_SERVERS TOPIC

The second half is paced, so that a broker which is taken away at that moment is missed for a while. The key of a
message is the number of its record; a record whose answer was lost is sent again, so a reader has to remove
duplicates by key. Lines of the output are JSON.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from raptormq.client import Message, Producer, SendStatus
from raptormq.errors import RaptorMQError

CHUNK = 100
PACE_S = 0.25
"""Time between two chunks of the second half: 10,000 records in 25 s."""
RETRY_S = 0.1

failures: Counter[str] = Counter()


def say(**values: Any) -> None:
    """One line for the harness."""
    print(json.dumps(values), flush=True)


async def send(producer: Producer, topic: str, number: int, record: dict[str, Any]) -> str:
    """Sends one record until it is acknowledged; returns the broker that has it."""
    body = json.dumps({"number": number, **record}).encode()
    while True:
        try:
            result = await producer.send(Message(topic, body, keys=(str(number),)))
        except RaptorMQError as error:
            failures[type(error).__name__] += 1
            await asyncio.sleep(RETRY_S)
            continue
        if result.status is SendStatus.SEND_OK:
            return result.queue.broker_name
        failures[result.status.name] += 1


async def main(path: str, name_servers: str, topic: str) -> None:
    """Sends all records of a file."""
    records: list[dict[str, Any]] = json.loads(gzip.decompress(Path(path).read_bytes()))
    by_broker: Counter[str] = Counter()
    async with Producer("e2e", name_servers=name_servers) as producer:
        for start in range(0, len(records), CHUNK):
            chunk = enumerate(records[start : start + CHUNK], start)
            by_broker.update(await asyncio.gather(*(send(producer, topic, number, each) for number, each in chunk)))
            if start == len(records) // 2:
                say(half=start)
            if start >= len(records) // 2:
                await asyncio.sleep(PACE_S)
    say(acknowledged=by_broker.total(), by_broker=by_broker, failures=failures)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
