"""The process or the machine dies at every single operation on the disk while the broker delivers: what waits in the
log that is left comes once, neither twice nor never.

One scripted life under ASYNC_FLUSH is cut short at operation 1, 2, 3, …; a write to the log that is hit has written a
part of its group. What is left then - after a kill, after a power cut, after one that let any part of the un-synced
writes through - is opened twice more: by a broker that dies before it does anything, and by one that delivers all.
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
    """No producer is connected (Questions)."""

    def next_producer(self, producers: Producers) -> None:
        """Nobody."""

    def ask(self, producer: object, half: StoredMessage) -> None:
        """Never called."""
        raise AssertionError(producer)


class FlushedStore(MessageStore):
    """Flushes when somebody waits for that; else a thread does."""

    async def wait_flushed(self, end_offset: int) -> None:
        """See :class:`MessageStore`."""
        self.flush()


class Life:
    """A broker's deliveries around a store on ``volume``, moved by hand."""

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
        """Take up what earlier lives left."""
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
        """Everything that is due."""
        for level in range(1, LEVELS + 1):
            await self.delayed._deliver_level(level)
        await self.timers._index_new()
        while self.timers._due_now():
            await self.timers._deliver_group()
        self.store.dispatch()

    async def commit_open(self, most: int = 1_000) -> None:
        """What its producer would say about each half that is open."""
        for half in read_queue(self.store, HALF_TOPIC):
            if most and self.transactions._half_index.is_open(half.queue_offset):
                await self.transactions.commit(half)
                self.store.dispatch()
                most -= 1

    async def ask_again(self, place: int) -> None:
        """What a question does to the half that is open and was the first to be."""
        halves = read_queue(self.store, HALF_TOPIC)
        pending_offsets = [half for half in halves if self.transactions._half_index.is_open(half.queue_offset)]
        await self.transactions.resume(pending_offsets[place])
        self.store.dispatch()

    def wait(self, name: str) -> None:
        """Messages of every kind that wait from now on."""
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
    """Two lives; most of what they do is saved late, or not at all."""
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
    checkpoint(life.store)  # recoveries begin behind what was delivered
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
    """What the log says is to be delivered."""
    queues = [(SCHEDULE_TOPIC, queue_id) for queue_id in range(LEVELS)] + [(TIMER_TOPIC, 0), (HALF_TOPIC, 0)]
    found = [each for topic, queue_id in queues for each in read_queue(store, topic, queue_id)]
    assert all(find_property(each.properties, REAL_TOPIC) == "t" for each in found)
    return {each.body for each in found}


async def assert_once(volume: MemoryFileSystem, clock: Clock, where: str, *, holes: bool = False) -> None:
    """Two brokers that die at once, and another one that delivers everything. In a log with ``holes`` the
    record that waited may be gone, or the message of a decision that is there."""
    life = Life(volume, clock)
    await life.keeper.derive()
    await life.keeper.save(always_position=True)  # before anybody has taken up what was derived
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
