"""Plays the scenarios of the Java project (`io.raptormq.interop.scenarios`) and collects their outcomes.

Two JVMs run side by side, since the client chooses the encoding of its headers once per process: all scenarios with
JSON headers, the part of them that brings other requests with binary ones. Then the broker is restarted, and one
scenario looks what is left.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.interop.rocketmq_java import JavaBuild, WatchedProcess, java

BINARY = (
    "SyncSend",
    "BatchSend",
    "SizeLimit",
    "TagFilter",
    "OrderedConsumption",
    "SinglePulls",
    "LitePull",
    "GroupRestart",
)
SEQUELS = ("BrokerRestart.After", "Transactions.After")
"""Played after the restart."""
RUN_TIMEOUT_SECONDS = 300.0
SETTINGS = {
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "recallMessageEnable": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "1000",
    "transactionOpBatchInterval": "100",
}
"""What the scenarios want of either broker: features that are off by default, and quick clocks."""
REBALANCE_MS = 2_000
"""How often consumers look which queues are theirs; as they are delivered, a retry topic may wait 20 s for the second
look."""

Outcomes = dict[str, dict[str, Any]]
"""Encoding and scenario ("json/SyncSend") -> its line: {"scenario", "seconds", "outcome" or "error"}."""


class Servers(Protocol):
    """A running name server and broker: `RocketMQServers` or `RaptorMQDev`."""

    folder: Path

    @property
    def name_servers(self) -> str:
        """Address of the name server."""

    def restart(self) -> None:
        """Stop the broker cleanly and start it again on the same data and address."""


def play(built: JavaBuild, servers: Servers) -> Outcomes:
    """Play everything; raises ProcessError when a JVM fails as a whole (a scenario that fails says so in its line)."""
    runs = [
        ("json", _start(built, servers, "json", ["all"])),
        ("binary", _start(built, servers, "binary", BINARY)),
    ]
    outcomes: Outcomes = {}
    for encoding, run in runs:
        outcomes |= _outcomes(encoding, run)
    servers.restart()
    return outcomes | play_some(built, servers, SEQUELS)


def play_some(built: JavaBuild, servers: Servers, scenarios: Sequence[str]) -> Outcomes:
    """Play the named scenarios with JSON headers."""
    return _outcomes("json", _start(built, servers, "json", scenarios))


def _start(built: JavaBuild, servers: Servers, encoding: str, scenarios: Sequence[str]) -> WatchedProcess:
    serialize_type = {"json": "JSON", "binary": "ROCKETMQ"}[encoding]
    return java(
        "io.raptormq.interop.scenarios.ScenarioRunner",
        [servers.name_servers, f"{encoding}_", *scenarios],
        class_path=built.client_class_path,
        log=servers.folder / f"scenarios-{encoding}.log",
        options=[
            "-Xmx384m",
            f"-Drocketmq.serialize.type={serialize_type}",
            f"-Drocketmq.client.rebalance.waitInterval={REBALANCE_MS}",
            f"-Duser.home={servers.folder}",
        ],
    )


def _outcomes(encoding: str, run: WatchedProcess) -> Outcomes:
    lines = [line.removeprefix("outcome ") for line in run.finish(RUN_TIMEOUT_SECONDS) if line.startswith("outcome ")]
    return {f"{encoding}/{entry['scenario']}": entry for entry in map(json.loads, lines)}
