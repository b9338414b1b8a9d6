"""The producer with real brokers: messages are stored at the returned offsets."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from raptormq.client import (
    ClientConfig,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullConsumer,
    SendResult,
    SendStatus,
)
from raptormq.client.producer import queue_selector as selector
from raptormq.errors import ClientClosed, ClientError, ConfigError, MessageError, NoRoute
from tests.client.embedded_cluster import Cluster


async def read_back(cluster: Cluster, result: SendResult, count: int = 1) -> list[MessageExt]:
    async with PullConsumer(name_servers=cluster.name_servers) as consumer:
        pulled = await consumer.pull(result.queue, result.queue_offset, count, suspend_ms=5000)
    return pulled.messages()


async def test_a_message_is_stored_as_it_was_sent(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 4)
        sent = Message("t", b"\x00body\xff", "A", ("k1", "k2"), {"colour": "grün"}, flag=-7)
        result = await producer.send(sent)
        assert result.status is SendStatus.SEND_OK
        [stored] = await read_back(cluster, result)
        assert stored.topic == "t"
        assert stored.body == sent.body
        assert stored.tags == "A"
        assert stored.keys == ("k1", "k2")
        assert stored.properties["colour"] == "grün"
        assert stored.flag == -7
        assert stored.queue == result.queue
        assert stored.queue_offset == result.queue_offset
        assert stored.message_id == result.message_id
        assert stored.offset_message_id == result.offset_message_id
        assert 0 < stored.born_timestamp <= stored.store_timestamp + 1000


async def test_the_first_message_creates_its_topic_with_the_wanted_queues(tmp_path: Path) -> None:
    config = ProducerConfig(default_topic_queues=3)
    async with (
        Cluster(tmp_path) as cluster,
        Producer("p", name_servers=cluster.name_servers, config=config) as producer,
    ):
        results = [await producer.send(Message("new", b"%d" % number)) for number in range(6)]
        assert {result.queue.queue_id for result in results} == {0, 1, 2}
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            assert await consumer.queues("new") == [MessageQueue("new", "broker-0", number) for number in range(3)]


async def test_a_topic_is_not_created_where_brokers_do_not_create_topics(tmp_path: Path) -> None:
    async with (
        Cluster(tmp_path, autoCreateTopicEnable="false") as cluster,
        Producer("p", name_servers=cluster.name_servers) as producer,
    ):
        with pytest.raises(NoRoute, match="no route for topic new: it does not exist"):
            await producer.send(Message("new", b"x"))


async def test_queues_take_turns_over_all_brokers(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 3)
        results = [await producer.send(Message("t", b"x")) for _ in range(12)]
        assert sorted(result.queue for result in results) == sorted([*await producer.queues("t")] * 2)
        assert {result.queue_offset for result in results} == {0, 1}


async def test_merged_batches_stay_with_one_of_many_queues_and_lists_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selector, "STICKY_S", 3600.0)
    config = ProducerConfig(auto_batch=True, batch_max_bytes=256)
    async with (
        Cluster(tmp_path) as cluster,
        Producer("p", name_servers=cluster.name_servers, config=config) as producer,
    ):
        await cluster.create_topic("t", selector.MANY_QUEUES)
        merged = await asyncio.gather(*(producer.submit(Message("t", b"x" * 100)) for _ in range(20)))
        lists = [await producer.send_batch([Message("t", b"x"), Message("t", b"y")]) for _ in range(20)]
        assert {result.queue for result in merged} == {merged[0].queue}
        assert len({result.offset_message_id for result in merged}) == 20
        assert len({result.queue for result in lists}) == 20


async def test_a_chosen_queue_and_a_key(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 8)
        queue = MessageQueue("t", "broker-0", 5)
        assert (await producer.send(Message("t", b"x"), queue=queue)).queue == queue
        by_key = {(await producer.send(Message("t", b"x"), key="order-1")).queue.queue_id for _ in range(4)}
        assert by_key == {1207111310 % 8}  # the absolute value of Java's hash of "order-1"
        spread = {(await producer.send(Message("t", b"x"), key=f"k{number}")).queue for number in range(50)}
        assert len(spread) == 8


async def test_a_list_gets_consecutive_offsets_of_one_queue(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 2)
        messages = [Message("t", b"line %d" % n, f"T{n % 2}", (f"k{n}",), {"n": str(n)}) for n in range(20)]
        result = await producer.send_batch(messages, queue=MessageQueue("t", "broker-0", 1))
        stored = await read_back(cluster, result, 32)
        assert [m.body for m in stored] == [m.body for m in messages]
        assert [m.tags for m in stored] == [m.tags for m in messages]
        assert [m.keys for m in stored] == [m.keys for m in messages]
        assert [m.properties["n"] for m in stored] == [str(n) for n in range(20)]
        assert [m.queue_offset for m in stored] == list(range(result.queue_offset, result.queue_offset + 20))
        assert ",".join(m.message_id for m in stored) == result.message_id
        assert ",".join(m.offset_message_id for m in stored) == result.offset_message_id


async def test_large_bodies_travel_deflated_and_come_back_whole(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 1)
        body = b"2013-01-01,EWR,IAH,11.0\n" * 2000
        result = await producer.send(Message("t", body))
        [stored] = await read_back(cluster, result)
        assert stored.body == body
        assert stored.sys_flag & 1


async def test_a_body_of_exactly_the_limit_is_taken_and_one_byte_more_is_not(tmp_path: Path) -> None:
    config = ProducerConfig(compress_over_bytes=0)
    async with (
        Cluster(tmp_path) as cluster,
        Producer("p", name_servers=cluster.name_servers, config=config) as producer,
    ):
        await cluster.create_topic("t", 1)
        result = await producer.send(Message("t", b"x" * config.max_message_bytes))
        assert result.status is SendStatus.SEND_OK
        with pytest.raises(MessageError, match="4194305"):
            await producer.send(Message("t", b"x" * (config.max_message_bytes + 1)))


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_callbacks_get_what_send_returns_or_raises(tmp_path: Path, auto_batch: bool) -> None:
    async with Cluster(tmp_path, autoCreateTopicEnable="false") as cluster:
        await cluster.create_topic("t", 1)
        told: list[SendResult | BaseException] = []
        async with Producer("p", name_servers=cluster.name_servers, auto_batch=auto_batch) as producer:
            for number in range(3):
                producer.send_with_callback(Message("t", b"%d" % number), told.append)
            with pytest.raises(MessageError):
                producer.send_with_callback(Message("not a topic!", b"x"), told.append)
        results = [outcome for outcome in told if isinstance(outcome, SendResult)]
        assert sorted(result.queue_offset for result in results) == [0, 1, 2]
        missing: list[SendResult | BaseException] = []
        async with Producer("p", name_servers=cluster.name_servers, auto_batch=auto_batch) as producer:
            producer.send_with_callback(Message("missing", b"x"), missing.append)
        assert [type(outcome) for outcome in missing] == [NoRoute]
        with pytest.raises(ClientClosed):
            producer.send_with_callback(Message("t", b"x"), missing.append)


async def test_a_callback_that_somebody_would_have_to_await_is_refused(tmp_path: Path) -> None:
    async def callback(_: SendResult | BaseException) -> None: ...

    class Callback:
        async def __call__(self, _: SendResult | BaseException) -> None: ...

    async with Cluster(tmp_path) as cluster, Producer(name_servers=cluster.name_servers) as producer:
        for wrong in (callback, Callback(), partial(callback), None, 5):
            for _ in range(2):
                with pytest.raises(ClientError, match="callback must be a"):
                    producer.send_with_callback(Message("t", b"x"), cast("Any", wrong))


async def test_oneway_messages_arrive(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 1)
        for number in range(10):
            await producer.send_oneway(Message("t", b"%d" % number))
        queue = MessageQueue("t", "broker-0", 0)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            consumer.assign([queue])
            bodies: list[bytes] = []
            while len(bodies) < 10:
                bodies += [message.body for message in await consumer.poll(10)]
        assert bodies == [b"%d" % number for number in range(10)]


async def test_many_sends_at_the_same_time_all_arrive_once(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 4)
        results = await asyncio.gather(*(producer.send(Message("t", b"%d" % n), timeout=30) for n in range(2000)))
        assert len({(result.queue, result.queue_offset) for result in results}) == 2000
        assert len({result.message_id for result in results}) == 2000


async def test_many_large_messages_at_the_same_time_do_not_overrun_the_connection(tmp_path: Path) -> None:
    config = ProducerConfig(compress_over_bytes=0)
    async with (
        Cluster(tmp_path) as cluster,
        Producer("p", name_servers=cluster.name_servers, config=config) as producer,
    ):
        await cluster.create_topic("t", 4)
        body = b"x" * 4_000_000
        results = await asyncio.gather(*(producer.send(Message("t", body), timeout=50) for _ in range(40)))
        assert len({(result.queue, result.queue_offset) for result in results}) == 40


async def test_a_loop_of_oneway_sends_lets_the_loop_turn(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 1)
        queue = MessageQueue("t", "broker-0", 0)
        for number in range(1000):
            await producer.send_oneway(Message("t", b"%d" % number))
        # All earlier requests of the same connection are stored before.
        assert (await producer.send(Message("t", b"last"), queue=queue)).queue_offset == 1000


async def test_messages_survive_a_broker_that_restarts_in_between(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 2)
        expected = {b"%d" % number for number in range(400)}
        a_quarter_is_sent = asyncio.Event()

        async def send_all() -> None:
            for number, body in enumerate(sorted(expected)):
                await producer.send(Message("t", body))
                if number == 100:
                    a_quarter_is_sent.set()

        sending = asyncio.create_task(send_all())
        await a_quarter_is_sent.wait()
        await cluster.stop_broker(0)
        await cluster.start_broker(0)
        await sending
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            consumer.assign(await consumer.queues("t"))
            bodies: set[bytes] = set()
            while bodies != expected:
                bodies |= {message.body for message in await consumer.poll(10)}


async def test_a_second_name_server_takes_over(tmp_path: Path) -> None:
    async with (
        Cluster(tmp_path, name_servers=2) as cluster,
        Producer("p", name_servers=cluster.name_servers) as producer,
    ):
        await cluster.create_topic("t", 1)
        await cluster.create_topic("u", 1)
        await producer.send(Message("t", b"x"))
        await cluster.servers[0].stop()
        assert (await producer.send(Message("u", b"x"))).status is SendStatus.SEND_OK


async def test_producers_with_one_configuration_share_a_connection(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        shared = ClientConfig(cluster.name_servers)
        async with Producer("p", client_config=shared) as first, Producer("q", client_config=shared) as second:
            assert first._instance is second._instance
            await first.send(Message("t", b"x"))
            await first.close()
            assert (await second.send(Message("t", b"x"))).queue_offset == 1


async def test_a_closed_producer_says_so(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        producer = Producer("p", name_servers=cluster.name_servers)
        with pytest.raises(ClientClosed):
            await producer.send(Message("t", b"x"))
        async with producer:
            await producer.start()
        await producer.close()
        with pytest.raises(ClientClosed):
            await producer.send_batch([Message("t", b"x")])
        async with producer:
            assert (await producer.send(Message("t", b"x"))).status is SendStatus.SEND_OK


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="either"):
        Producer("p", name_servers="a:1", client_config=ClientConfig("a:1"))
    with pytest.raises(MessageError, match="group"):
        Producer("no good", name_servers="a:1")


async def test_merged_messages_are_stored_singly_where_their_senders_are_told(tmp_path: Path) -> None:
    async with (
        Cluster(tmp_path) as cluster,
        Producer("p", name_servers=cluster.name_servers, auto_batch=True, batch_max_delay_ms=1) as producer,
    ):
        await cluster.create_topic("t", 4)
        queue = MessageQueue("t", "broker-0", 2)
        sent = [Message("t", b"%d" % n, "A", (f"k{n}",), {"n": str(n)}) for n in range(32)]
        results = await asyncio.gather(*(producer.send(message, queue=queue) for message in sent))
        stored = await read_back(cluster, results[0], 64)
        by_offset = {message.queue_offset: message for message in stored}
        assert len(by_offset) == 32
        for message, result in zip(sent, results, strict=True):
            found = by_offset[result.queue_offset]
            assert (found.body, found.tags, found.keys) == (message.body, "A", message.keys)
            assert found.properties["n"] == message.properties["n"]
            assert (found.message_id, found.offset_message_id) == (result.message_id, result.offset_message_id)


async def test_a_batch_stays_in_one_queue_and_batches_take_turns(tmp_path: Path) -> None:
    async with (
        Cluster(tmp_path) as cluster,
        Producer("p", name_servers=cluster.name_servers, auto_batch=True, batch_max_bytes=1000) as producer,
    ):
        await cluster.create_topic("t", 4)
        futures = [producer.submit(Message("t", b"x" * 478)) for _ in range(16)]
        results = await asyncio.gather(*futures)
    offsets = {(result.queue.queue_id, result.queue_offset) for result in results}
    assert offsets == {(queue, offset) for queue in range(4) for offset in range(4)}


@pytest.mark.parametrize("auto_batch", [True, False])
async def test_close_sends_what_was_submitted(tmp_path: Path, auto_batch: bool) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        producer = Producer("p", name_servers=cluster.name_servers, auto_batch=auto_batch, batch_max_delay_ms=30_000)
        await producer.start()
        futures = [producer.submit(Message("t", b"x")) for _ in range(5)]
        await producer.close()
        assert sorted([future.result().queue_offset for future in futures]) == list(range(5))
        with pytest.raises(ClientClosed):
            producer.submit(Message("t", b"x"))


async def test_messages_with_a_key_or_a_time_of_their_own_are_not_merged(tmp_path: Path) -> None:
    async with (
        Cluster(tmp_path) as cluster,
        Producer("p", name_servers=cluster.name_servers, auto_batch=True, batch_max_delay_ms=30_000) as producer,
    ):
        await cluster.create_topic("t", 8)
        assert (await producer.send(Message("t", b"x"), key="order-1")).queue.queue_id == 1207111310 % 8
        assert (await producer.send(Message("t", b"x"), timeout=5)).status is SendStatus.SEND_OK
