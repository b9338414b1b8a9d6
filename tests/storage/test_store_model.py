"""The store compared with a small model, with random appends, reads, flushes, restarts, kills and power failures."""

from __future__ import annotations

import random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raptormq.protocol.record import iter_records
from raptormq.protocol.tags import tag_hash
from raptormq.storage import FlushDiskType, GetStatus, MessageStore
from raptormq.storage.read.options import ReadOptions
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, message, queue_bounds, small_config

TOPICS = ("topic", "%RETRY%group")
TAGS = ("", "A", "B")
Message = tuple[str, int, str, str]
messages = st.tuples(
    st.sampled_from(TOPICS), st.integers(0, 2), st.sampled_from(TAGS), st.integers(0, 700).map(lambda size: "x" * size)
)


class StoreMachine(RuleBasedStateMachine):
    """`queues` has the messages that consumers must see. Appended messages that are not durable may be lost by a power
    failure.
    """

    def __init__(self) -> None:
        super().__init__()
        self.volume = MemoryFileSystem()
        self.clock = Clock()
        self.queues: dict[tuple[str, int], list[tuple[str, str]]] = {}
        self.number = 0
        self.durable = 0
        self.has_holes = False
        self.log: list[Message] = []
        self.store: MessageStore

    @initialize(sync=st.booleans())
    def start(self, sync: bool) -> None:
        flush_disk_type = FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH
        self.config = small_config(flush_disk_type=flush_disk_type, resident_bytes=3000, max_open_queue_files=2)
        self.open()

    def open(self) -> None:
        self.store = MessageStore(self.config, fs=self.volume, clock=self.clock)
        report = self.store.open()
        assert self.has_holes or report.damaged == []
        self.durable = len(self.log)

    @rule(group=st.lists(messages, min_size=1, max_size=6), pause=st.integers(0, 5000))
    def append(self, group: list[Message], pause: int) -> None:
        self.clock.now += pause
        named = []
        for topic, queue_id, tag, body in group:
            self.number += 1
            named.append((topic, queue_id, tag, f"{self.number} {body}"))
        self.store.append([message(body, topic, queue_id, tag) for topic, queue_id, tag, body in named])
        self.log += named
        if self.store.confirmed_offset == self.store.end_offset:
            self.store.dispatch()

    @rule()
    def flush(self) -> None:
        self.store.flush()
        self.store.dispatch()
        self.durable = len(self.log)

    @rule(limit=st.integers(1, 4))
    def write_tails(self, limit: int) -> None:
        self.store._queues.flush(limit)

    @rule()
    def checkpoint(self) -> None:
        assert self.store._opened is not None
        self.flush()
        self.store._opened.maintenance.flush_all()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.open()

    @rule()
    def kill(self) -> None:
        self.volume = self.volume.after_kill()
        self.open()

    @rule(torn=st.none() | st.integers(0, 1 << 16))
    def cut_power(self, torn: int | None) -> None:
        acknowledged = self.log[: self.durable]
        self.volume = self.volume.after_power_cut(None if torn is None else random.Random(torn))
        self.store = MessageStore(self.config, fs=self.volume, clock=self.clock)
        self.has_holes |= bool(self.store.open().damaged)
        survivors = {body for _, _, _, body in self.served()}
        assert {body for _, _, _, body in acknowledged} <= survivors
        self.log = [each for each in self.log if each[3] in survivors]
        self.durable = len(self.log)

    def served(self) -> list[Message]:
        found: list[tuple[int, Message]] = []
        for topic in self.store.topics():
            for queue_id in self.store.queue_ids(topic):
                offset, end = queue_bounds(self.store, topic, queue_id)
                while offset < end:
                    result = self.store.get_messages(topic, queue_id, offset, ReadOptions(3, 2000))
                    assert result.next_offset > offset
                    for each in iter_records(b"".join(result.buffers)):
                        tag = each.properties[5:-1]
                        found.append((each.physical_offset, (each.topic, each.queue_id, tag, each.body.decode())))
                    offset = result.next_offset
        return [each for _, each in sorted(found)]

    @invariant()
    def consumers_see_the_log(self) -> None:
        visible = len(self.served())
        assert self.served() == self.log[:visible]
        assert visible >= (self.durable if self.store._confirmation._waits_for_flush else len(self.log))

    @invariant()
    def filters_find_the_same(self) -> None:
        wanted = [each for each in self.served() if each[:3] == ("topic", 0, "A")]
        offset, end = queue_bounds(self.store, "topic", 0)
        count = 0
        while offset < end:
            result = self.store.get_messages("topic", 0, offset, ReadOptions(2, 1 << 20, frozenset({tag_hash("A")})))
            assert result.status in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING)
            count += result.message_count
            offset = result.next_offset
        assert count == len(wanted)


TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
