"""`raptormq cluster describe`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

from raptormq.broker.ha import master_client
from raptormq.cli.cluster import Member
from raptormq.cli.promote import _before, promote

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def test_every_broker_with_its_figures(raptormq: Run, dev_server: Any) -> None:
    address = dev_server.address("namesrv")
    [member] = json.loads(raptormq("cluster", "describe", "-o", "json", "-n", address).stdout)
    assert member["address"] == dev_server.address("broker")
    assert (member["cluster"], member["broker"], member["role"]) == ("DefaultCluster", "broker-a", "master")
    assert member["error"] is None
    assert member["runtime"]["brokerVersionDesc"] == "V5_3_3"
    table = raptormq("cluster", "describe", "-n", address).stdout.decode()
    [row] = [line.split() for line in table.splitlines() if "broker-a" in line]
    assert row[:6] == ["DefaultCluster", "broker-a", "master", "0", dev_server.address("broker"), "V5_3_3"]
    assert row[-1] == "up"


def test_the_table_shows_what_there_is() -> None:
    up = Member("c", "b", 0, "h:1", {"putTps": "1.26 2 3", "commitLogDiskRatio": "0.4567"}, None)
    assert up.row() == ["c", "b", "master", 0, "h:1", None, "1.3", None, "46%", "up"]
    down = Member("c", "b", 1, "h:2", {}, "no answer")
    assert down.row() == ["c", "b", "slave", 1, "h:2", None, None, None, None, "no answer"]
    odd = Member("c", "b", 1, "h:2", {"putTps": "x", "commitLogDiskRatio": "y"}, None)
    assert odd.row()[6:9] == [None, None, None]


def test_an_unreachable_name_server_is_one_line(raptormq: Run, free_port: int) -> None:
    done = raptormq("cluster", "describe", "-n", f"127.0.0.1:{free_port}")
    assert done.returncode == 3
    assert done.stderr.count(b"\n") == 1


def test_only_a_slave_is_promoted(raptormq: Run, dev_server: Any) -> None:
    done = raptormq("cluster", "promote", dev_server.address("broker"), "-n", dev_server.address("namesrv"))
    assert done.returncode == 2
    assert b"is not a slave: 'raptormq cluster describe' shows the slaves" in done.stderr


def test_promotion_waits_as_long_as_the_slave_waits_for_its_master() -> None:
    """A frozen master does not refuse connections. A command that ended earlier would not see the promotion."""
    [limit] = [option.default for option in promote.params if option.name == "timeout_s"]
    assert isinstance(limit, float)
    assert limit > master_client._TIMEOUT_S


def test_what_may_be_lost_is_told() -> None:
    behind = _before("h:1", {"commitLogMaxOffset": "100", "haMasterEnd": "130"})
    assert "Lost are offsets 100 to 130 of the log, 30 bytes, and what the master took since." in behind
    assert "Lost are what the master took since." in _before("h:1", {"commitLogMaxOffset": "7", "haMasterEnd": "7"})
