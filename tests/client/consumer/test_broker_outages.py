"""A recovered broker is used by all readers after the first success, and each outage is logged once."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.client import MessageQueue
from raptormq.client.background import cancel_all
from raptormq.client.consumer.broker_outages import BrokerOutages, Failure
from raptormq.errors import ConnectionClosed, NoRoute, ServerError

LONG = 1000.0
QUEUES = [MessageQueue("t", "b", number) for number in range(3)]
GONE = Failure.of(ConnectionClosed("the connection ended"))
REFUSED = Failure.of(ServerError(16, "no", "b"))


async def test_who_finds_a_broker_back_wakes_the_others(caplog: pytest.LogCaptureFixture) -> None:
    outages = BrokerOutages("g")
    await outages.pause(QUEUES[0], GONE, 0.0)
    pauses = [asyncio.create_task(outages.pause(queue, GONE, LONG)) for queue in QUEUES[1:]]
    elsewhere = asyncio.create_task(outages.pause(MessageQueue("t", "c", 0), GONE, LONG))
    refused = asyncio.create_task(outages.pause(QUEUES[0], REFUSED, LONG))
    await asyncio.sleep(0)
    outages.note_response(QUEUES[0])
    await asyncio.gather(*pauses)
    assert not elsewhere.done()
    assert not refused.done()
    elsewhere.cancel()
    refused.cancel()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3  # two brokers, and two different errors of one of them
    assert "group g cannot read" in told[0]
    for queue in QUEUES:
        outages.note_response(queue)
    await outages.pause(QUEUES[0], GONE, LONG)  # the reader that tries for all has a shorter pause
    assert len(caplog.records) == 4


async def test_who_has_no_route_waits_for_itself() -> None:
    """The reader of a deleted topic must not send a request after each message of another topic."""
    outages, lost = BrokerOutages("g"), Failure.of(NoRoute.to("t"), has_route=False)
    pauses = [asyncio.create_task(outages.pause(queue, lost, LONG)) for queue in QUEUES]
    await asyncio.sleep(0)
    outages.note_response(MessageQueue("busy", "b", 0))
    await asyncio.sleep(0)
    assert not any(pause.done() for pause in pauses)
    await cancel_all(pauses)


async def test_a_queue_that_is_refused_is_told_once_while_others_are_read(caplog: pytest.LogCaptureFixture) -> None:
    outages = BrokerOutages("g")
    for _ in range(3):
        for queue in QUEUES[1:]:
            await outages.pause(queue, REFUSED, 0.0)
        outages.note_response(QUEUES[0])
    assert len(caplog.records) == 1
    for queue in QUEUES[1:]:
        outages.note_response(queue)
    await outages.pause(QUEUES[2], REFUSED, 0.0)
    assert len(caplog.records) == 2


async def test_what_was_told_of_a_queue_is_forgotten_with_its_reader(caplog: pytest.LogCaptureFixture) -> None:
    outages = BrokerOutages("g")
    for _ in range(2):
        pause = asyncio.create_task(outages.pause(QUEUES[0], REFUSED, LONG))
        await asyncio.sleep(0)
        pause.cancel()
        await asyncio.gather(pause, return_exceptions=True)
    assert len(caplog.records) == 2
