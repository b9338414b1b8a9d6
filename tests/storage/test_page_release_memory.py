"""The page evictor drops its state of deleted topics and of groups that have caught up."""

from __future__ import annotations

import pytest

from raptormq.storage.maintenance import page_eviction as page_release
from raptormq.storage.maintenance.page_eviction import STALLED_S
from tests.storage.released import KEPT, STEP, Released


def delete(released: Released, topic: str) -> None:
    released.store.delete_topic(topic)
    released.store.consumer_offsets.remove_topic(topic)


async def test_topics_that_are_gone_are_forgotten() -> None:
    released = Released()
    for number in range(40):
        await released.send(1000, topic=f"topic-{number}", queue_id=number % 4)
        delete(released, f"topic-{number}")
    await released.send(4 * KEPT, topic="alive", consumed=True)
    assert set(released.releaser._ends) == {"alive"}
    assert released.releaser._backlogs == {}


async def test_groups_that_have_caught_up_are_forgotten() -> None:
    released = Released()
    await released.send(1000)
    for group in ("a", "b"):
        released.consume_all(group)
    await released.send(3 * KEPT)
    assert {place[1] for place in released.releaser._backlogs} == {"a", "b"}
    released.consume_all("a")
    await released.look()
    assert {place[1] for place in released.releaser._backlogs} == {"b"}
    released.consume_all("b")
    await released.send(1)
    released.consume_all("a")
    released.consume_all("b")
    await released.send(3 * KEPT, topic="other", consumed=True)
    assert {place[0] for place in released.releaser._backlogs} <= {"other"}
    assert released.behind <= KEPT + STEP


async def test_a_topic_that_was_made_again_is_waited_for_from_its_beginning() -> None:
    released = Released()
    await released.send(50 * 600, topic="again", consumed=True)
    await released.send(4 * KEPT, topic="main", consumed=True)
    delete(released, "again")
    await released.send(500, topic="again", consumed=True)
    begin = released.store.end_offset
    await released.send(2000, topic="again")
    await released.send(3 * KEPT, topic="main", consumed=True)
    assert released.volume.unloaded[-1][1] <= begin


async def test_the_life_that_a_topic_had_before_blocks_nothing() -> None:
    released = Released()
    await released.send(600, topic="again", consumed=True)
    await released.send(KEPT, topic="again")
    delete(released, "again")
    await released.send(500, topic="again", consumed=True)
    await released.send(3 * KEPT, topic="main", consumed=True)
    assert released.behind <= KEPT + STEP


async def test_many_queues_of_one_topic_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_release, "_QUEUES_PER_STEP", 7)
    released = Released()
    for queue_id in range(30):
        await released.send(1, queue_id=queue_id, consumed=True)
    unread = released.store.end_offset
    for queue_id in range(30):
        await released.send(1, queue_id=queue_id, consumed=queue_id != 28)
    await released.send(3 * KEPT, topic="other", consumed=True)
    assert set(released.releaser._backlogs) == {("topic", "group", 28)}
    assert released.volume.unloaded[-1][1] <= unread + 28 * 600
    released.now += STALLED_S
    await released.send(1000, topic="other", consumed=True)
    assert released.behind <= KEPT + STEP
