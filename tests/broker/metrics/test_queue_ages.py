"""The store times of messages, read only from their own records, whatever these contain."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.broker.metrics.lag import NO_TIMESTAMP, first_stored_at, last_stored_at, stored_at
from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.storage.read import batch_unpacker as batch_records
from tests.broker.batches.batch_peer import create_topic, named, send_batch
from tests.broker.batches.test_wrapped_batches import MARK, PROPERTIES, SEALED, send_wrapped
from tests.broker.harness import connected, running
from tests.clock import Clock


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
async def test_every_message_has_the_time_of_its_record(tmp_path: Path, queue_type: str) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await create_topic(peer, attributes=f"+queue.type={queue_type}")
        begin = clock.hold()
        await send_batch(peer, named("a", "b", "c"))
        clock.move(1000)
        await send_batch(peer, named("d", "e"), "UNIQ_KEY\x01B2\x02")
        store = broker._store
        times = [await stored_at(store, "b", 0, offset) for offset in range(-1, 7)]
        ends = await first_stored_at(store, "b", 0), await last_stored_at(store, "b", 0)
        empty = await first_stored_at(store, "b", 1), await last_stored_at(store, "b", 1)
    assert times == [NO_TIMESTAMP, *[begin] * 3, *[begin + 1000] * 2, NO_TIMESTAMP, NO_TIMESTAMP]
    assert ends == (begin, begin + 1000)
    assert empty == (NO_TIMESTAMP, NO_TIMESTAMP)


async def test_questions_about_progress_and_statistics_take_no_batch_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_records, "unwrap", None)
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send_batch(peer, named("a", "b", "c"))
        assert (await send_wrapped(peer, SEALED, INNER_BATCH, PROPERTIES + MARK)).code == 0
        await send_batch(peer, named("d", "e"), "UNIQ_KEY\x01B2\x02")
        last = await stored_at(broker._store, "b", 0, 7)
        place = {"consumerGroup": "g", "topic": "b", "queueId": 0}
        await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": 2})
        progress = await peer.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": "b"})
        spans = await peer.call(RequestCode.QUERY_CONSUME_TIME_SPAN, {"group": "g", "topic": "b"})
        statistics = await peer.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "b"})
        earliest = await peer.call(RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "b", "queueId": 0})
    assert [answer.code for answer in (progress, spans, statistics, earliest)] == [0] * 4
    assert f'"lastUpdateTimestamp":{last}' in statistics.body.decode().replace(" ", "")
    span = loads_object(spans.body)["consumeTimeSpanSet"][0]
    assert (span["minTimeStamp"], span["maxTimeStamp"]) == (int(earliest.ext_fields["timestamp"]), last)
    assert f'"lastTimestamp":{span["consumeTimeStamp"]}' in progress.body.decode().replace(" ", "")


async def test_a_damaged_item_does_not_tell_the_time_of_another_queue(tmp_path: Path) -> None:
    file = tmp_path / "consumequeue" / "t" / "0" / f"{0:020}"
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("other", b"the first record of the log")
        for _ in range(3):
            await peer.send("t", b"x")
        queues = broker._store._queues
        queues.flush(100)
        with file.open("r+b") as written:
            written.seek(20)
            written.write(bytes(20))
        times = [await stored_at(broker._store, "t", 0, offset) for offset in range(3)]
    assert [time == NO_TIMESTAMP for time in times] == [False, True, False]
