"""Log messages about messages that a listener did not consume."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from raptormq.client import ConsumerConfig, ConsumeResult, Message, MessageExt, Producer, PushConsumer
from raptormq.client.consumer.failure_log import TRACEBACK_INTERVAL_S, FailureLog
from raptormq.client.consumer.listener_call import WholeBatches
from raptormq.logs import get_logger
from tests.client.consumer.test_push_consumer import FAST
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually
from tests.client.listener_pools import listening, message


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage().startswith(f"{event}: ")]


@pytest.mark.parametrize("answer", [False, True, 1, 0, "RECONSUME_LATER", [], [0]])
async def test_a_wrong_answer_is_a_type_error_and_the_message_comes_again(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def listener(messages: list[MessageExt]) -> Any:
        return answer

    async with listening(listener) as (_, reader, giving, hand_out):
        hand_out([message(7, KEYS="order-1 order-2")])
        await reader.until(1)
        assert [each.queue_offset for each in giving.given] == [7]
    [line] = lines(caplog, "listener failed")
    assert line.levelno == logging.ERROR
    text = line.getMessage()
    assert text.startswith(
        'listener failed: group=g topic=t queue=broker-0/0 offset=7 id=id7 keys="order-1 order-2" attempt=1 error="Type'
    )
    assert f"TypeError: a listener returned {answer!r}: it returns None or a ConsumeResult" in text
    assert line.exc_info is None


async def test_a_batch_has_one_line_with_its_bounds(caplog: pytest.LogCaptureFixture) -> None:
    async def listener(messages: Any) -> Any:
        return False

    async with listening(WholeBatches(listener)) as (_, reader, _, hand_out):
        hand_out([message(7)])
        await reader.until(1)
    async with listening(listener, config=ConsumerConfig(consume_batch=3)) as (_, reader, _, hand_out):
        hand_out([message(n) for n in (3, 4, 6)])
        await reader.until(3)
    first, second = lines(caplog, "listener failed")
    assert "offset=7 id=id7" in first.getMessage()
    assert "offset=3 last_offset=6 count=3 id=id3" in second.getMessage()
    assert second.fields["last_offset"] == 6  # type: ignore[attr-defined]


async def test_a_call_that_takes_too_long_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def listener(messages: list[MessageExt]) -> None:
        await asyncio.Event().wait()

    async with listening(listener, config=ConsumerConfig(consume_timeout=0.02)) as (_, reader, _, hand_out):
        hand_out([message(1)])
        await reader.until(1)
    [line] = lines(caplog, "listener failed")
    assert "TimeoutError: the call took longer than consume_timeout, 0.02 s" in line.getMessage()


def fail(text: str) -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def fail_elsewhere(text: str) -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_a_traceback_is_logged_once_per_kind_and_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    failures = FailureLog(get_logger("tests.failures"), "g", lambda: now)
    for error in (fail("a"), fail("b"), fail_elsewhere("c"), KeyError("d"), fail("e")):
        failures.failed("listener failed", [message(1)], error)
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, True, True, False]
    now = TRACEBACK_INTERVAL_S
    failures.failed("listener failed", [message(1)], fail("f"))
    assert caplog.records[-1].exc_info
    errors = [record.fields["error"] for record in caplog.records]  # type: ignore[attr-defined]
    assert errors == [
        "ValueError: a",
        "ValueError: b",
        "ValueError: c",
        "KeyError: 'd'",
        "ValueError: e",
        "ValueError: f",
    ]


def test_values_cannot_forge_other_fields(caplog: pytest.LogCaptureFixture) -> None:
    FailureLog(get_logger("tests.failures"), "g").outcome("dead letter", message(1, KEYS='a" attempt=9\nx: y'))
    [record] = caplog.records
    assert r'keys="a\" attempt=9\nx: y" attempt=1' in record.getMessage()


async def test_the_way_to_the_dead_letters_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def listener(messages: list[MessageExt]) -> ConsumeResult:
        return ConsumeResult.RECONSUME_LATER

    config = ConsumerConfig(max_reconsume_times=0, consume_from=FAST.consume_from)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            sent = await producer.send(Message("t", b"no", keys=("order-7",)))
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t", "*", listener)
        async with consumer:
            await eventually(lambda: bool(lines(caplog, "dead letter")))
    [line] = lines(caplog, "dead letter")
    place = f"group=g topic=t queue=broker-0/0 offset=0 id={sent.message_id} keys=order-7 attempt=1"
    assert line.getMessage() == f"dead letter: {place} dead_letter_topic=%DLQ%g"
    assert line.levelno == logging.WARNING
