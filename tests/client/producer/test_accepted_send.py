"""What `Producer.send` returns with AutoBatch can be used like any coroutine, and like a future."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from raptormq.client import Message, Producer, SendResult
from raptormq.client.producer.accepted_send import AcceptedSend
from raptormq.errors import ClientClosed, MessageError, RaptorMQError
from tests.client.embedded_cluster import Cluster
from tests.client.stored_messages import stored_messages

LONG_MS = 10_000
"""Delay of a batch; it is sent after a second without another message."""


@asynccontextmanager
async def producing(folder: Path, delay_ms: float = 10) -> AsyncIterator[tuple[Cluster, Producer]]:
    """Run a cluster with a topic, and a producer with AutoBatch."""
    async with Cluster(folder) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer(
            "p", name_servers=cluster.name_servers, auto_batch=True, batch_max_delay_ms=delay_ms
        ) as producer:
            yield cluster, producer


async def stored(cluster: Cluster) -> list[bytes]:
    return [message.body for message in await stored_messages(cluster.name_servers, "t")]


async def test_a_group_of_sends_needs_no_tasks(tmp_path: Path) -> None:
    async with producing(tmp_path) as (_, producer):
        sends = [producer.send(Message("t", b"%d" % number)) for number in range(100)]
        tasks = len(asyncio.all_tasks())
        waiting = asyncio.gather(*sends)
        assert len(asyncio.all_tasks()) == tasks
        assert len({result.message_id for result in await waiting}) == 100


async def test_every_form_of_waiting(tmp_path: Path) -> None:
    async with producing(tmp_path) as (cluster, producer):

        def send(number: int) -> AcceptedSend:
            sending = producer.send(Message("t", b"%d" % number))
            assert isinstance(sending, AcceptedSend)
            return sending

        results = [await send(0), await asyncio.create_task(send(1)), await asyncio.wait_for(send(2), 60)]
        async with asyncio.TaskGroup() as group:
            sending = [group.create_task(send(3)), group.create_task(send(4))]
        results += [each.result() for each in sending]
        results.append(await asyncio.shield(send(5)))
        answered = send(6)
        await asyncio.shield(answered)
        results.append(await asyncio.create_task(answered))
        assert all(isinstance(each, SendResult) for each in results)
        assert await stored(cluster) == [b"%d" % number for number in range(7)]


async def test_errors_are_raised_when_they_are_awaited(tmp_path: Path) -> None:
    async with producing(tmp_path) as (_, producer):
        wrong = producer.send(Message("", b"x"))
        with pytest.raises(MessageError):
            await wrong
        found = await asyncio.gather(producer.send(Message("a b", b"x")), return_exceptions=True)
        assert isinstance(found[0], MessageError)
    late = producer.send(Message("t", b"x"))
    with pytest.raises(ClientClosed):
        await late


async def test_a_task_gets_the_error_of_its_broker(tmp_path: Path) -> None:
    async with producing(tmp_path) as (cluster, producer):
        await producer.send(Message("t", b"0"))
        await cluster.stop_broker(0)
        with pytest.raises(RaptorMQError, match="attempt"):
            await asyncio.create_task(producer.send(Message("t", b"1")))


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_cancelled_task_sends_nothing(tmp_path: Path, turns: int) -> None:
    async with producing(tmp_path, LONG_MS) as (cluster, producer):
        sending = asyncio.create_task(producer.send(Message("t", b"cancelled")))
        for _ in range(turns):  # the task has begun, or not
            await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        closed = producer.send(Message("t", b"closed"))
        closed.close()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send(Message("t", b"late")), 0.001)
        await producer.send(Message("t", b"sent"))
        assert await stored(cluster) == [b"sent"]


async def test_another_thread_passes_a_send_to_the_event_loop(tmp_path: Path) -> None:
    async with producing(tmp_path) as (_, producer):
        loop = asyncio.get_running_loop()
        results: list[SendResult] = []

        def send() -> None:
            message = Message("t", b"from a thread")
            results.append(asyncio.run_coroutine_threadsafe(producer.send(message), loop).result(60))

        thread = threading.Thread(target=send)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert len(results) == 1


async def test_mocks_of_a_producer_are_awaited() -> None:
    producer = create_autospec(Producer, instance=True)
    producer.send.return_value = 17
    assert await producer.send(Message("t", b"0")) == 17
