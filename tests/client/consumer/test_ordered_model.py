"""A model of a group that consumes in order, with a broker in memory: random keys, failures, delays, rebalances,
pauses, lost locks and crashes.

In every run, a message is first delivered after all earlier messages of its key are complete, at most one call per key
runs in the group, no committed offset is past unfinished messages, and finally all messages are complete.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import cast

import pytest

from raptormq.client import ConsumerConfig, ConsumeResult, MessageExt, MessageQueue, Order
from raptormq.client.consumer.ordered_pool import OrderedPool
from raptormq.client.consumer.process_queue import ProcessQueue, RunningCalls
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.interceptors import ConsumeChain
from raptormq.protocol.properties import SHARDING_KEY

QUEUES = [MessageQueue("t", "broker-0", number) for number in range(3)]
KEYS = ["a", "b", "c", "d", "e", "f", None]
MESSAGES = 120


@dataclass
class Broker:
    """Queues, committed offsets, and the processing of every message."""

    random: random.Random
    order: Order
    logs: dict[MessageQueue, list[str | None]] = field(default_factory=lambda: {queue: [] for queue in QUEUES})
    """The key of each message."""
    committed: dict[MessageQueue, int] = field(default_factory=lambda: dict.fromkeys(QUEUES, 0))
    done: dict[MessageQueue, set[int]] = field(default_factory=lambda: defaultdict(set))
    begun: dict[MessageQueue, set[int]] = field(default_factory=lambda: defaultdict(set))
    dead: int = 0
    failed: int = 0
    violations: list[str] = field(default_factory=list)
    running: dict[object, tuple[Member, MessageExt]] = field(default_factory=dict)

    def append(self) -> None:
        key = self.random.choice(KEYS)
        place = self.random.randrange(3) if key is None else KEYS.index(key) % 3
        self.logs[QUEUES[place]].append(key)

    def message(self, queue: MessageQueue, offset: int) -> MessageExt:
        key = self.logs[queue][offset]
        properties = {} if key is None else {SHARDING_KEY: key}
        return MessageExt("t", b"", properties, queue, offset, offset, f"{queue}/{offset}", "", 0, 0)

    def lane(self, message: MessageExt) -> object:
        return message.queue, self.logs[message.queue][message.queue_offset] if self.order is Order.BY_KEY else None

    def earlier(self, message: MessageExt) -> list[int]:
        lane = self.lane(message)
        before = (self.message(message.queue, offset) for offset in range(message.queue_offset))
        return [each.queue_offset for each in before if self.lane(each) == lane]

    def begin(self, member: Member, messages: list[MessageExt]) -> None:
        lane = self.lane(messages[0])
        if lane in self.running:
            self.violations.append(f"two calls of {lane} at once")
        self.running[lane] = member, messages[0]
        before: set[int] = set()
        for message in messages:
            queue, offset = message.queue, message.queue_offset
            if offset not in self.begun[queue]:
                missing = set(self.earlier(message)) - self.done[queue] - before
                if missing:
                    self.violations.append(f"{message.message_id} was delivered before {missing}")
            before.add(offset)
        for message in messages:
            self.begun[message.queue].add(message.queue_offset)

    def end(self, messages: list[MessageExt], *, consumed: bool) -> None:
        self.running.pop(self.lane(messages[0]), None)
        if consumed:
            for message in messages:
                self.done[message.queue].add(message.queue_offset)

    def commit(self, queue: MessageQueue, offset: int) -> None:
        unfinished = set(range(offset)) - self.done[queue]
        if unfinished:
            self.violations.append(f"{offset} of {queue} is committed, and {unfinished} are not done")
        self.committed[queue] = offset


class Reader:
    """Replacement for a queue reader."""

    def __init__(self, member: Member, queue: MessageQueue, offset: int) -> None:
        self.member, self.queue = member, queue
        self.is_paused, self.locked_until = False, math.inf
        self.calls = RunningCalls()
        self.process_queue = ProcessQueue(offset)

    def complete(self, process_queue: ProcessQueue, offset: int) -> None:
        process_queue.complete(offset)

    def fetch(self, count: int) -> None:
        broker, begin = self.member.broker, self.process_queue.next_offset
        messages = [broker.message(self.queue, at) for at in range(begin, len(broker.logs[self.queue]))][:count]
        for message in messages:
            assert self.process_queue.add(message.queue_offset, 1)
        self.member.pool.submit(cast("QueueReader", self), self.process_queue, messages)

    def commit(self) -> None:
        if not self.process_queue.dropped:
            self.member.broker.commit(self.queue, self.process_queue.commit_offset)

    def release(self) -> None:
        self.member.pool.resume(cast("QueueReader", self))


class Member:
    """One consumer of the group. It gives up a message after two retries."""

    def __init__(self, broker: Broker, config: ConsumerConfig) -> None:
        self.broker = broker
        self.readers: dict[MessageQueue, Reader] = {}
        self.pool = OrderedPool(
            config, "g", lambda _: self.consume, ConsumeChain("g", ()), cast("Redelivery", self), lambda _: None
        )
        self.pool.start()

    async def consume(self, messages: list[MessageExt]) -> ConsumeResult:
        broker = self.broker
        broker.begin(self, messages)
        consumed = False
        try:
            for _ in range(broker.random.randrange(4)):
                await asyncio.sleep(0)
            consumed = broker.random.random() < 0.7
            broker.failed += not consumed
            if not consumed and broker.random.random() < 0.5:
                raise ValueError("as planned")
        finally:
            broker.end(messages, consumed=consumed)
        return ConsumeResult.SUCCESS if consumed else ConsumeResult.RECONSUME_LATER

    async def dead_letter(self, message: MessageExt) -> bool:
        await asyncio.sleep(0)
        if self.broker.random.random() < 0.3:
            return False
        self.broker.dead += 1
        self.broker.done[message.queue].add(message.queue_offset)
        return True

    def read(self, queue: MessageQueue) -> None:
        self.readers[queue] = Reader(self, queue, self.broker.committed[queue])

    async def give_up(self, queue: MessageQueue) -> None:
        """Revoke the queue, wait for the calls, and commit, as the handover does before it unlocks a queue."""
        reader = self.readers.pop(queue)
        reader.process_queue.revoked = True
        reader.release()
        assert await reader.calls.wait_idle(None)
        reader.commit()
        reader.process_queue.dropped = True

    async def crash(self) -> list[MessageQueue]:
        """End without a commit."""
        for worker in self.pool.workers:
            worker.cancel()
        await self.pool.stop(0)
        queues, self.readers = list(self.readers), {}
        return queues


class Model:
    """A group of two members, and its events."""

    def __init__(self, seed: int, order: Order) -> None:
        self.random = random.Random(seed)
        self.broker = Broker(self.random, order)
        self.config = ConsumerConfig(
            order=order,
            concurrency=self.random.choice([1, 2, 8]),
            consume_batch=self.random.choice([1, 1, 3]),
            max_reconsume_times=2,
            retry_pause=0.0001,
            longest_retry_pause=0.0004,
        )
        self.members = [Member(self.broker, self.config) for _ in range(2)]
        for queue in QUEUES:
            self.random.choice(self.members).read(queue)
        self.actions = [self.fetch] * 8 + [self.commit] * 2 + [self.move, self.crash, self.pause, self.lock, self.reset]

    def reader(self) -> Reader:
        queue = self.random.choice(QUEUES)
        return next(member.readers[queue] for member in self.members if queue in member.readers)

    async def fetch(self) -> None:
        self.reader().fetch(self.random.randrange(1, 9))

    async def commit(self) -> None:
        self.reader().commit()

    async def move(self) -> None:
        reader = self.reader()
        await reader.member.give_up(reader.queue)
        self.random.choice(self.members).read(reader.queue)

    async def crash(self) -> None:
        victim = self.random.choice(self.members)
        self.members.remove(victim)
        queues = await victim.crash()
        self.members.append(Member(self.broker, self.config))
        for queue in queues:
            self.random.choice(self.members).read(queue)

    async def pause(self) -> None:
        reader = self.reader()
        reader.is_paused = not reader.is_paused
        if not reader.is_paused:
            reader.release()

    async def lock(self) -> None:
        reader = self.reader()
        reader.locked_until = -math.inf if reader.locked_until == math.inf else math.inf
        if reader.locked_until == math.inf:
            reader.release()

    async def reset(self) -> None:
        """Fetch again from the committed offset, as after an offset that is invalid at the broker."""
        reader = self.reader()
        reader.process_queue.dropped = True
        reader.process_queue = ProcessQueue(self.broker.committed[reader.queue])
        reader.release()

    async def run(self) -> None:
        for _ in range(MESSAGES):
            self.broker.append()
            await self.random.choice(self.actions)()
            for _ in range(self.random.randrange(6)):
                await asyncio.sleep(0)
        readers = [reader for member in self.members for reader in member.readers.values()]
        for reader in readers:
            reader.is_paused, reader.locked_until = False, math.inf
            reader.release()
            reader.fetch(MESSAGES)
        while any(reader.process_queue.unfinished_messages for reader in readers):
            await asyncio.sleep(0.0002)
        for reader in readers:
            reader.commit()
        for member in self.members:
            assert len(member.pool._lanes) == 0
            await member.pool.stop(1)


@pytest.mark.parametrize("order", [Order.BY_KEY, Order.BY_QUEUE])
@pytest.mark.parametrize("first_seed", range(0, 60, 10))
async def test_order_holds_and_nothing_is_lost(order: Order, first_seed: int) -> None:
    failed = dead = 0
    for seed in range(first_seed, first_seed + 10):
        model = Model(seed, order)
        await model.run()
        broker = model.broker
        assert broker.violations == [], seed
        assert broker.committed == {queue: len(log) for queue, log in broker.logs.items()}, seed
        assert {queue: len(broker.done[queue]) for queue in QUEUES} == broker.committed, seed
        failed, dead = failed + broker.failed, dead + broker.dead
    assert failed > 200
    assert dead > 5
