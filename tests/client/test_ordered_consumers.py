"""Ordered messages from the Python producer to ordered consumers, with real sockets and files."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from raptormq.client import (
    AdminClient,
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageExt,
    MessageQueue,
    OnFailure,
    Order,
    Producer,
    PullConsumer,
    PushConsumer,
    RebalanceListener,
    in_executor,
    in_loop,
    message_key,
)
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.errors import ClientError, ConsumptionStopped
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually
from tests.client.stored_messages import stored_messages
from tests.turns import some_turns

BY_KEY = ConsumerConfig(
    consume_from=ConsumeFromWhere.FIRST,
    order=Order.BY_KEY,
    concurrency=50,
    retry_pause=0.01,
    longest_retry_pause=0.05,
    rebalance_interval=1.0,
    commit_interval=0.1,
)


def with_settings(config: ConsumerConfig, **settings: object) -> ConsumerConfig:
    return replace(config, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "auto_batch"])
async def test_what_our_producer_sends_by_key_is_consumed_by_key(tmp_path: Path, auto_batch: bool) -> None:
    keys, each = [f"account {number}" for number in range(8)], 12
    seen: dict[str, list[int]] = defaultdict(list)
    running: set[str] = set()
    together = 0

    async def consume(messages: list[MessageExt]) -> None:
        nonlocal together
        [message] = messages
        key = message_key(message)
        assert key is not None
        assert key not in running
        running.add(key)
        together = max(together, len(running))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.remove(key)
        seen[key].append(int(message.body))

    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers, auto_batch=auto_batch) as producer:
            for number in range(each):
                await asyncio.gather(*(producer.send(Message("t", b"%d" % number), key=key) for key in keys))
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=BY_KEY)
        consumer.subscribe("t", "*", consume)
        async with consumer:
            await eventually(lambda: sum(map(len, seen.values())) == each * len(keys))
    assert seen == {key: list(range(each)) for key in keys}
    assert together == len(keys)


async def test_auto_batch_merges_sends_by_key_for_each_queue_in_order(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 4)
        async with Producer("p", name_servers=cluster.name_servers, auto_batch=True, batch_max_delay_ms=50) as producer:
            await producer.queues("t")
            sends = [producer.send(Message("t", b"%d" % number), key=f"k{number % 10}") for number in range(200)]
            results = await asyncio.gather(*sends)
            single = await producer.send(Message("t", b"last"), key="k3", timeout=3)
        queues = {f"k{number % 10}": result.queue for number, result in enumerate(results)}
        assert len(set(queues.values())) == 4
        assert all(result.queue == queues[f"k{number % 10}"] for number, result in enumerate(results))
        assert single.queue == queues["k3"]
        stored: dict[str, list[int]] = defaultdict(list)
        born: set[int] = set()
        for message in await stored_messages(cluster.name_servers, "t"):
            born.add(message.born_timestamp)
            if message.body != b"last":
                stored[message_key(message) or ""].append(int(message.body))
    assert stored == {f"k{first}": list(range(first, 200, 10)) for first in range(10)}
    assert len(born) < 20  # requests, not messages


@pytest.mark.parametrize("order", [Order.BY_QUEUE, Order.BY_KEY])
async def test_a_failing_message_is_retried_in_place_and_then_a_dead_letter(tmp_path: Path, order: Order) -> None:
    seen: list[bytes] = []

    async def consume(messages: list[MessageExt]) -> None:
        seen.extend(message.body for message in messages)
        if messages[0].body == b"bad":
            raise ValueError("as planned")

    config = with_settings(BY_KEY, order=order, max_reconsume_times=2)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for body in (b"bad", b"next", b"last"):
                await producer.send(Message("t", body), key="a")
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t", "*", consume)
        async with consumer:
            await eventually(lambda: b"last" in seen)
        assert seen == [b"bad", b"bad", b"bad", b"next", b"last"]
        assert [letter.body for letter in await stored_messages(cluster.name_servers, "%DLQ%g")] == [b"bad"]


async def test_a_failing_key_blocks_only_itself_and_keeps_the_offset_back(tmp_path: Path) -> None:
    seen: list[bytes] = []
    fails = True

    async def consume(messages: list[MessageExt]) -> None:
        if fails and messages[0].body == b"a0":
            raise ValueError("as planned")
        seen.append(messages[0].body)

    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for number in range(30):
                for key in ("b", "a", "c"):
                    await producer.send(Message("t", b"%s%d" % (key.encode(), number)), key=key)
        consumer = PushConsumer(
            "g", name_servers=cluster.name_servers, config=with_settings(BY_KEY, max_reconsume_times=10_000)
        )
        consumer.subscribe("t", "*", consume)
        async with consumer, PullConsumer(name_servers=cluster.name_servers, group="g") as reader:
            await eventually(lambda: len(seen) == 60)
            assert not any(body.startswith(b"a") for body in seen)
            [queue] = await reader.queues("t")
            while await reader.committed(queue) != 1:  # b0 is consumed, a0 is not
                await asyncio.sleep(0.01)
            fails = False
            await eventually(lambda: len(seen) == 90)
            assert [body for body in seen if body.startswith(b"a")] == [b"a%d" % number for number in range(30)]
            while await reader.committed(queue) != 90:
                await asyncio.sleep(0.01)


async def test_skip_goes_on_and_stop_stops_with_the_reason(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for body in (b"good", b"bad", b"next"):
                await producer.send(Message("t", body), key="a")

        async def consume(messages: list[MessageExt]) -> None:
            seen.append(messages[0].body)
            if messages[0].body == b"bad":
                raise ValueError("as planned")

        seen: list[bytes] = []
        config = with_settings(BY_KEY, max_reconsume_times=1, on_failure=OnFailure.STOP)
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t", "*", consume)
        await consumer.start()
        with pytest.raises(ConsumptionStopped, match=r"offset 1 of t@broker-0:0, failed 2 times in group g"):
            await consumer.wait()
        assert seen == [b"good", b"bad", b"bad"]
        assert consumer.assignment == []

        seen = []
        config = with_settings(config, on_failure=OnFailure.SKIP)
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t", "*", consume)
        async with consumer:
            await eventually(lambda: b"next" in seen)
        await consumer.wait()
        assert seen == [b"bad", b"bad", b"next"]


def one_more(messages: list[MessageExt]) -> None:
    """Append the body to the file of the key, which processes share."""
    path, key = messages[0].properties["path"], message_key(messages[0])
    with Path(f"{path}/{key}").open("ab") as file:
        file.write(messages[0].body + b" ")


@pytest.mark.parametrize("kind", ["loop", "threads", "processes"])
async def test_plain_functions_keep_the_order_too(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "seen"
    folder.mkdir()
    made: list[Executor] = []

    def processes() -> Executor:
        made.append(ProcessPoolExecutor(2, mp_context=get_context("spawn")))
        return made[-1]

    def threads() -> Executor:
        made.append(ThreadPoolExecutor(8))
        return made[-1]

    executors = {"threads": threads, "processes": processes}
    listener = in_loop(one_more) if kind == "loop" else in_executor(one_more, executors[kind])
    expected = b"".join(b"%d " % number for number in range(20))
    try:
        async with Cluster(tmp_path) as cluster:
            await cluster.create_topic("t", 2)
            async with Producer("p", name_servers=cluster.name_servers) as producer:
                for number in range(20):
                    for key in ("a", "b", "c"):
                        await producer.send(Message("t", b"%d" % number, properties={"path": str(folder)}), key=key)
            consumer = PushConsumer("g", name_servers=cluster.name_servers, config=BY_KEY)
            consumer.subscribe("t", "*", listener)
            async with consumer:
                await eventually(lambda: sum(path.stat().st_size for path in folder.iterdir()) == 3 * len(expected))
    finally:
        for executor in made:
            executor.shutdown()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == dict.fromkeys("abc", expected)


async def reset_group(admin: AdminClient, reader: QueueReader) -> None:
    """Let the reader start again at the first message."""
    await admin.reset_group("g", "t", 0)
    await eventually(lambda: reader.process_queue is not None and reader.process_queue.commit_offset == 0)


async def delete_topic(admin: AdminClient, reader: QueueReader) -> None:
    """Let the reader forget its offset."""
    await admin.delete_topic("t")
    await eventually(lambda: reader.process_queue is None)


@pytest.mark.parametrize("change", [reset_group, delete_topic])
async def test_a_queue_is_not_released_before_a_call_has_ended_that_began_before_its_offset_changed(
    tmp_path: Path, change: Callable[[AdminClient, QueueReader], Awaitable[None]]
) -> None:
    started, gate, revoked = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def consume(messages: list[MessageExt]) -> None:
        if messages[0].body == b"1":
            started.set()
            await gate.wait()

    class Revoked(RebalanceListener):
        async def on_queues_revoked(self, queues: Sequence[MessageQueue]) -> None:
            revoked.set()

    config = with_settings(BY_KEY, rebalance_listener=Revoked())
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for body in (b"0", b"1"):
                await producer.send(Message("t", body), key="a")
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t", "*", consume)
        async with consumer, AdminClient(name_servers=cluster.name_servers) as admin:
            await started.wait()
            assert consumer._running is not None
            [reader] = [each for each in consumer._running.rebalancer.readers if each.queue.topic == "t"]
            await change(admin, reader)
            consumer.unsubscribe("t")
            await eventually(lambda: reader.queue not in consumer.assignment)
            await some_turns()
            assert not revoked.is_set()
            gate.set()
            await revoked.wait()


@pytest.mark.parametrize("order", list(Order))
async def test_pausing_stops_calls_and_fetching_until_it_is_resumed(tmp_path: Path, order: Order) -> None:
    seen: list[bytes] = []

    async def consume(messages: list[MessageExt]) -> None:
        seen.append(messages[0].body)

    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        config = with_settings(BY_KEY, order=order)
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t", "*", consume)
        async with consumer, Producer("p", name_servers=cluster.name_servers) as producer:
            one, other = await producer.queues("t")
            await eventually(lambda: {one, other} <= set(consumer.assignment))
            consumer.pause([one])
            assert consumer.paused == [one]
            for _ in range(5):
                await producer.send(Message("t", b"one"), queue=one)
                await producer.send(Message("t", b"other"), queue=other)
            await eventually(lambda: len(seen) == 5)
            await some_turns()
            assert seen == [b"other"] * 5
            consumer.pause()
            consumer.resume([one])
            await eventually(lambda: len(seen) == 10)
            await producer.send(Message("t", b"late"), queue=other)
            await some_turns()
            assert b"late" not in seen
            consumer.resume()
            assert consumer.paused == []
            await eventually(lambda: seen[-1] == b"late")


async def test_ordered_consumers_have_no_batch_listeners_and_order_key_needs_an_order() -> None:
    consumer = PushConsumer("g", config=BY_KEY)

    async def consume(batch: object) -> None: ...

    with pytest.raises(ClientError, match=r"no batch listeners: use subscribe, and consume_batch"):
        consumer.subscribe_batches("t", "*", consume)
    with pytest.raises(ClientError, match=r"a list of MessageQueue"):
        consumer.pause(["t"])  # type: ignore[list-item]
    with pytest.raises(ClientError, match=r"the executor must be a concurrent.futures.Executor"):
        in_executor(one_more, "threads")  # type: ignore[arg-type]
    with pytest.raises(ClientError, match=r"the listener must be a function"):
        in_loop(None)  # type: ignore[arg-type]


class Accounts:
    """Processed messages of each key, and the consumer that has a key. Two at the same time are an error."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = defaultdict(list)
        self.running: set[str] = set()
        self.errors: list[str] = []
        self.members: set[int] = set()

    def listener(self, member: int) -> Callable[[list[MessageExt]], Awaitable[None]]:
        async def book(messages: list[MessageExt]) -> None:
            [message] = messages
            key = message_key(message) or ""
            if key in self.running:
                self.errors.append(f"{key} twice at once")
            self.running.add(key)
            try:
                await some_turns(3)
            finally:
                self.running.remove(key)
            self.numbers[key].append(int(message.body))
            self.members.add(member)

        return book


async def test_order_by_key_holds_while_members_come_and_go(tmp_path: Path) -> None:
    accounts, sent, keys = Accounts(), 0, [f"k{number}" for number in range(10)]
    is_over = False
    config = with_settings(BY_KEY, commit_interval=1000.0)  # periodic commits must not affect the result

    async def keep_sending() -> None:
        nonlocal sent
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            while not is_over:
                await asyncio.gather(*(producer.send(Message("t", b"%d" % sent), key=key) for key in keys))
                sent += 1

    async def joined(number: int, queues: int) -> PushConsumer:
        member = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        member.subscribe("t", "*", accounts.listener(number))
        await member.start()
        await eventually(lambda: len([queue for queue in member.assignment if queue.topic == "t"]) == queues)
        return member

    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 4)
        sending = asyncio.create_task(keep_sending())
        first = await joined(1, 4)
        second = await joined(2, 2)
        await first.stop()
        await eventually(lambda: len([queue for queue in second.assignment if queue.topic == "t"]) == 4)
        third = await joined(3, 2)
        is_over = True
        await sending
        await eventually(lambda: all(len(accounts.numbers[key]) >= sent for key in keys))
        await second.stop()
        await third.stop()
    assert accounts.errors == []
    assert accounts.members == {1, 2, 3}
    assert accounts.numbers == {key: list(range(sent)) for key in keys}  # and none twice
