"""What the store gets of the broker's settings, and of the limits of its process."""

from __future__ import annotations

import resource

import pytest

from raptormq.broker.config import BrokerConfig
from raptormq.broker.store_settings import open_queue_files, store_config
from raptormq.errors import ConfigError


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(resource.RLIM_INFINITY, 16_384), (1 << 20, 16_384), (20_000, 12_500), (1_024, 640), (1, 1)],
)
def test_files_of_queues_leave_descriptors_for_others(
    monkeypatch: pytest.MonkeyPatch, limit: int, expected: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, resource.RLIM_INFINITY))
    assert store_config(BrokerConfig.from_pairs({}), bytes(8)).max_open_queue_files == expected


def test_fewer_files_may_be_asked_for() -> None:
    assert open_queue_files(3) == 3


def test_how_much_of_the_log_stays_in_the_page_cache() -> None:
    assert store_config(BrokerConfig.from_pairs({}), bytes(8)).kept_page_bytes == 1 << 30
    given = BrokerConfig.from_pairs({"logBytesKeptInPageCache": "256M"})
    assert store_config(given, bytes(8)).kept_page_bytes == 256 << 20


@pytest.mark.parametrize("pairs", [{"maxIndexNum": "99999"}, {"maxIndexNum": "1000", "maxHashSlotNum": "50050"}])
def test_index_files_with_few_entries_and_many_slots_are_refused(pairs: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"maxIndexNum = .* is too little for maxHashSlotNum"):
        store_config(BrokerConfig.from_pairs(pairs), bytes(8))


def test_index_files_need_not_be_large() -> None:
    with pytest.raises(ConfigError, match="maxIndexNum"):
        BrokerConfig.from_pairs({"maxIndexNum": "999"})
    settings = store_config(BrokerConfig.from_pairs({"maxIndexNum": "1000", "maxHashSlotNum": "50000"}), bytes(8))
    assert (settings.index_entries, settings.index_slots) == (1_000, 50_000)
    assert store_config(BrokerConfig.from_pairs({"maxIndexNum": "100000"}), bytes(8)).index_entries == 100_000
