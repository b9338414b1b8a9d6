"""Runs the scenarios of all clients and collects their outcomes.

Two JVMs (`io.raptormq.interop.scenarios`) run concurrently, because the Java client selects the encoding of its headers
once per process: all scenarios with JSON headers, and those with further requests with binary headers. Each JVM has two
versions of the client (`io.raptormq.interop.versions`): the newest one runs all of these scenarios, 5.3.3 the quick
ones. Another JVM has the client of RocketMQ 4 (`io.raptormq.interop.old`), which exchanges messages with one of the
first two. Further clients are Node.js with ali-ons (`tests/interop/node`) and the Go client (`tests/interop/go`).
Requests that no client library sends (`raw_scenarios`) precede them. Afterwards the broker is restarted, and some
scenarios check the stored messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.interop.node_and_go import start_go, start_node
from tests.interop.raw_scenarios import play_raw
from tests.interop.rocketmq_java import JavaBuild, Release, WatchedProcess, java

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
BEFORE = (
    "SyncSend",
    "AsyncSend",
    "OnewaySend",
    "BatchSend",
    "BatchQueue",
    "CompressedSend",
    "SizeLimit",
    "TagFilter",
    "SqlFilter",
    "SinglePulls",
    "LitePull",
    "Queries",
    "BatchLookups",
    "MonitoringCalls",
    "RequestReply",
    "PopConsumption",
    "TopicLife",
)
"""Scenarios of the older client with JSON headers: the requests that all applications send."""
BEFORE_NAMES = [*(f"json-53/{name}" for name in BEFORE), *(f"binary-53/{name}" for name in BINARY)]
SEQUELS = ("BrokerRestart.After", "Transactions.After")
"""Scenarios after the restart."""
_JAVA = {
    "json": ("JSON", Release.NEWEST),
    "json-53": ("JSON", Release.REFERENCE),
    "binary": ("ROCKETMQ", Release.NEWEST),
    "binary-53": ("ROCKETMQ", Release.REFERENCE),
}
"""Java clients: the encoding of their headers, and the version."""
RUN_TIMEOUT_S = 300.0
LOCK_LIVES = {"rocketmq.broker.rebalance.lockMaxLiveTime": "6000"}
"""A setting of RaptorMQ's broker, which is a system property of the JVM of Apache RocketMQ."""
SETTINGS = {
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "recallMessageEnable": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "1000",
    "transactionOpBatchInterval": "100",
    **LOCK_LIVES,
}
"""Settings of both brokers: features that are disabled by default, and short intervals."""
REBALANCE_MS = 2_000
"""Interval at which consumers rebalance. With the default, a retry topic may wait 20 s for the second rebalance."""
RENEWAL_MS = 1_000
"""Interval at which consumers renew the locks of ordered queues, 20 s by default."""

Outcomes = dict[str, dict[str, Any]]
"""Client and scenario ("json/SyncSend", "go/Produce") -> its line: {"scenario", "seconds", "outcome" or "error"}."""


class Servers(Protocol):
    """A running name server and broker: `RocketMQServers` or `RaptorMQDev`."""

    folder: Path

    @property
    def name_servers(self) -> str:
        """Address of the name server."""

    def restart(self) -> None:
        """Stop the broker cleanly and restart it on the same data and address."""


def play(built: JavaBuild, servers: Servers) -> Outcomes:
    """Run all scenarios; raises ProcessError if a client fails as a whole. A failed scenario has an error in its
    line.
    """
    clients = ["json/all", *(f"binary/{name}" for name in BINARY), *BEFORE_NAMES, "old/all", "node/all", "go/all"]
    outcomes = play_some(built, servers, ["raw/all"]) | play_some(built, servers, clients)
    servers.restart()
    return outcomes | play_some(built, servers, SEQUELS)


def play_some(built: JavaBuild, servers: Servers, scenarios: Sequence[str]) -> Outcomes:
    """Run the named scenarios, each with its client: "go/Produce"; without a client, in Java with JSON headers."""
    chosen: dict[str, list[str]] = {}
    for name in scenarios:
        client, _, scenario = name.rpartition("/")
        chosen.setdefault(client or "json", []).append(scenario)
    raw = chosen.pop("raw", None)
    outcomes: Outcomes = play_raw(servers.name_servers, raw) if raw else {}
    runs = {client: _start(built, servers, client, names) for client, names in chosen.items() if client not in _JAVA}
    for headers in dict.fromkeys(headers for headers, _ in _JAVA.values()):
        together = {
            name: chosen[name] for name, (encoding, _) in _JAVA.items() if encoding == headers and name in chosen
        }
        if together:
            runs[headers] = _start_java(built, servers, headers, together)
    for client, run in runs.items():
        outcomes |= _outcomes(client, run)
    return outcomes


def _start(built: JavaBuild, servers: Servers, client: str, scenarios: Sequence[str]) -> WatchedProcess:
    arguments = [servers.name_servers, f"{client}_", *scenarios]
    log = servers.folder / f"scenarios-{client}.log"
    if client == "node":
        return start_node(arguments, log=log)
    if client == "go":
        return start_go(arguments, log=log)
    return _start_old(built, servers, arguments, log)


def _start_java(
    built: JavaBuild, servers: Servers, headers: str, clients: Mapping[str, Sequence[str]]
) -> WatchedProcess:
    arguments = ["io.raptormq.interop.scenarios.ScenarioRunner"]
    for client, scenarios in clients.items():
        arguments += ["--", built.client_class_path(_JAVA[client][1]), servers.name_servers, f"{client}_", *scenarios]
    return java(
        "io.raptormq.interop.versions.SideBySide",
        arguments,
        class_path=str(built.folder / "client/classes"),
        log=servers.folder / f"scenarios-{headers}.log",
        options=[
            f"-Xmx{320 * len(clients)}m",
            f"-Drocketmq.serialize.type={headers}",
            f"-Drocketmq.client.rebalance.waitInterval={REBALANCE_MS}",
            f"-Drocketmq.client.rebalance.lockInterval={RENEWAL_MS}",
            *system_properties(LOCK_LIVES),
            f"-Duser.home={servers.folder}",
        ],
    )


def _start_old(built: JavaBuild, servers: Servers, arguments: Sequence[str], log: Path) -> WatchedProcess:
    return java(
        "io.raptormq.interop.old.OldClient",
        arguments,
        class_path=built.old_client_class_path,
        log=log,
        options=[
            "-Xmx128m",
            f"-Drocketmq.client.rebalance.waitInterval={REBALANCE_MS}",
            f"-Duser.home={servers.folder}",
        ],
    )


def system_properties(settings: Mapping[str, str]) -> list[str]:
    """Return the options of a JVM."""
    return [f"-D{key}={value}" for key, value in settings.items()]


def _outcomes(client: str, run: WatchedProcess) -> Outcomes:
    """Return the outcomes of a run. Several clients in one run have their names as prefixes."""
    lines = [line.removeprefix("outcome ") for line in run.finish(RUN_TIMEOUT_S) if line.startswith("outcome ")]
    entries = map(json.loads, lines)
    return {f"{entry.get('prefix', client).removesuffix('_')}/{entry['scenario']}": entry for entry in entries}
