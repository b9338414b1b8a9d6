"""The push consumer with real brokers: groups share queues, and every message is consumed at least once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.client import (
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    ConsumeResult,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
)
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.errors import ClientError, MessageError
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

FAST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.2, rebalance_interval=1.0)


class Collector:
    """A listener that records messages and lets a test wait for them."""

    def __init__(self) -> None:
        self.messages: list[MessageExt] = []
        self._changed = asyncio.Condition()

    async def __call__(self, messages: list[MessageExt]) -> None:
        self.messages += messages
        async with self._changed:
            self._changed.notify_all()

    @property
    def bodies(self) -> Counter[bytes]:
        return Counter(message.body for message in self.messages)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(reached)


async def send(cluster: Cluster, bodies: list[bytes], tags: str = "A", topic: str = "t") -> None:
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for number, body in enumerate(bodies):
            await producer.send(Message(topic, body, tags[number % len(tags)]))


def readers(consumer: PushConsumer) -> list[QueueReader]:
    assert consumer._running is not None
    return [reader for reader in consumer._running.rebalancer.readers if reader.queue.topic == "t"]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_everything_is_consumed_and_committed(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster:
        await cluster.create_topic("t", 3)
        await send(cluster, numbered(200))
        collector = Collector()
        async with PushConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
            consumer.subscribe("t", "*", collector)
            await collector.until(lambda: len(collector.bodies) == 200)
            assert len([queue for queue in consumer.assignment if queue.topic == "t"]) == 6
        assert collector.bodies == Counter(numbered(200))
        async with PullConsumer(name_servers=cluster.name_servers, group="g") as reader:
            for queue in await reader.queues("t"):
                assert await reader.committed(queue) == await reader.max_offset(queue)


async def test_a_second_run_goes_on_where_the_first_stopped(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        for run in range(2):
            await send(cluster, [b"%d-%d" % (run, n) for n in range(30)])
            collector = Collector()
            async with PushConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
                consumer.subscribe("t", "*", collector)
                await collector.until(lambda: len(collector.messages) >= 30)  # noqa: B023 - awaited in this turn
            assert collector.bodies == Counter(b"%d-%d" % (run, n) for n in range(30))


async def test_new_messages_come_at_once(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        collector = Collector()
        config = replace(FAST, pull_suspend=100.0, pull_timeout=200.0)  # longer than a test may take
        async with PushConsumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t", "*", collector)
            await send(cluster, [b"first"])
            await collector.until(lambda: len(collector.messages) == 1)
            await send(cluster, [b"second"])
            await collector.until(lambda: len(collector.messages) == 2)


async def test_members_share_the_queues_and_take_over_from_each_other(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 4)
        collectors = [Collector(), Collector()]
        consumers = [PushConsumer("g", name_servers=cluster.name_servers, config=FAST) for _ in collectors]
        for consumer, collector in zip(consumers, collectors, strict=True):
            consumer.subscribe("t", "*", collector)

        def share(member: int) -> list[MessageQueue]:
            return [queue for queue in consumers[member].assignment if queue.topic == "t"]

        async with consumers[0]:
            await eventually(lambda: len(share(0)) == 4)
            async with consumers[1]:
                await eventually(lambda: len(share(0)) == len(share(1)) == 2)
                assert not set(share(0)) & set(share(1))
                await send(cluster, numbered(40))
                await eventually(lambda: sum(len(c.bodies) for c in collectors) >= 40)
                assert collectors[0].bodies + collectors[1].bodies == Counter(numbered(40))
            await eventually(lambda: len(share(0)) == 4)
            await send(cluster, [b"after %d" % n for n in range(8)])
            await eventually(lambda: sum(body.startswith(b"after") for body in collectors[0].bodies) == 8)


async def test_a_member_that_vanishes_without_a_word_loses_nothing(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        stuck, taken_over = asyncio.Event(), Collector()

        async def never_finishes(messages: list[MessageExt]) -> None:
            stuck.set()
            await asyncio.Event().wait()

        vanishing = PushConsumer("g", name_servers=cluster.name_servers, config=FAST)
        vanishing.subscribe("t", "*", never_finishes)
        await vanishing.start()
        await send(cluster, numbered(20))
        await stuck.wait()
        running = vanishing._running
        assert running is not None
        for made in list(running.instance.pool._made.values()):
            made.connection.abort()
        for task in [*running.instance._tasks, running.rebalancer._task]:
            assert task is not None
            task.cancel()  # it sends no heartbeats, so the broker has removed it
        async with PushConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
            consumer.subscribe("t", "*", taken_over)
            await taken_over.until(lambda: len(taken_over.bodies) == 20)
        await running._consumption.stop(0.01)
        await vanishing.stop()


async def test_only_wanted_tags_are_handed_out_even_when_hashes_collide(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 1)
        for tag in ("Aa", "BB", "C", None, "Aa"):  # the first two have equal hashes
            await producer.send(Message("t", str(tag).encode(), tag))
        collector = Collector()
        async with PushConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
            consumer.subscribe("t", "Aa || C", collector)
            await collector.until(lambda: len(collector.messages) == 3)
            await eventually(lambda: consumer.assignment != [])
        assert [m.body for m in collector.messages] == [b"Aa", b"C", b"Aa"]
        async with PullConsumer(name_servers=cluster.name_servers, group="g") as reader:
            assert await reader.committed(MessageQueue("t", "broker-0", 0)) == 5  # filtered messages count as consumed


async def test_other_tags_are_wanted_from_now_on(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        collector = Collector()
        async with PushConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
            consumer.subscribe("t", "A", collector)
            await send(cluster, [b"1", b"2"], tags="AB")
            await collector.until(lambda: len(collector.messages) == 1)
            consumer.subscribe("t", "B", collector)
            await eventually(lambda: any(reader.subscription.expression == "B" for reader in readers(consumer)))
            await send(cluster, [b"3", b"4"], tags="AB")
            await collector.until(lambda: b"4" in collector.bodies)
        assert b"3" not in collector.bodies


@pytest.mark.parametrize("failure", ["exception", "later"])
async def test_a_failed_message_comes_again(tmp_path: Path, failure: str) -> None:
    async with Cluster(tmp_path, messageDelayLevel="1s 1s 1s") as cluster:  # the first call waits for the third
        await cluster.create_topic("t", 1)
        seen: Counter[bytes] = Counter()
        done = asyncio.Event()

        async def fails_once(messages: list[MessageExt]) -> ConsumeResult:
            [message] = messages
            assert message.topic == "t"
            seen[message.body] += 1
            if message.body == b"3" and seen[b"3"] == 1:
                if failure == "exception":
                    raise RuntimeError("as planned")
                return ConsumeResult.RECONSUME_LATER
            if len(seen) == 6 and seen[b"3"] == 2:
                done.set()
            return ConsumeResult.SUCCESS

        async with PushConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
            consumer.subscribe("t", "*", fails_once)
            await send(cluster, numbered(6))
            await done.wait()
        assert seen == Counter({b"0": 1, b"1": 1, b"2": 1, b"3": 2, b"4": 1, b"5": 1})
        async with PullConsumer(name_servers=cluster.name_servers, group="g") as reader:
            assert await reader.committed(MessageQueue("t", "broker-0", 0)) == 6


async def test_progress_stops_before_a_message_that_is_not_finished(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        collector = Collector()
        reached = asyncio.Event()

        async def hangs_on_two(messages: list[MessageExt]) -> None:
            if messages[0].body == b"2":
                reached.set()
                await asyncio.Event().wait()
            await collector(messages)

        client_config = ClientConfig(cluster.name_servers, close_timeout=0.1)
        async with PushConsumer("g", client_config=client_config, config=FAST) as consumer:
            consumer.subscribe("t", "*", hangs_on_two)
            await send(cluster, numbered(6))
            await reached.wait()
            await collector.until(lambda: len(collector.bodies) == 5)
        again = Collector()
        async with PushConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
            consumer.subscribe("t", "*", again)
            await again.until(lambda: len(again.bodies) == 4)
        assert again.bodies == Counter([b"2", b"3", b"4", b"5"])


async def test_no_more_listeners_run_at_the_same_time_than_allowed(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 4)
        await send(cluster, numbered(40))
        running, most, gate = 0, 0, asyncio.Event()
        collector = Collector()

        async def counts(messages: list[MessageExt]) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if running == 3:
                gate.set()
            await gate.wait()
            running -= 1
            await collector(messages)

        config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, concurrency=3)
        async with PushConsumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t", "*", counts)
            await collector.until(lambda: len(collector.bodies) == 40)
        assert most == 3


async def test_messages_of_one_call_come_from_one_queue_in_order(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        await send(cluster, numbered(60))
        calls: list[list[MessageExt]] = []
        collector = Collector()

        async def remembers(messages: list[MessageExt]) -> None:
            calls.append(messages)
            await collector(messages)

        config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, consume_batch=7, concurrency=1)
        async with PushConsumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t", "*", remembers)
            await collector.until(lambda: len(collector.bodies) == 60)
        assert max(map(len, calls)) == 7
        for call in calls:
            assert len({message.queue for message in call}) == 1
        for queue_id in range(2):
            offsets = [m.queue_offset for call in calls for m in call if m.queue.queue_id == queue_id]
            assert offsets == sorted(offsets)


async def test_slow_listeners_stop_the_fetching(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await send(cluster, numbered(200))
        started, gate = asyncio.Event(), asyncio.Event()
        collector = Collector()

        async def waits(messages: list[MessageExt]) -> None:
            started.set()
            await gate.wait()
            await collector(messages)

        config = ConsumerConfig(
            consume_from=ConsumeFromWhere.FIRST, max_messages_per_queue=50, pull_batch=10, concurrency=2
        )
        async with PushConsumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t", "*", waits)
            await started.wait()
            [reader] = readers(consumer)
            progress = reader.process_queue
            assert progress is not None
            await eventually(lambda: progress.unfinished_messages >= 50)
            assert progress.unfinished_messages < 60
            gate.set()
            await collector.until(lambda: len(collector.bodies) == 200)


async def test_a_topic_that_comes_later_is_read_from_its_first_message(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        collector = Collector()
        config = ConsumerConfig(rebalance_interval=1.0)  # from LAST, but a new topic is read completely
        async with PushConsumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("later", "*", collector)
            await send(cluster, [b"hello"], topic="later")
            await collector.until(lambda: len(collector.messages) == 1)


async def test_two_topics_have_their_own_listeners_until_one_is_unsubscribed(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        await cluster.create_topic("u", 1)
        first, second = Collector(), Collector()
        async with PushConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
            consumer.subscribe("t", "*", first)
            consumer.subscribe("u", "*", second)
            await send(cluster, [b"t"])
            await send(cluster, [b"u"], topic="u")
            await first.until(lambda: len(first.messages) == 1)
            await second.until(lambda: len(second.messages) == 1)
            consumer.unsubscribe("u")
            await eventually(lambda: {queue.topic for queue in consumer.assignment} <= {"t", "%RETRY%g"})
        assert (list(first.bodies), list(second.bodies)) == ([b"t"], [b"u"])


async def test_a_broker_that_restarts_elsewhere_is_consumed_on(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        collector = Collector()
        async with PushConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
            consumer.subscribe("t", "*", collector)
            await send(cluster, [b"before"])
            await collector.until(lambda: len(collector.messages) == 1)
            await cluster.stop_broker(0)
            await cluster.start_broker(0)
            await send(cluster, [b"after"])
            await collector.until(lambda: b"after" in collector.bodies)


async def test_starting_without_any_server_waits_for_one(tmp_path: Path, free_port: int) -> None:
    collector = Collector()
    async with PushConsumer("g", name_servers=f"127.0.0.1:{free_port}", config=FAST) as consumer:
        consumer.subscribe("t", "*", collector)
        await asyncio.sleep(0)
        assert consumer.assignment == []


async def test_misuse_is_named(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        shared = ClientConfig(cluster.name_servers)
        async with PushConsumer("g", client_config=shared):
            with pytest.raises(ClientError, match="group g"):
                await PushConsumer("g", client_config=shared).start()
        consumer = PushConsumer("g", client_config=shared)
        with pytest.raises(MessageError):
            consumer.subscribe("no topic", "*", Collector())
        with pytest.raises(MessageError):
            consumer.subscribe("t", "||", Collector())
        for subscribe in (consumer.subscribe, consumer.subscribe_batches):
            with pytest.raises(ClientError, match="a listener must be an async function, not None"):
                subscribe("t", "*", None)  # type: ignore[arg-type]
        await consumer.stop()
        await consumer.start()
        await consumer.start()
        await consumer.stop()
        await consumer.stop()
