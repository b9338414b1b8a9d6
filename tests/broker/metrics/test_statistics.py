"""Counters per minute, hour and day: their values immediately, later and after a day."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq.broker.metrics.counters import Counters
from raptormq.broker.metrics.statistics import Statistics

BEGIN = 1_700_000_000_000
MINUTE, HOUR, DAY = 0, 1, 2


class Queues:
    """A store with only the ends of queues."""

    def __init__(self) -> None:
        self.ends: dict[str, list[int]] = {}

    def topics(self) -> list[str]:
        return list(self.ends)

    def queue_ids(self, topic: str) -> list[int]:
        return list(range(len(self.ends.get(topic, []))))

    def queue_end(self, topic: str, queue_id: int) -> int:
        return self.ends[topic][queue_id]


class World:
    def __init__(self) -> None:
        self.now = BEGIN
        self.queues = Queues()
        self.counters = Counters()
        store: Any = self.queues
        self.statistics = Statistics(store, self.counters, "DefaultCluster", lambda: self.now)

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds // 10):
            self.now += 10_000
            self.statistics.sample()

    def arrive(self, topic: str, *ends: int) -> None:
        self.queues.ends[topic] = list(ends)
        self.statistics.topics_arrived({topic})

    def sums(self, name: str, key: str) -> tuple[int, ...]:
        found = self.statistics.figures(name, key)
        assert found is not None
        return tuple(window.sum for window in found)


@pytest.fixture
def world() -> World:
    return World()


def test_messages_count_at_once_and_over_all_queues(world: World) -> None:
    world.arrive("t", 3, 4)
    assert world.sums("TOPIC_PUT_NUMS", "t") == (7, 7, 7)
    found = world.statistics.figures("TOPIC_PUT_NUMS", "t")
    assert found is not None
    assert found[MINUTE].tps == 0.7  # as if the statistic had existed for one period of ten seconds
    assert found[MINUTE].avgpt == 1.0


def test_what_was_stored_before_the_start_does_not_count(world: World) -> None:
    world.queues.ends["t"] = [100]
    world.statistics.start()
    assert world.statistics.figures("TOPIC_PUT_NUMS", "t") is None
    world.arrive("t", 102)
    assert world.sums("TOPIC_PUT_NUMS", "t") == (2, 2, 2)


def test_the_minute_forgets_what_hour_and_day_remember(world: World) -> None:
    world.arrive("t", 5)
    world.pass_time(120)
    assert world.sums("TOPIC_PUT_NUMS", "t") == (0, 5, 5)
    world.pass_time(3 * 3600)
    assert world.sums("TOPIC_PUT_NUMS", "t") == (0, 0, 5)
    world.arrive("t", 6)
    assert world.sums("TOPIC_PUT_NUMS", "t") == (1, 1, 6)


def test_a_steady_stream_has_the_same_rate_in_every_window(world: World) -> None:
    world.arrive("t", 0)
    for tick in range(1, 6 * 60 * 30):
        world.arrive("t", 50 * tick)
        world.pass_time(10)
    found = world.statistics.figures("TOPIC_PUT_NUMS", "t")
    assert found is not None
    assert [round(window.tps, 1) for window in found] == [5.0, 5.0, 5.0]
    assert found[HOUR].sum == pytest.approx(18_000, rel=1 / 6)
    assert found[DAY].sum == pytest.approx(432_000, rel=1 / 24)


def test_what_was_silent_for_a_day_is_dropped_and_counts_anew(world: World) -> None:
    world.arrive("t", 9)
    world.statistics.count_get("t", "g", 4, 400)
    world.statistics.count_send_back("t", "g")
    world.pass_time(27 * 3600)
    for name, key in (("TOPIC_PUT_NUMS", "t"), ("GROUP_GET_NUMS", "t@g"), ("SNDBCK_PUT_NUMS", "t@g")):
        assert world.statistics.figures(name, key) is None
    world.arrive("t", 10)
    assert world.sums("TOPIC_PUT_NUMS", "t") == (1, 1, 1)


def test_what_a_group_was_given_by_number_size_and_answer(world: World) -> None:
    world.statistics.count_get("t", "g", 10, 1000)
    world.statistics.count_get("t", "g", 20, 2000)
    assert world.sums("GROUP_GET_NUMS", "t@g") == (30, 30, 30)
    assert world.sums("GROUP_GET_SIZE", "t@g") == (3000, 3000, 3000)
    found = world.statistics.figures("GROUP_GET_NUMS", "t@g")
    assert found is not None
    assert found[DAY].avgpt == 15.0
    assert world.statistics.figures("GROUP_GET_NUMS", "t@other") is None


def test_the_whole_broker_is_asked_by_its_cluster(world: World) -> None:
    assert world.statistics.figures("BROKER_PUT_NUMS", "DefaultCluster") is None
    world.counters.messages_in, world.counters.messages_out, world.counters.pulls_found = 7, 6, 2
    assert world.sums("BROKER_PUT_NUMS", "DefaultCluster") == (7, 7, 7)
    found = world.statistics.figures("BROKER_GET_NUMS", "DefaultCluster")
    assert found is not None
    assert found[MINUTE].avgpt == 3.0
    assert world.statistics.figures("BROKER_PUT_NUMS", "other") is None


def test_a_topic_that_is_gone_is_forgotten_and_may_come_again(world: World) -> None:
    world.queues.ends["t"] = [100]
    world.statistics.start()
    world.arrive("t", 101)
    world.statistics.count_get("t", "g", 1, 10)
    world.statistics.forget("t")
    del world.queues.ends["t"]
    assert world.statistics.figures("TOPIC_PUT_NUMS", "t") is None
    assert world.statistics.figures("GROUP_GET_NUMS", "t@g") is None
    world.arrive("t", 3)
    assert world.sums("TOPIC_PUT_NUMS", "t") == (3, 3, 3)


@pytest.mark.parametrize(("name", "key"), [("NO_SUCH_STATISTIC", "t"), ("GROUP_GET_NUMS", "no-at-sign"), ("", "")])
def test_names_that_nobody_counts(world: World, name: str, key: str) -> None:
    assert world.statistics.figures(name, key) is None
