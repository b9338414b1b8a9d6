"""Pages of the log that are evicted, and pages that must be kept."""

from __future__ import annotations

import errno
import os

import pytest

from raptormq.protocol.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC
from raptormq.storage.fs.page_cache import Extent, evict_pages
from raptormq.storage.maintenance.page_eviction import (
    MAX_WATERMARKS,
    NEW_GROUP_FACTOR,
    RECHECK_S,
    STALLED_S,
    WATERMARKS_PER_KEPT,
)
from tests.storage.memory_filesystem import MemoryFile
from tests.storage.page_cache_state import Volume
from tests.storage.released import KEPT, SEVERAL_LOOKS, STEP, Released
from tests.storage.stores import message


async def test_what_everybody_has_consumed_is_released_but_for_the_newest_bytes() -> None:
    released = Released()
    await released.send(1000)
    for _ in range(20):
        released.consume_all("a")
        released.consume_all("b")
        await released.send(3000)
    assert KEPT <= released.behind <= KEPT + STEP + 3000


async def test_a_topic_without_a_group_is_kept_for_the_first_one_but_not_for_long() -> None:
    released = Released()
    await released.send(NEW_GROUP_FACTOR * KEPT)
    assert released.volume.unloaded == []
    released.now += STALLED_S
    await released.send(1000)
    assert KEPT <= released.behind <= KEPT + STEP


@pytest.mark.parametrize("pause", [0.5, RECHECK_S])
async def test_a_topic_without_a_group_keeps_so_many_bytes_for_the_first_one(pause: float) -> None:
    """The limit also holds if the log grows much between two checks of the groups."""
    released = Released()
    for _ in range(10):
        await released.send(KEPT, pause=pause)
        assert released.behind <= NEW_GROUP_FACTOR * KEPT + STEP
    assert released.behind >= NEW_GROUP_FACTOR * KEPT


async def test_a_group_that_is_behind_keeps_more_than_a_topic_without_one() -> None:
    released = Released()
    await released.send(500, topic="consumed")
    released.consume_all(topic="consumed")
    for _ in range(10):
        await released.send(KEPT // 4, topic="consumed")
        await released.send(KEPT // 20, topic="nobody's")
    assert released.volume.unloaded == []
    released.consume_all(topic="consumed")
    await released.look()
    assert NEW_GROUP_FACTOR * KEPT <= released.behind <= NEW_GROUP_FACTOR * KEPT + STEP


async def test_what_lies_in_queues_that_do_not_grow_is_not_waited_for() -> None:
    released = Released()
    await released.send(1000, topic="old")
    released.consume_all("left", topic="old")
    await released.send(1000, topic="old")
    await released.send(1000, topic="older")
    released.restart(KEPT)
    await released.send(500)
    released.consume_all()
    for _ in range(10):
        await released.send(3000)
        released.consume_all()
    assert released.behind <= KEPT + STEP + 3000


async def test_a_letter_that_nobody_reads_is_waited_for_once_and_not_each_time_one_comes() -> None:
    released = Released()
    await released.send(500, topic="dead letters")
    for _ in range(6):
        released.now += STALLED_S / 2
        await released.send(KEPT)
        released.consume_all()
    await released.send(500, topic="dead letters")
    await released.send(2 * KEPT)
    released.consume_all()
    await released.look()
    assert released.behind <= KEPT + STEP


async def test_one_group_that_is_behind_in_one_queue_keeps_what_it_has_yet_to_consume() -> None:
    released = Released()
    for queue_id in (0, 1):
        await released.send(2000, queue_id=queue_id)
        released.consume_all("slow", queue_id=queue_id)
    consumed = released.store.end_offset
    for _ in range(10):
        await released.send(1500, queue_id=0)
        await released.send(1500, queue_id=1)
        released.consume_all("fast", queue_id=0)
        released.consume_all("fast", queue_id=1)
        released.consume_all("slow", queue_id=0)
    assert released.store.end_offset - released.behind <= consumed
    released.consume_all("slow", queue_id=1)
    await released.look()
    assert released.behind <= KEPT + STEP


async def test_a_group_that_has_not_moved_for_long_is_not_waited_for_until_it_moves_again() -> None:
    released = Released()
    await released.send(500)
    released.consume_all()
    await released.send(2 * KEPT)
    everything = released.store.end_offset
    assert released.behind >= everything - STEP
    released.now = STALLED_S
    await released.look()
    assert released.behind >= everything - STEP
    released.now += SEVERAL_LOOKS
    await released.look()
    assert released.behind <= KEPT + STEP
    released.store.consumer_offsets.commit("topic", "group", 0, 3)
    before = len(released.volume.unloaded)
    await released.send(2 * KEPT)
    assert len(released.volume.unloaded) == before


async def test_a_queue_that_is_stuck_is_not_waited_for_though_its_group_consumes_the_others() -> None:
    """An example is an unreadable message in an ordered queue."""
    released = Released()
    await released.send(500, queue_id=1)
    released.consume_all(queue_id=1)
    released.consume_all(queue_id=0)
    for _ in range(100):
        released.now += STALLED_S / 90
        await released.send(1000, queue_id=0, consumed=True)
        await released.send(500, queue_id=1)
    await released.look()
    assert released.kept <= KEPT + STEP


async def test_a_queue_that_gets_nothing_more_is_not_waited_for_in_what_comes_later() -> None:
    released = Released()
    await released.send(2000, queue_id=1)
    released.store.consumer_offsets.commit("topic", "group", 1, 1)
    await released.send((MAX_WATERMARKS + 2) * STEP, consumed=True)
    released.now += RECHECK_S
    await released.send(2 * STEP, consumed=True)
    assert released.kept <= KEPT + STEP


@pytest.mark.parametrize("topic", ["rmq_sys_REVIVE_LOG_DefaultCluster", SCHEDULE_TOPIC, TIMER_TOPIC])
async def test_topics_of_the_broker_are_not_waited_for(topic: str) -> None:
    released = Released()
    for _ in range(20):
        await released.send(1000, consumed=True)
        await released.send(1000, topic=topic)
        released.store.consumer_offsets.commit(topic, "CID_RMQ_SYS_REVIVE_GROUP", 0, 1)
    assert released.behind <= KEPT + STEP


async def test_what_is_mapped_stays() -> None:
    """The kernel would keep the page, and it would not be evicted later."""
    released = Released()
    released.store._log._resident_bytes = 3 * KEPT
    await released.send(6 * KEPT, consumed=True)
    assert released.behind >= 3 * KEPT
    assert released.volume.unloaded != []


async def test_what_no_queue_has_yet_is_not_taken_for_consumed() -> None:
    released = Released()
    await released.send(500, consumed=True)
    for _ in range(100):
        released.store.append([message("x" * 400)])
        released.store._flusher.flush()
        await released.look()
    assert released.volume.unloaded == []
    released.store.dispatch()
    await released.look()
    assert released.volume.unloaded == []


async def test_a_slow_group_that_moves_is_waited_for_however_long_it_takes() -> None:
    released = Released()
    await released.send(500)
    released.consume_all()
    await released.send(2 * KEPT)
    for offset in range(3, 9):
        released.now += STALLED_S - 1
        released.store.consumer_offsets.commit("topic", "group", 0, offset)
        await released.look()
    assert released.store.end_offset - released.behind <= 8 * 600


async def test_with_one_that_is_very_far_behind_the_oldest_is_left_to_the_kernel() -> None:
    released = Released()
    await released.send(500)
    released.consume_all()
    await released.send((MAX_WATERMARKS + 10) * STEP)
    assert released.volume.unloaded == []
    released.consume_all()
    await released.look()
    begin, end = released.volume.unloaded[0][0], released.volume.unloaded[-1][1]
    log_end = released.store.end_offset
    assert (MAX_WATERMARKS - 1) * KEPT // WATERMARKS_PER_KEPT <= log_end - begin <= (MAX_WATERMARKS + 1) * STEP
    assert log_end - end <= KEPT + STEP


async def test_what_is_not_durable_stays() -> None:
    released = Released()
    await released.send(2 * KEPT, consumed=True, durable=False)
    assert released.volume.unloaded == []
    released.store._flusher.flush()
    await released.look()
    assert released.behind <= KEPT + STEP


async def test_nothing_is_released_with_0() -> None:
    released = Released(kept=0)
    await released.send(10 * KEPT, consumed=True)
    assert released.volume.unloaded == []


async def test_what_was_there_before_the_start_is_left_to_the_kernel() -> None:
    released = Released(kept=0)
    await released.send(3 * KEPT, consumed=True)
    begin = released.store.end_offset
    released.restart(KEPT)
    await released.send(3 * KEPT, consumed=True)
    assert released.volume.unloaded[0][0] == begin


async def test_a_file_that_cannot_be_opened_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    released = Released()
    await released.send(KEPT, consumed=True)
    asked: list[str] = []

    def fail(path: str, *, create: bool = False) -> MemoryFile:
        asked.append(path)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr(released.volume, "open", fail)
    await released.send(2000, consumed=True)
    assert asked
    assert evict_pages(released.volume, [Extent(asked[0], 0, 1000)]) == 0


def test_what_was_released_is_counted() -> None:
    volume = Volume()
    volume.make_folders("/log")
    volume.open("/log/00000000000000000000", create=True)
    gone = Extent("/log/00000000000000001000", 0, 1000)
    assert evict_pages(volume, [gone, Extent("/log/00000000000000000000", 100, 300)]) == 300
    assert volume.unloaded == [(100, 400)]
