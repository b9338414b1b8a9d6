"""`raptormq plan-capacity`: the plan compared with manual calculations, and with the real size of a stored message."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.filled_log import BODY_BYTES, fill_log
from raptormq.cli.capacity import FIGURES, GIB, STORED_BESIDE_BODY_BYTES, TIB, Load, Sends, plan
from raptormq.cli.main import run
from raptormq.storage import MessageStore, StoreConfig

Run = Callable[..., subprocess.CompletedProcess[bytes]]
HOURS_72 = 72 * 3600


def test_the_published_example() -> None:
    planned = plan(Load(100_000, 1000, HOURS_72))
    assert planned.body_bytes_per_day == 8.64e12
    assert planned.published_disk_bytes == 25.92e12
    assert planned.published_cores == 10


def test_single_messages_are_limited_by_their_number() -> None:
    planned = plan(Load(100_000, 1000, HOURS_72))
    assert (planned.groups, planned.limited_by) == (5, "messages per second")  # of 24,507 each
    assert planned.busy_cores == pytest.approx(1.68)
    assert planned.cores_per_broker == 1
    assert planned.written_per_broker_bytes_s == 100_000 * 1200 / 5
    assert planned.memory_per_broker_bytes == 4 * GIB
    assert planned.volume_per_broker_bytes / GIB == 7728  # (20,000 x 1,200 x 259,200 + 2 GiB) / 0.75


def test_each_consumer_group_costs_what_it_was_measured_to_cost() -> None:
    one, three = (plan(Load(100_000, 1000, 3600, consumer_groups=count, sends=Sends.BATCHES)) for count in (1, 3))
    assert one.busy_cores == pytest.approx(0.30)
    assert three.busy_cores == pytest.approx(0.48)
    assert (one.groups, three.groups) == (1, 2)
    figure = FIGURES[Sends.WAITING]
    assert figure.rate_with(0) == figure.rate
    assert figure.rate_with(1) == pytest.approx(figure.rate * 32.5 / 36.5)


def test_large_messages_are_limited_by_their_bytes_and_cached_for_a_minute() -> None:
    planned = plan(Load(8_000, 64 * 1024, 600))
    assert (planned.groups, planned.limited_by) == (4, "bytes per second")  # of 147 MB/s each
    assert planned.memory_per_broker_bytes == 8 * GIB  # 131 MB/s x 60 s, and 640 MiB


def test_long_retention_is_limited_by_the_largest_volume() -> None:
    planned = plan(Load(10_000, 1000, 30 * 86_400))
    assert (planned.groups, planned.limited_by) == (2, "the size of a volume")
    assert planned.volume_per_broker_bytes <= 32 * TIB


def test_copies_are_brokers() -> None:
    planned = plan(Load(100_000, 1000, HOURS_72, copies=3))
    assert (planned.groups, planned.brokers) == (5, 15)


def test_a_small_load_needs_one_broker_with_room_for_its_segments() -> None:
    planned = plan(Load(1, 100, 60, consumer_groups=0))
    assert (planned.groups, planned.brokers, planned.cores_per_broker) == (1, 1, 1)
    assert planned.volume_per_broker_bytes == 3 * GIB


def test_what_is_stored_beside_a_body_is_what_a_store_takes(tmp_path: Path) -> None:
    messages = fill_log(tmp_path / "store", 12_000_000)
    store = MessageStore(StoreConfig(tmp_path / "store"))
    store.open()
    record = store.stats().end_offset / messages - BODY_BYTES
    store.close()
    of_queue_and_index = 20 + 20
    assert record + of_queue_and_index == pytest.approx(STORED_BESIDE_BODY_BYTES, rel=0.1)


def test_a_table_for_people(raptormq: Run) -> None:
    done = raptormq("plan-capacity", "--rate", "100k", "--size", "1000", "--replicas", "2")
    text = done.stdout.decode()
    rows = {line.split("  ")[0].strip(): line.split() for line in text.splitlines() if line.strip()}
    assert rows["broker groups"][2] == "5"
    assert rows["brokers"][1] == "10"
    assert rows["memory"][1:3] == ["40Gi", "4Gi"]
    assert rows["volumes"][1:3] == ["77280Gi", "7728Gi"]
    assert "49,015 msg/s" in text
    assert "measured on 2 cores" in text
    assert "bench/results/batch.md" in text
    assert "10.0 cores (1 for 10,000 msg/s), at least 8 GB of memory, 8.6 TB per day, 25.9 TB in 72 h" in text
    assert "note: this version does not replicate yet" in text
    assert "64 groups" not in text


def test_json_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--rate", "100k", "--size", "1kB", "--retention", "3d", "--sends", "batches", "-o", "json"]
    assert run(["plan-capacity", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["load"] == {
        "rate": 100_000,
        "body_bytes": 1000,
        "retention_s": HOURS_72,
        "copies": 1,
        "consumer_groups": 1,
        "sends": "batches",
    }
    assert (found["groups"], found["brokers"], found["limited_by"]) == (2, 2, "the size of a volume")
    assert found["figure"]["source"] == "bench/results/batch.md"
    assert "2 cores" in found["machine"]


def test_more_groups_than_a_cluster_has_are_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan-capacity", "--rate", "10M", "--size", "2kB"]) == 0
    text = capsys.readouterr().out
    assert "note: a BrokerCluster has at most 64 groups; distribute the topics to several clusters" in text
    assert "note: messages larger than 1 KiB need more CPU time, which was not measured" in text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "Missing option '--rate'"),
        (
            ["--rate", "fast", "--size", "1"],
            "'fast' is not a rate in messages per second above 0, such as",
        ),
        (["--rate", "1", "--size", "1K"], "'1K' is ambiguous: use 1KB (powers of 1,000) or 1KiB (powers of 1,024)"),
        (["--rate", "1", "--size", "5MiB"], "brokers accept messages of up to 4,194,304 bytes (maxMessageSize)"),
        (["--rate", "1", "--size", "1", "--retention", "72"], "'72' is not a time above 0 with its unit"),
        (["--rate", "1", "--size", "1", "--replicas", "6"], "6 is not in the range 1<=x<=5"),
    ],
)
def test_what_is_refused(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan-capacity", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert line in captured.err
    assert captured.err.count("\n") == 1
