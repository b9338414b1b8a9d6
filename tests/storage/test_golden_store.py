"""A store written by Apache RocketMQ 5.3.3 can be opened, and RaptorMQ writes the same bytes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from raptormq.protocol.properties import TAGS, decode_properties
from raptormq.protocol.record import iter_records
from raptormq.protocol.tags import tag_hash
from raptormq.storage import MessageStore, PendingRecord, StoreConfig
from raptormq.storage.read.options import ReadOptions
from raptormq.storage.recovery.checkpoint_file import Checkpoint, decode_checkpoint
from tests.storage.stores import Clock, queue_bounds

GOLDEN = Path(__file__).parents[1] / "golden" / "store"
SEGMENT_BYTES = 1 << 20
LOG = (GOLDEN / "commitlog.bin").read_bytes()
ITEMS = (GOLDEN / "consumequeue.bin").read_bytes()
MESSAGES: list[dict[str, Any]] = json.loads((GOLDEN / "messages.json").read_bytes())
QUEUE_STARTS: dict[str, int] = json.loads((GOLDEN / "queues.json").read_bytes())


def queue_items() -> dict[str, bytes]:
    """Return the items of each queue by "topic/queue id"."""
    ends = sorted([*QUEUE_STARTS.values(), len(ITEMS)])
    return {name: ITEMS[start : ends[ends.index(start) + 1]] for name, start in QUEUE_STARTS.items()}


def lay_out(root: Path, *, with_queues: bool = True) -> StoreConfig:
    """Write the golden bytes as a store with files of full size."""

    def write(path: Path, data: bytes, size: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(data)
            file.truncate(size)

    write(root / "commitlog" / ("0" * 20), LOG, SEGMENT_BYTES)
    for name, items in queue_items().items() if with_queues else ():
        write(root / "consumequeue" / name / ("0" * 20), items, 6_000_000)
    write(root / "checkpoint", (GOLDEN / "checkpoint.bin").read_bytes(), 4096)
    write(root / "config" / "consumerOffset.json", (GOLDEN / "consumerOffset.json").read_bytes(), 405)
    return StoreConfig(root, segment_size=SEGMENT_BYTES)


def assert_holds_golden_messages(store: MessageStore) -> None:
    raw = b""
    for name in queue_items():
        topic, _, queue_id = name.rpartition("/")
        low, high = queue_bounds(store, topic, int(queue_id))
        result = store.get_messages(topic, int(queue_id), low, ReadOptions(32, 1 << 20))
        assert result.message_count == high - low
        raw += b"".join(result.buffers)
    stored = sorted(iter_records(raw), key=lambda each: each.physical_offset)
    expected = [each for each in MESSAGES if f"{each['topic']}/{each['queueId']}" in QUEUE_STARTS]
    assert [each.body for each in stored] == [base64.b64decode(each["body"]["base64"]) for each in expected]
    assert [each.topic for each in stored] == [each["topic"] for each in expected]
    assert [decode_properties(each.properties) for each in stored] == [each["properties"] for each in expected]


def test_a_cleanly_stopped_store_opens(tmp_path: Path) -> None:
    config = lay_out(tmp_path)
    store = MessageStore(config)
    report = store.open()
    assert (report.clean, report.end_offset, report.damaged) == (True, len(LOG), [])
    assert_holds_golden_messages(store)
    assert store.consumer_offsets.get("golden", "golden_pusher", 0) == 7
    store.close()


@pytest.mark.parametrize("with_queues", [True, False])
def test_after_a_crash_the_queues_are_rebuilt_byte_for_byte(tmp_path: Path, with_queues: bool) -> None:
    config = lay_out(tmp_path, with_queues=with_queues)
    (tmp_path / "abort").write_text("123")
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    store = MessageStore(config)
    report = store.open()
    assert (report.clean, report.records, report.end_offset) == (False, len(MESSAGES), len(LOG))
    assert_holds_golden_messages(store)
    store.close()
    for name, items in queue_items().items():
        data = (tmp_path / "consumequeue" / name / ("0" * 20)).read_bytes()
        assert data.rstrip(b"\0") == items.rstrip(b"\0")
        assert len(data) == 6_000_000


def test_the_same_messages_appended_here_have_the_same_bytes(tmp_path: Path) -> None:
    clock = Clock()
    store = MessageStore(StoreConfig(tmp_path, segment_size=SEGMENT_BYTES), clock=clock)
    store.open()
    for stored, known in zip(iter_records(LOG), MESSAGES, strict=True):
        store.set_store_host(stored.store_host)
        clock.now = stored.store_timestamp
        result = store.append(
            [
                PendingRecord(
                    stored.topic,
                    stored.queue_id,
                    stored.body,
                    stored.properties.encode(),
                    tag_hash(decode_properties(stored.properties).get(TAGS)),
                    stored.born_timestamp,
                    stored.born_host,
                    stored.flag,
                    stored.sys_flag,
                    stored.reconsume_times,
                    stored.prepared_transaction_offset,
                )
            ]
        )
        assert result.physical_offsets == [known["commitLogOffset"]]
        assert result.sizes == [known["storeSize"]]
    store.dispatch()
    store.close()
    assert (tmp_path / "commitlog" / ("0" * 20)).read_bytes()[: len(LOG) + 100] == LOG + bytes(100)
    for name in ("golden/0", "%RETRY%golden_pusher/0"):
        written = (tmp_path / "consumequeue" / name / ("0" * 20)).read_bytes()
        assert written.rstrip(b"\0") == queue_items()[name].rstrip(b"\0")


def test_the_checkpoint_reads_and_writes_the_same() -> None:
    data = (GOLDEN / "checkpoint.bin").read_bytes()
    checkpoint = decode_checkpoint(data)
    assert checkpoint.log_timestamp == MESSAGES[-1]["storeTimestamp"] == checkpoint.queue_timestamp
    checksum = slice(504, 512)
    assert data[checksum] == bytes(8)
    assert checkpoint.encode() == data[: checksum.start] + checkpoint.encode()[checksum] + data[checksum.stop :]
    assert decode_checkpoint(b"short") == Checkpoint()
