"""Trace records are sent in the background, and neither delay the traced calls nor use unlimited memory."""

from __future__ import annotations

import asyncio

import pytest

from raptormq.client.trace import TraceData, TraceDispatcher
from raptormq.client.trace.dispatcher import FLUSH_RECORDS, MAX_WAITING_RECORDS
from raptormq.client.trace.records import TraceRecord
from raptormq.errors import NoRoute


def records(count: int) -> list[TraceRecord]:
    return [TraceRecord(f"{number}\x02", (f"id{number}",)) for number in range(count)]


class Sender:
    """Counts received lines. It raises `error` instead of sending, and waits for `gate`."""

    def __init__(self) -> None:
        self.lines = 0
        self.sends = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def send(self, data: TraceData) -> None:
        self.sends += 1
        self.asked.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.lines += data.body.count(b"\x02")


async def test_what_waits_is_sent_at_the_end() -> None:
    sender = Sender()
    dispatcher = TraceDispatcher("g", sender.send)
    for record in records(3):
        dispatcher.add([record])
    assert sender.sends == 0
    await dispatcher.close(10)
    assert (sender.lines, sender.sends) == (3, 1)


async def test_records_do_not_wait_for_the_end() -> None:
    sender = Sender()
    dispatcher = TraceDispatcher("g", sender.send)
    dispatcher.add(records(1))
    await sender.asked.wait()  # after the interval
    sender.asked.clear()
    dispatcher.add(records(FLUSH_RECORDS))
    await sender.asked.wait()
    await dispatcher.close(10)
    assert sender.lines == 1 + FLUSH_RECORDS


async def test_an_end_without_records_sends_nothing() -> None:
    sender = Sender()
    dispatcher = TraceDispatcher("g", sender.send)
    dispatcher.add([])
    await dispatcher.close(10)
    assert sender.sends == 0


async def test_more_than_the_limit_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    sender = Sender()
    sender.gate.clear()
    dispatcher = TraceDispatcher("g", sender.send)
    dispatcher.add(records(FLUSH_RECORDS))
    await sender.asked.wait()
    dispatcher.add(records(MAX_WAITING_RECORDS + 2))
    sender.gate.set()
    await dispatcher.close(10)
    assert sender.lines == FLUSH_RECORDS + MAX_WAITING_RECORDS
    assert [record.getMessage() for record in caplog.records] == [
        "dropped 1 message trace records of group g: more than 20,000 records wait"
    ]


async def test_a_failed_send_is_logged_once_and_the_next_ones_are_tried(caplog: pytest.LogCaptureFixture) -> None:
    sender = Sender()
    sender.error = NoRoute("there is no topic")
    dispatcher = TraceDispatcher("g", sender.send)
    for _ in range(2):
        sender.asked.clear()
        dispatcher.add(records(2))
        await sender.asked.wait()
    sender.error = None
    dispatcher.add(records(3))
    await dispatcher.close(10)
    assert (sender.lines, sender.sends) == (3, 3)
    assert [record.getMessage() for record in caplog.records] == [
        "dropped 2 message trace records of group g: there is no topic"
    ]


async def test_an_end_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    sender = Sender()
    sender.gate.clear()
    dispatcher = TraceDispatcher("g", sender.send)
    dispatcher.add(records(FLUSH_RECORDS))
    await sender.asked.wait()
    dispatcher.add(records(5))
    await dispatcher.close(0.01)
    assert sender.lines == 0
    assert [record.getMessage() for record in caplog.records] == [
        "dropped 5 message trace records of group g: the client is closed"
    ]
