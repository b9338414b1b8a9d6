"""The text of a scrape: long parts are formatted in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from raptormq.broker.metrics.counters import Counters
from raptormq.broker.metrics.lag import GroupLags, TopicLag
from raptormq.broker.metrics.prometheus import BrokerMetrics
from raptormq.protocol.bodies.group_progress import GroupLag


class Watched(list[TopicLag]):
    """Lags that record the threads which have iterated over them."""

    def __init__(self, count: int) -> None:
        super().__init__(TopicLag(f"g{number}", "t", GroupLag(number, 0)) for number in range(count))
        self.threads: set[threading.Thread] = set()

    def __iter__(self) -> Iterator[TopicLag]:
        self.threads.add(threading.current_thread())
        return super().__iter__()


@pytest.mark.parametrize(("count", "is_here"), [(2_047, True), (2_048, False)])
async def test_a_thread_makes_the_figures_of_many_groups(count: int, is_here: bool) -> None:
    lags = Watched(count)
    text = await BrokerMetrics("c", "b", Counters(), dict).render(GroupLags(lags, 0))
    assert text.count(b"\nraptormq_broker_group_lag_messages{") == count
    assert (lags.threads == {threading.current_thread()}) == is_here


async def test_the_time_to_store_is_a_histogram() -> None:
    counters = Counters()
    counters.put_times.add(0.15, 2)
    text = (await BrokerMetrics("c", "b", counters, dict).render(GroupLags([], 0))).decode()
    assert 'raptormq_broker_put_seconds_bucket{broker="b",cluster="c",le="0.1"} 0.0' in text
    assert 'raptormq_broker_put_seconds_bucket{broker="b",cluster="c",le="0.2"} 2.0' in text
    assert 'raptormq_broker_put_seconds_count{broker="b",cluster="c"} 2.0' in text
    assert 'raptormq_broker_put_seconds_sum{broker="b",cluster="c"} 0.3' in text
