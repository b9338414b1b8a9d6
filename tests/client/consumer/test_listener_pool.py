"""Listener calls: their concurrency, the meaning of their results, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from raptormq.client import ConsumerConfig, ConsumeResult, MessageExt
from raptormq.client.consumer.listener_call import BatchListener, Listener, WholeBatches
from raptormq.client.consumer.listener_pool import ListenerPool
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.client.message.message_batch import DecodedMessages, MessageBatch
from tests.client.eventually import eventually
from tests.client.listener_pools import Reader, listening, message


@pytest.mark.parametrize("answer", [None, ConsumeResult.SUCCESS])
async def test_success_finishes(answer: ConsumeResult | None) -> None:
    async def listener(messages: list[MessageExt]) -> ConsumeResult | None:
        return answer

    async with listening(listener) as (_, reader, giving, hand_out):
        hand_out([message(n) for n in range(50)])
        await reader.until(50)
        assert sorted(reader.finished_offsets) == list(range(50))
        assert giving.given == []
        assert reader.process_queue.commit_offset == 50


async def fails(messages: list[MessageExt]) -> ConsumeResult | None:
    raise ValueError("as planned")


async def puts_off(messages: list[MessageExt]) -> ConsumeResult | None:
    return ConsumeResult.RECONSUME_LATER


async def never_ends(messages: list[MessageExt]) -> ConsumeResult | None:
    await asyncio.Event().wait()
    return None


@pytest.mark.parametrize("listener", [fails, puts_off, never_ends, None], ids=["fails", "later", "too long", "none"])
async def test_failure_gives_the_message_back(
    listener: Callable[[list[MessageExt]], Awaitable[ConsumeResult | None]] | None,
) -> None:
    async with listening(listener, config=ConsumerConfig(consume_timeout=0.05)) as (_, reader, giving, hand_out):
        hand_out([message(1), message(2)])
        await reader.until(2)
        assert sorted(m.queue_offset for m in giving.given) == [1, 2]


async def test_a_message_that_nobody_takes_back_is_handed_out_again_and_stays_unfinished() -> None:
    tries: list[int] = []

    async def listener(messages: list[MessageExt]) -> ConsumeResult:
        tries.append(messages[0].reconsume_times)
        assert reader.process_queue.commit_offset == 0
        return ConsumeResult.SUCCESS if len(tries) == 4 else ConsumeResult.RECONSUME_LATER

    async with listening(listener, takes=False) as (_, reader, _, hand_out):
        hand_out([message(0)])
        await reader.until(1)
        assert tries == [0, 1, 2, 3]
        assert reader.process_queue.commit_offset == 1


async def test_a_retried_message_has_its_own_topic_again() -> None:
    topics: list[str] = []

    async def listener(messages: list[MessageExt]) -> None:
        topics.extend(each.topic for each in messages)

    async with listening(listener) as (_, reader, _, hand_out):
        hand_out([message(0, "%RETRY%g", RETRY_TOPIC="t"), message(1, "%RETRY%g"), message(2)])
        await reader.until(3)
    assert sorted(topics) == ["%RETRY%g", "t", "t"]


async def test_messages_of_a_dropped_queue_are_not_handed_out() -> None:
    gate, called = asyncio.Event(), 0

    async def listener(messages: list[MessageExt]) -> None:
        nonlocal called
        called += 1
        await gate.wait()

    async with listening(listener, config=ConsumerConfig(concurrency=1)) as (_, reader, _, hand_out):
        hand_out([message(n) for n in range(3)])
        while not called:
            await asyncio.sleep(0)
        reader.process_queue.dropped = True
        gate.set()
        await reader.until(1)
        await asyncio.sleep(0)
        assert called == 1


async def test_stopping_waits_for_calls_that_run_and_starts_none() -> None:
    started, gate, ended = asyncio.Event(), asyncio.Event(), []

    async def listener(messages: list[MessageExt]) -> None:
        started.set()
        await gate.wait()
        ended.append(messages[0].queue_offset)

    async with listening(listener, config=ConsumerConfig(concurrency=1)) as (calls, reader, _, hand_out):
        hand_out([message(0), message(1)])
        await started.wait()
        stopping = asyncio.create_task(calls.stop(30))
        await asyncio.sleep(0)
        gate.set()
        await stopping
        assert ended == reader.finished_offsets == [0]


async def test_stopping_cancels_what_takes_too_long() -> None:
    started = asyncio.Event()

    async def listener(messages: list[MessageExt]) -> None:
        started.set()
        await asyncio.Event().wait()

    async with listening(listener) as (calls, reader, giving, hand_out):
        hand_out([message(0)])
        await started.wait()
        await calls.stop(0.05)
        assert reader.finished_offsets == []
        assert giving.given == []


def hand_out_batch(calls: ListenerPool, reader: Reader, offsets: range) -> None:
    batch = DecodedMessages([message(offset) for offset in offsets])
    reader.process_queue.add(offsets[0], 1, len(offsets), offsets[-1])
    calls.submit(cast("QueueReader", reader), reader.process_queue, batch)


async def test_a_batch_is_one_call_and_finished_at_once() -> None:
    seen: list[list[int]] = []

    async def listener(batch: MessageBatch) -> None:
        seen.append(list(batch.offsets))

    async with listening(WholeBatches(listener)) as (calls, reader, giving, _):
        hand_out_batch(calls, reader, range(5, 9))
        await reader.until(1)
        assert seen == [[5, 6, 7, 8]]
        assert (reader.finished_offsets, reader.process_queue.commit_offset, giving.given) == ([5], 9, [])


async def fails_whole(batch: MessageBatch) -> None:
    raise ValueError("as planned")


async def later(batch: MessageBatch) -> ConsumeResult:
    return ConsumeResult.RECONSUME_LATER


async def wrong_index(batch: MessageBatch) -> list[int]:
    return [len(batch)]


async def the_second(batch: MessageBatch) -> list[int]:
    return [1]


async def each_twice(batch: MessageBatch) -> list[int]:
    return [2, 1, 1, 2]


async def truth_values(batch: MessageBatch) -> list[int]:
    return [True, False, True]


async def a_number(batch: MessageBatch) -> Any:
    return 2


async def false(batch: MessageBatch) -> Any:
    return False


@pytest.mark.parametrize(
    ("listener", "given"),
    [
        (fails_whole, [0, 1, 2]),
        (later, [0, 1, 2]),
        (wrong_index, [0, 1, 2]),
        (truth_values, [0, 1, 2]),
        (a_number, [0, 1, 2]),
        (false, [0, 1, 2]),
        (the_second, [1]),
        (each_twice, [1, 2]),
    ],
)
async def test_what_fails_of_a_batch_is_given_back_and_nothing_else(listener: BatchListener, given: list[int]) -> None:
    async with listening(WholeBatches(listener)) as (calls, reader, giving, _):
        hand_out_batch(calls, reader, range(3))
        await reader.until(1)
        assert [each.queue_offset for each in giving.given] == given
        assert reader.process_queue.commit_offset == 3


@pytest.mark.parametrize("answer", ["yes", [3], [-1], [0, -3], [-4], [None], [[1]], 5, {"0": 1}, [True, False, True]])
async def test_a_wrong_answer_is_named_with_the_right_ones(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def listener(_: MessageBatch) -> Any:
        return answer

    async with listening(WholeBatches(listener)) as (calls, reader, giving, _):
        hand_out_batch(calls, reader, range(3))
        await reader.until(1)
        assert len(giving.given) == 3
    [line] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert f"returned {answer!r}: it returns None, a ConsumeResult, or the indexes, 0 to 2 here" in line.getMessage()
    assert line.exc_info is None


async def test_what_nobody_takes_back_of_a_batch_comes_again_without_the_others() -> None:
    seen: list[list[tuple[int, int]]] = []

    async def listener(batch: MessageBatch) -> list[int]:
        assert reader.process_queue.commit_offset == 0
        seen.append([(each.queue_offset, each.reconsume_times) for each in batch])
        return [0, 2] if len(seen) == 1 else []

    async with listening(WholeBatches(listener), takes=False) as (calls, reader, _, _):
        hand_out_batch(calls, reader, range(3))
        await reader.until(1)
    assert seen == [[(0, 0), (1, 0), (2, 0)], [(0, 1), (2, 1)]]
    assert reader.process_queue.commit_offset == 3


async def test_a_batch_listener_gets_single_messages_as_batches() -> None:
    seen: list[int] = []

    async def listener(batch: MessageBatch) -> None:
        seen.append(len(batch))

    async with listening(WholeBatches(listener)) as (_, reader, _, hand_out):
        hand_out([message(0), message(1)])
        await reader.until(2)
    assert seen == [1, 1]


@pytest.mark.parametrize("whole", [False, True])
async def test_a_listener_that_is_a_plain_function_is_called_once_and_named(
    caplog: pytest.LogCaptureFixture, whole: bool
) -> None:
    called: list[object] = []

    def plain(messages: object) -> Any:
        called.append(messages)

    async def right(messages: object) -> None:
        called.append(messages)

    later: dict[str, Listener] = {}
    async with listening(WholeBatches(plain) if whole else plain, later=later) as (calls, reader, giving, hand_out):
        hand_out([message(n) for n in range(50)])
        await eventually(lambda: "must be async def" in caplog.text)
        assert not await calls.consume_directly(message(99))
        assert len(called) == 1
        later["t"] = right
        await reader.until(50)
    [record] = caplog.records
    assert record.getMessage().startswith(
        "topic t is no longer consumed by this member of group g: a listener must be async"
    )
    assert record.exc_info is None
    assert (len(called), giving.given) == (51, [])


async def test_messages_without_a_listener_are_sent_back_though_another_listener_is_a_plain_function(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def plain(messages: object) -> Any:
        return None

    async with listening(None, later={"u": cast("Listener", plain)}) as (calls, reader, giving, hand_out):
        assert not await calls.consume_directly(message(9, "u"))
        hand_out([message(0)])
        await reader.until(1)
    assert [each.queue_offset for each in giving.given] == [0]


async def test_messages_of_one_retry_topic_go_to_the_listeners_of_their_own_topics() -> None:
    seen: list[tuple[str, list[int]]] = []

    def listener_for(topic: str) -> Listener:
        async def listener(messages: list[MessageExt]) -> None:
            seen.append((topic, [each.queue_offset for each in messages]))

        return listener

    retried = [message(offset, "%RETRY%g", RETRY_TOPIC="ab"[offset % 2]) for offset in range(5)]
    listeners = {"a": listener_for("a"), "b": listener_for("b")}
    async with listening(None, config=ConsumerConfig(consume_batch=2), later=listeners) as (_, reader, given, hand_out):
        hand_out(retried)
        await reader.until(5)
    assert sorted(seen) == [("a", [0, 2]), ("a", [4]), ("b", [1, 3])]
    assert given.given == []


async def test_a_message_of_a_retry_topic_from_an_administrator_goes_to_the_listener_of_its_own_topic() -> None:
    topics: list[str] = []

    async def listener(messages: list[MessageExt]) -> None:
        topics.extend(each.topic for each in messages)

    async with listening(None, later={"a": listener}) as (calls, *_):
        assert await calls.consume_directly(message(0, "%RETRY%g", RETRY_TOPIC="a"))
    assert topics == ["a"]


class Unusual(BaseException):
    """An error that is no `Exception`, like that of `pytest.fail`."""


async def test_a_listener_that_raises_no_exception_but_a_base_exception_fails_and_its_worker_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def bad(messages: list[MessageExt]) -> None:
        raise Unusual("as planned")

    async with listening(bad, config=ConsumerConfig(concurrency=1)) as (calls, reader, giving, hand_out):
        hand_out([message(0), message(1)])
        async with asyncio.timeout(5):
            await reader.until(2)
        assert [each.queue_offset for each in giving.given] == [0, 1]
        assert not any(worker.done() for worker in calls.workers)
    assert caplog.text.count('error="Unusual: as planned"') == 2
