"""Settings of the store that are derived from broker settings and from limits of the process."""

from __future__ import annotations

import pytest

from raptormq.broker.config.config import BrokerConfig
from raptormq.broker.config.store import store_config
from raptormq.errors import ConfigError
from raptormq.storage.config import StoreConfig
from raptormq.transport.descriptors import share


def settings(pairs: dict[str, str], descriptors: int = 1 << 20) -> StoreConfig:
    config = BrokerConfig.from_pairs(pairs)
    budget = share(descriptors, config.network.max_connections, config.storage.max_open_queue_files)
    return store_config(config, bytes(8), budget)


@pytest.mark.parametrize(("descriptors", "expected"), [(1 << 20, 16_384), (20_000, 6_325), (1_024, 298), (128, 21)])
def test_files_of_queues_leave_descriptors_for_others(descriptors: int, expected: int) -> None:
    assert settings({}, descriptors).max_open_queue_files == expected


def test_fewer_files_may_be_asked_for() -> None:
    assert settings({"maxOpenQueueFiles": "3"}).max_open_queue_files == 3


def test_small_segments_do_not_take_more_descriptors_than_large_ones() -> None:
    few = settings({"mappedFileSizeCommitLog": "1M"}, 1_024)
    assert (few.max_open_segments, few.resident_bytes) == (10, 10 << 20)
    assert settings({}, 1_024).resident_bytes == settings({"mappedFileSizeCommitLog": "1M"}).resident_bytes == 64 << 20


def test_how_much_of_the_log_stays_in_the_page_cache() -> None:
    assert settings({}).kept_page_bytes == 1 << 30
    assert settings({"logBytesKeptInPageCache": "256M"}).kept_page_bytes == 256 << 20


@pytest.mark.parametrize("pairs", [{"maxIndexNum": "99999"}, {"maxIndexNum": "1000", "maxHashSlotNum": "50050"}])
def test_index_files_with_few_entries_and_many_slots_are_refused(pairs: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"maxIndexNum = .* is too small for maxHashSlotNum"):
        settings(pairs)


def test_index_files_need_not_be_large() -> None:
    with pytest.raises(ConfigError, match="maxIndexNum"):
        BrokerConfig.from_pairs({"maxIndexNum": "999"})
    small = settings({"maxIndexNum": "1000", "maxHashSlotNum": "50000"})
    assert (small.index_entries, small.index_slots) == (1_000, 50_000)
    assert settings({"maxIndexNum": "100000"}).index_entries == 100_000
