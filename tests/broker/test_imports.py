"""What a broker loads: each starts in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.broker.harness import SMALL

_START = """
import asyncio, json, sys
from raptormq.broker.broker import Broker
from raptormq.broker.config import BrokerConfig

async def start():
    broker = Broker(BrokerConfig.from_pairs(json.loads(sys.argv[1])))
    await broker.start()
    print(*sys.modules)
    await broker.stop()

asyncio.run(start())
"""
_OF_A_MEMBER = "raptormq.raft", "raptormq.broker.replication", "raptormq.broker.group_wiring"
_OF_A_PAIR = "raptormq.broker.ha", "raptormq.broker.ha_wiring"


def loaded_by(folder: Path, pairs: dict[str, str]) -> set[str]:
    """Return the modules in the process of a broker that has started with these settings."""
    settings = json.dumps(SMALL | {"storePathRootDir": str(folder)} | pairs)
    code = [sys.executable, "-c", _START, settings]
    return set(subprocess.run(code, capture_output=True, text=True, check=True).stdout.split())


def parts_of(packages: tuple[str, ...], loaded: set[str]) -> list[str]:
    """Return the modules of these packages."""
    return sorted(name for name in loaded if f"{name}.".startswith(tuple(f"{package}." for package in packages)))


def test_only_a_member_of_a_group_loads_replication(tmp_path: Path, free_port: int) -> None:
    """Loading it takes a tenth of the time in which other brokers start."""
    group = {"dLegerGroup": "g", "dLegerPeers": f"n0-127.0.0.1:{free_port}", "dLegerSelfId": "n0"}
    assert loaded_by(tmp_path / "member", {"enableDLegerCommitLog": "true"} | group).issuperset(_OF_A_MEMBER)
    loaded = loaded_by(tmp_path / "alone", {})
    assert "raptormq.broker.wiring" in loaded
    assert parts_of(_OF_A_MEMBER, loaded) == []


def test_only_a_master_with_slaves_loads_its_replication(tmp_path: Path) -> None:
    assert loaded_by(tmp_path / "master", {"brokerRole": "ASYNC_MASTER"}).issuperset(_OF_A_PAIR)
    loaded = loaded_by(tmp_path / "alone", {})
    assert "raptormq.broker.wiring" in loaded
    assert parts_of(_OF_A_PAIR, loaded) == []


def test_a_broker_that_scans_little_loads_nothing_for_processes(tmp_path: Path) -> None:
    assert "multiprocessing" not in loaded_by(tmp_path, {})
