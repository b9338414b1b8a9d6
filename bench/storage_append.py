"""Cost of the store per message: append and dispatch of groups, and reading. Without network, in one process.

python bench/storage_append.py [--messages 400000] [--group 32] [--body 1024] [--queues 8] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import tempfile
import time
from pathlib import Path

from raptormq.storage import MessageStore, PendingRecord, StoreConfig
from raptormq.storage.read import ReadOptions


def _groups(body: bytes, group: int, queues: int) -> list[list[PendingRecord]]:
    """Return ``queues`` groups as the broker creates them. The records are shared; only offsets differ."""
    properties = b"UNIQ_KEY\x017F0000010A2B18B4AAC2515DE3F80000\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    host = b"\x7f\0\0\1\0\0\xd4\x31"
    return [
        [PendingRecord("bench", queue_id, body, properties, 2598919, 1_700_000_000_000, host) for _ in range(group)]
        for queue_id in range(queues)
    ]


def _append(store: MessageStore, groups: list[list[PendingRecord]], rounds: int) -> None:
    append, dispatch = store.append, store.dispatch
    for number in range(rounds):
        append(groups[number % len(groups)])
        dispatch()


def _read(store: MessageStore, queues: int, group: int) -> int:
    count = 0
    for queue_id in range(queues):
        offset, end = 0, store.queue_end("bench", queue_id)
        while offset < end:
            result = store.get_messages("bench", queue_id, offset, ReadOptions(group, 1 << 20))
            offset = result.next_offset
            count += result.message_count
    return count


def main() -> None:
    """Run append and read once each, and print microseconds per message."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    rounds = options.messages // options.group
    groups = _groups(os.urandom(options.body), options.group, options.queues)
    with tempfile.TemporaryDirectory(prefix="raptormq-bench-") as folder:
        store = MessageStore(StoreConfig(Path(folder)))
        store.open()
        profile = cProfile.Profile()
        if options.profile:
            profile.enable()
        wall, cpu = time.perf_counter(), time.process_time()
        _append(store, groups, rounds)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        profile.disable()
        messages = rounds * options.group
        print(f"append + dispatch  {wall / messages * 1e6:6.2f} us/message, cpu {cpu / messages * 1e6:6.2f}")
        wall, cpu = time.perf_counter(), time.process_time()
        count = _read(store, options.queues, options.group)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"read               {wall / count * 1e6:6.2f} us/message, cpu {cpu / count * 1e6:6.2f}")
        if options.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(12)
        store.close()
        store = MessageStore(StoreConfig(Path(folder)))
        print(f"start after a clean stop  {store.open().milliseconds} ms")
        wall, cpu = time.perf_counter(), time.process_time()
        count = _read(store, options.queues, options.group)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"read, not hot      {wall / count * 1e6:6.2f} us/message, cpu {cpu / count * 1e6:6.2f}")
        store.close()


if __name__ == "__main__":
    main()
