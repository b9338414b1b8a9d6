"""Creates a store with a log of a given size, without network access, and closes it cleanly."""

from __future__ import annotations

from pathlib import Path

from rich.progress import track

from bench.output import errors
from raptormq.storage import MessageStore, PendingRecord, StoreConfig

GROUP = 64
BODY_BYTES = 1024
QUEUES = 16
TOPIC = "large"


def fill_log(root: Path, log_bytes: int) -> int:
    """Create a store at `root` with about `log_bytes` of 1 KiB messages in 16 queues. Return the number of messages."""
    root.mkdir(parents=True)
    store = MessageStore(StoreConfig(root_dir=root))
    store.open()
    properties = b"UNIQ_KEY\x017F0000010A2B18B4AAC2515DE3F80000\x02WAIT\x01true\x02"
    host = b"\x7f\0\0\1\0\0\xd4\x31"
    groups = [
        [PendingRecord(TOPIC, queue, bytes(BODY_BYTES), properties, 0, 1_700_000_000_000, host)] * GROUP
        for queue in range(QUEUES)
    ]
    rounds = log_bytes // (GROUP * (BODY_BYTES + 150))
    for number in track(range(rounds), description="filling the log", console=errors):
        store.append(groups[number % QUEUES])
        store.dispatch()
    store.close()
    return rounds * GROUP


def count_messages(root: Path) -> int:
    """Return the number of messages in the queues of such a store. No other process may have it open."""
    store = MessageStore(StoreConfig(root_dir=root))
    store.open()
    try:
        return sum(store.queue_end(TOPIC, queue) for queue in range(QUEUES))
    finally:
        store.close()
