"""Division of the descriptors of a process."""

from __future__ import annotations

import sys

import pytest

from raptormq.errors import ConfigError
from raptormq.transport.descriptors import LEAST, share

CONNECTIONS, QUEUE_FILES = 20_000, 16_384


@pytest.mark.parametrize(
    ("limit", "connections", "queue_files", "log_files", "reserve"),
    [
        (128, 43, 21, 16, 48),
        (1_024, 598, 298, 32, 96),
        (20_000, 12_651, 6_325, 256, 768),
        (40_000, 20_000, 16_384, 256, 3_360),
        (1 << 20, CONNECTIONS, QUEUE_FILES, 256, (1 << 20) - CONNECTIONS - QUEUE_FILES - 256),
    ],
)
def test_shares_of_a_broker(limit: int, connections: int, queue_files: int, log_files: int, reserve: int) -> None:
    budget = share(limit, CONNECTIONS, QUEUE_FILES)
    assert (budget.connections, budget.queue_files, budget.log_files, budget.reserve) == (
        connections,
        queue_files,
        log_files,
        reserve,
    )


@pytest.mark.parametrize("wanted", [(1, 1), (20_000, 16_384), (10, 100_000), (100_000, 10), (16_384, 0)])
def test_no_more_is_given_than_there_is_or_is_wanted_and_nothing_is_kept_from_who_wants_it(
    wanted: tuple[int, int],
) -> None:
    for limit in (*range(LEAST, 3_000, 7), 20_000, 65_536, 1 << 20, sys.maxsize):
        budget = share(limit, *wanted)
        assert budget.connections + budget.queue_files + budget.log_files + budget.reserve == limit
        assert 0 < budget.connections <= wanted[0]
        assert min(1, wanted[1]) <= budget.queue_files <= wanted[1]
        assert budget.log_files >= (16 if wanted[1] else 0)
        assert budget.reserve >= 48
        if (budget.connections, budget.queue_files) != wanted:
            assert budget.reserve + budget.log_files <= 1_024


def test_a_file_less_wanted_is_a_connection_more() -> None:
    assert share(1_024, 20_000, 100).connections == 1_024 - 128 - 100
    assert share(1_024, 100, 20_000).queue_files == 1_024 - 128 - 100


def test_too_few_are_refused() -> None:
    assert share(LEAST, 1, 1).connections == 1
    with pytest.raises(ConfigError, match="127 descriptors are too few, at least 128 are needed: raise ulimit -n"):
        share(LEAST - 1, 1, 1)


def test_the_line_for_the_log_names_all_shares() -> None:
    assert str(share(1_024, 20_000, 16_384)) == (
        "1024 descriptors: 598 for connections, 298 for files of queues, 32 for files of the log, 96 for all else"
    )
    assert str(share(1_024, 20_000)) == "1024 descriptors: 896 for connections, 128 for all else"
