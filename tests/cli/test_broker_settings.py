"""`raptormq cluster settings`: settings of a running broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def shown(raptormq: Run, address: str, *words: str) -> dict[str, str]:
    done = raptormq("cluster", "settings", "show", *words, "-o", "json", "-n", address)
    assert done.returncode == 0, done.stderr
    settings: dict[str, str] = json.loads(done.stdout)
    return settings


def test_settings_are_shown_and_changed(raptormq: Run, dev_server: Any) -> None:
    address, broker = dev_server.address("namesrv"), dev_server.address("broker")
    everything = shown(raptormq, address, "broker-a")
    assert everything["brokerName"] == "broker-a"
    done = raptormq("cluster", "settings", "set", "broker-a", "fileReservedTime=47", "-n", address)
    assert (done.returncode, done.stdout.decode()) == (0, f"{broker} has changed fileReservedTime\n")
    assert shown(raptormq, address, broker, "fileReservedTime") == {"fileReservedTime": "47"}
    assert shown(raptormq, address, "broker-a") == everything | {"fileReservedTime": "47"}
    table = raptormq("cluster", "settings", "show", "broker-a", "fileReservedTime", "-n", address).stdout.decode()
    assert table.split()[-2:] == ["fileReservedTime", "47"]


def test_settings_for_the_next_start_are_named(raptormq: Run, dev_server: Any) -> None:
    address = dev_server.address("namesrv")
    done = raptormq("cluster", "settings", "set", "broker-a", "mappedFileSizeCommitLog=32M", "-n", address)
    assert done.returncode == 0
    assert "effective at the next start: mappedFileSizeCommitLog" in done.stdout.decode()


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["set", "broker-a", "noSuchSetting=1"], 2, "noSuchSetting"),
        (["set", "broker-a", "fileReservedTime=soon"], 2, "fileReservedTime"),
        (["set", "broker-a", "fileReservedTime=1", "fileReservedTime=2"], 2, "given twice"),
        (["set", "broker-a", "fileReservedTime"], 2, "is not KEY=VALUE"),
        (["set", "broker-a", "authenticationEnabled=true"], 5, "black list"),
        (["show", "no-such-broker"], 4, "no broker no-such-broker is registered"),
        (["show", "broker-a", "noSuchSetting"], 4, "has no setting noSuchSetting"),
        (["show", "127.0.0.1:1"], 3, "127.0.0.1:1"),
    ],
)
def test_bad_input_has_its_exit_code(
    raptormq: Run, dev_server: Any, words: list[str], code: int, expected: str
) -> None:
    done = raptormq("cluster", "settings", *words, "-n", dev_server.address("namesrv"))
    assert (done.returncode, done.stderr.count(b"\n"), expected in done.stderr.decode()) == (code, 1, True), done.stderr
