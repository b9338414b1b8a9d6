"""The process or the machine fails at each operation on the disk while the broker delivers. Every message that waits in
the remaining log is delivered exactly once.

A scripted run with ASYNC_FLUSH ends at operation 1, 2, 3, …; a failed write to the log has written a part of its group.
The remaining volume - after a kill, after a power failure, and after one that keeps any part of the unsynced writes -
is opened twice: by a broker that fails at once, and by one that delivers everything.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from raptormq.broker.config.config import TransactionSettings as Settings
from raptormq.broker.delay.delayed_message import to_delayed
from raptormq.broker.delay.delivery import DelayedDelivery
from raptormq.broker.delay.delivery_checkpointer import DeliveryCheckpointer
from raptormq.broker.delay.progress import DelayProgress, delays_file
from raptormq.broker.delay.timer_delivery import TimerDelivery
from raptormq.broker.delay.timer_message import set_timer
from raptormq.broker.delay.timer_progress import TimerProgressFile
from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.metrics.counters import Counters
from raptormq.broker.reput import ReputService
from raptormq.broker.tables.topics import TopicTable
from raptormq.broker.transaction.half_message import Producers, to_half
from raptormq.broker.transaction.transaction_service import GROUP, TransactionService
from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable
from raptormq.protocol.properties import REAL_TOPIC, find_property
from raptormq.protocol.record import StoredMessage
from raptormq.protocol.topic_names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from raptormq.storage import MessageStore
from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.queue.append_batches import PendingRecord
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem, SimulatedCrash
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, checkpoint, message, read_queue, small_config

LEVELS = 2
SECOND = 1_000
TORN = 0, 1, 300, 600
CONFIG = "/store/config"


class NobodyToAsk:
    """No producer is connected."""

    def next_producer(self, producers: Producers) -> None:
        """Return no producer."""

    def ask(self, producer: object, half: StoredMessage) -> None:
        """Never called."""
        raise AssertionError(producer)


class FlushedStore(MessageStore):
    """A store that flushes when a caller waits for it, instead of in a thread."""

    async def wait_flushed(self, end_offset: int) -> None:
        """See :class:`MessageStore`."""
        self.flush()


class Life:
    """The deliveries of a broker with a store on ``volume``, advanced by the test."""

    def __init__(self, volume: FileSystem, clock: Clock) -> None:
        self.clock = clock
        self.store = FlushedStore(small_config(segment_size=16_384), fs=volume, clock=clock)
        self.store.open()
        store = self.store
        writer = InternalWriter(store, ReputService(store), Counters())
        topics = TopicTable(TopicConfigTable({"t": TopicConfig("t")}), clock)
        delays = DelayProgress(delays_file(f"{CONFIG}/delayOffset.json", volume), clock)
        self.delayed = DelayedDelivery(store, writer, topics, delays, clock)
        self.timers = TimerDelivery(
            store, writer, topics, TimerProgressFile(volume, f"{CONFIG}/timercheck"), 100, clock
        )
        self.transactions = TransactionService(store, writer, topics, Settings(), NobodyToAsk(), clock)
        self.keeper = DeliveryCheckpointer(
            store, delays, self.timers, (self.delayed, self.transactions), {HALF_TOPIC: GROUP}
        )

    async def begin(self) -> None:
        """Load the state that earlier runs left."""
        await self.keeper.derive()
        self.delayed.start()
        self.timers.start()
        for task in (self.delayed._task, self.timers._task):
            assert task is not None
            task.cancel()
            await asyncio.wait([task])
        transactions = self.transactions
        await transactions._read_ops(await transactions._load_halves())
        await transactions._find_decided_copies()
        transactions._loading.finish()
        await transactions._write_missing_ops()
        await self.timers._index_new()
        self.store.dispatch()

    async def deliver(self) -> None:
        """Deliver everything that is due."""
        for level in range(1, LEVELS + 1):
            await self.delayed._deliver_level(level)
        await self.timers._index_new()
        while self.timers._due_now():
            await self.timers._deliver_group()
        self.store.dispatch()

    async def commit_open(self, most: int = 1_000) -> None:
        """Decide each open half message like its producer."""
        for half in read_queue(self.store, HALF_TOPIC):
            if most and self.transactions._half_index.is_open(half.queue_offset):
                await self.transactions.commit(half)
                self.store.dispatch()
                most -= 1

    async def ask_again(self, place: int) -> None:
        """Simulate the check of the oldest open half message."""
        halves = read_queue(self.store, HALF_TOPIC)
        pending_offsets = [half for half in halves if self.transactions._half_index.is_open(half.queue_offset)]
        await self.transactions.resume(pending_offsets[place])
        self.store.dispatch()

    def wait(self, name: str) -> None:
        """Send messages of every kind that waits."""
        now = self.clock()
        records: list[PendingRecord] = []
        for number in range(3):
            records += [
                to_delayed(message(f"level {name} {number}", "t"), 1 + number % LEVELS, LEVELS),
                set_timer(message(f"timer {name} {number}", "t"), now + number * SECOND),
                to_half(message(f"half {name} {number}", "t"), f"key {name} {number}"),
            ]
        self.store.append(records)
        self.transactions.arrived(self.store.dispatch())


async def script(volume: FileSystem, clock: Clock) -> None:
    """Two runs, most of whose state is saved late or not at all."""
    life = Life(volume, clock)
    await life.begin()
    life.wait("a")
    await life.deliver()  # nothing is due
    clock.now += 1 * SECOND
    await life.deliver()
    await life.commit_open(1)
    await life.keeper.save()
    life.wait("b")
    clock.now += 4 * SECOND
    await life.deliver()
    checkpoint(life.store)  # recoveries begin after the delivered messages
    await life.ask_again(0)
    await life.commit_open(2)
    clock.now += 4 * SECOND
    life.wait("c")
    await life.transactions._commit_progress()
    await life.deliver()
    await life.keeper.save(always_position=True)
    life.wait("d")
    clock.now += 10 * SECOND
    await life.deliver()
    life.store.flush()
    checkpoint(life.store)
    life.store.close()
    life = Life(volume, clock)
    await life.begin()
    life.wait("e")
    clock.now += 10 * SECOND
    await life.deliver()
    await life.commit_open(3)
    await life.keeper.save()


def waiting(store: MessageStore) -> set[bytes]:
    """Return the messages that must be delivered according to the log."""
    queues = [(SCHEDULE_TOPIC, queue_id) for queue_id in range(LEVELS)] + [(TIMER_TOPIC, 0), (HALF_TOPIC, 0)]
    found = [each for topic, queue_id in queues for each in read_queue(store, topic, queue_id)]
    assert all(find_property(each.properties, REAL_TOPIC) == "t" for each in found)
    return {each.body for each in found}


async def assert_once(volume: MemoryFileSystem, clock: Clock, where: str, *, holes: bool = False) -> None:
    """Open the volume with two brokers that fail at once and one that delivers everything. In a log with ``holes`` the
    waiting record, or the message of an existing decision, may be missing.
    """
    life = Life(volume, clock)
    await life.keeper.derive()
    await life.keeper.save(always_position=True)  # before the derived state is loaded
    volume = volume.after_kill()
    await Life(volume, clock).begin()
    life = Life(volume.after_kill(), clock)
    await life.begin()
    await life.commit_open()
    clock.now += 100 * SECOND
    await life.deliver()
    copies = Counter(each.body for each in read_queue(life.store, "t"))
    waited = waiting(life.store)
    if holes:
        assert set(copies.values()) <= {1}, where
        assert {body for body in waited if not body.startswith(b"half")} <= copies.keys(), where
    else:
        assert copies == Counter(waited), where
    life.store.close()


def operations() -> list[str]:
    volume = FaultyFileSystem(MemoryFileSystem())
    asyncio.run(script(volume, Clock()))
    return volume.operations


def live_until(nth: int, torn_bytes: int) -> tuple[MemoryFileSystem, Clock]:
    disk, clock = MemoryFileSystem(), Clock()
    disk.clock = clock
    with pytest.raises(SimulatedCrash):
        asyncio.run(script(FaultyFileSystem(disk, Fault(nth, torn_bytes=torn_bytes)), clock))
    return disk, clock


SCRIPT = operations()


def test_the_script_writes_what_it_is_about() -> None:
    assert sum(line.startswith("write /store/commitlog") for line in SCRIPT) > 20
    assert sum(line == f"replace {CONFIG}/delayOffset.json" for line in SCRIPT) > 3
    assert sum("timercheck" in line for line in SCRIPT) > 3


@pytest.mark.parametrize("part", range(8))
def test_a_crash_at_every_operation(part: int) -> None:
    for nth in range(part + 1, len(SCRIPT) + 1, 8):
        line = SCRIPT[nth - 1]
        for torn_bytes in TORN if line.startswith("write /store/commitlog") else (0,):
            disk, clock = live_until(nth, torn_bytes)
            where = f"operation {nth}, {line}, {torn_bytes} bytes written"
            asyncio.run(assert_once(disk.after_kill(), Clock(clock.now), f"{where}, kill"))
            asyncio.run(assert_once(disk.after_power_cut(), Clock(clock.now), f"{where}, power cut"))
            torn = disk.after_power_cut(random.Random(nth))
            asyncio.run(assert_once(torn, Clock(clock.now), f"{where}, torn power cut", holes=True))
