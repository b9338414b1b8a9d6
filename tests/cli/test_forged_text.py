"""Names with line feeds and escape sequences, sent to real servers: logs and tables show them escaped."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.signing import Credentials, sign
from raptormq.transport.pool import ConnectionPool
from tests.names import unique

Run = Callable[..., subprocess.CompletedProcess[bytes]]
Serve = Callable[..., AbstractContextManager[Any]]

FORGED = "x\n2026-01-01 00:00:00,000 INFO raptormq.broker: all is well\r\x1b[2J"
SHOWN = r"x\n2026-01-01 00:00:00,000 INFO raptormq.broker: all is well\r\x1b[2J"
RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?:DEBUG|INFO|WARNING|ERROR) [\w.]+: ")


async def ask(address: str, *commands: RemotingCommand) -> list[int]:
    pool = ConnectionPool()
    try:
        return [(await pool.request(address, command, 10)).code for command in commands]
    finally:
        await pool.close()


def lines_of(log: Path) -> list[str]:
    """Return the lines of a log. Each must be a complete record without control characters."""
    text = log.read_bytes().decode()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), text
    lines = text.removesuffix("\n").split("\n")
    assert all(RECORD.match(line) for line in lines), text
    return lines


def write(path: Path, pairs: Mapping[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
    return str(path)


async def test_a_name_server_shows_what_brokers_call_themselves(serving: Serve, tmp_path: Path) -> None:
    pairs = {"listenPort": "0", "bindAddress": "127.0.0.1", "kvConfigPath": str(tmp_path / "kv.json")}
    fields = {
        "brokerName": FORGED, "brokerAddr": f"{FORGED}:10911", "clusterName": FORGED, "haServerAddr": FORGED,
        "brokerId": "0",
    }  # fmt: skip
    log = tmp_path / "log"
    command = ("namesrv", "-c", write(tmp_path / "namesrv.conf", pairs), "--log-level", "debug")
    with log.open("w") as stderr, serving(*command, stderr=stderr) as server:
        codes = await ask(
            server.address("namesrv"),
            RemotingCommand(RequestCode.REGISTER_BROKER, fields),
            RemotingCommand(RequestCode.UNREGISTER_BROKER, fields),
            RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": FORGED}),
        )
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=30)
    assert codes[:2] == [ResponseCode.SUCCESS, ResponseCode.SUCCESS]
    assert [line for line in lines_of(log) if f"broker {SHOWN}" in line and "is registered" in line]


async def test_a_broker_shows_who_is_refused(serving: Serve, tmp_path: Path) -> None:
    pairs = {
        "storePathRootDir": str(tmp_path / "store"), "mappedFileSizeCommitLog": "1M", "listenPort": "0",
        "brokerIP1": "127.0.0.1", "brokerName": "a", "authenticationEnabled": "true",
        "initAuthenticationUser": '{"username": "root", "password": "root-secret"}',
    }  # fmt: skip
    signed = RemotingCommand(RequestCode.GET_BROKER_CONFIG, {FORGED: FORGED})
    sign(signed, Credentials(FORGED, "guessed"))
    log = tmp_path / "log"
    command = ("broker", "-c", write(tmp_path / "broker.conf", pairs), "--log-level", "debug")
    with log.open("w") as stderr, serving(*command, stderr=stderr) as server:
        assert await ask(server.address("broker"), signed) == [ResponseCode.NO_PERMISSION]
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=30)
    assert [line for line in lines_of(log) if f"User:{SHOWN} is not found" in line]


async def test_tables_show_what_members_call_themselves(
    dev_server: Any, raptormq: Run, command_line: Callable[..., list[str]]
) -> None:
    names, group = dev_server.address("namesrv"), unique("forgers")
    heartbeat = HeartbeatData(FORGED, [], [ConsumerData(group, subscriptions=[Subscription("forged", FORGED)])])
    pool = ConnectionPool()
    try:
        beat = RemotingCommand(RequestCode.HEART_BEAT, {}, heartbeat.to_json())
        assert (await pool.request(dev_server.address("broker"), beat, 10)).code == ResponseCode.SUCCESS
        shown = raptormq("group", "describe", group, namesrv=names)
    finally:
        await pool.close()
    assert shown.returncode == 0, shown.stderr
    assert SHOWN.partition(" ")[0].encode() in shown.stdout
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", shown.stdout)
