"""TLS with the official Java client 5.3.3 and mqadmin: RaptorMQ's servers accept and refuse them like Apache RocketMQ.

The tests need separate servers, one for each mode. `reference_tls.json` is the outcome of the reference. This writes it
again::

    python -m tests.interop.test_tls
"""

from __future__ import annotations

import json
import ssl
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.interop.mqadmin import COMMANDS, Place, reduced, run
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import JavaBuild, Release, RocketMQServers, build, java

REFERENCE = Path(__file__).with_name("reference_tls.json")
RUN_TIMEOUT_S = 150.0
REBALANCE_MS = 500
SERVERS = {
    "permissive": {"tls.server.mode": "permissive"},
    "enforcing": {"tls.server.mode": "enforcing"},
    "disabled": {"tls.server.mode": "disabled"},
    "mutual": {
        "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": "{folder}/authority.pem",
        "tls.client.certPath": "{folder}/authority-client.pem",
        "tls.client.keyPath": "{folder}/authority-client.key",
    },
    "expired": {
        "tls.server.certPath": "{folder}/authority-late.pem",
        "tls.server.keyPath": "{folder}/authority-late.key",
    },
    "renewed": {
        "tls.server.certPath": "{folder}/authority-renewed.pem",
        "tls.server.keyPath": "{folder}/authority-renewed.key",
    },
}
"""Settings of each server in addition to a certificate of `authority`."""

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def certificates(folder: Path) -> Path:
    """Create all certificates of the servers and of the Java program."""
    folder.mkdir()
    authority, stranger = Authority(folder, "authority"), Authority(folder, "stranger")
    for name in ("server", "client", "renewed"):
        authority.issue(name)
    authority.issue("late", days=-1)
    for name in ("server", "client"):
        stranger.issue(name)
    return folder


def settings_of(server: str, folder: Path) -> dict[str, str]:
    base = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": "{folder}/authority-server.pem",
        "tls.server.keyPath": "{folder}/authority-server.key",
    }
    return {key: value.format(folder=folder) for key, value in (base | SERVERS[server]).items()}


def outcome(built: JavaBuild, folder: Path, name_servers: Mapping[str, str]) -> dict[str, Any]:
    """Run the Java program with these servers."""
    process = java(
        "io.raptormq.interop.tls.TlsClients",
        [str(folder), *(f"{name}={address}" for name, address in name_servers.items())],
        class_path=built.client_class_path(Release.NEWEST),
        log=folder / "clients.log",
        options=["-Xmx384m", f"-Duser.home={folder}", f"-Drocketmq.client.rebalance.waitInterval={REBALANCE_MS}"],
    )
    [line] = [line for line in process.finish(RUN_TIMEOUT_S) if line.startswith("outcome ")]
    found: dict[str, Any] = json.loads(line.removeprefix("outcome "))
    return found


def test_clients_are_let_in_and_refused_as_on_the_reference(tmp_path: Path) -> None:
    folder = certificates(tmp_path / "certificates")
    with ExitStack() as stack:
        running = {name: RaptorMQDev(tmp_path / name, settings=settings_of(name, folder)) for name in SERVERS}
        with ThreadPoolExecutor() as threads:
            for server in threads.map(lambda each: each.__enter__(), running.values()):
                stack.push(server)
        found = outcome(build(), folder, {name: server.name_servers for name, server in running.items()})
    assert found == json.loads(REFERENCE.read_text(encoding="utf-8"))


def test_mqadmin_prints_the_same_over_tls(tmp_path: Path) -> None:
    folder = certificates(tmp_path / "certificates")
    plain = json.loads(Path(__file__).with_name("reference_mqadmin.json").read_text(encoding="utf-8"))
    commands = [command for command in COMMANDS if "alpha" in command][:4]
    options = {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": f"{folder}/authority.pem",
        "tls.client.certPath": f"{folder}/authority-client.pem",
        "tls.client.keyPath": f"{folder}/authority-client.key",
    }
    with RaptorMQDev(tmp_path / "servers", settings=settings_of("mutual", folder)) as servers:
        place = Place(servers.name_servers, f"127.0.0.1:{servers.broker_port}", servers.folder)
        printed = run(build(), place, commands, [f"-D{key}={value}" for key, value in options.items()])
    for command, output in zip(commands, printed, strict=True):
        assert reduced(output) == plain[" ".join(command)], command


def make_reference() -> None:
    built = build()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = certificates(Path(scratch) / "certificates")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(folder / "authority-client.pem", folder / "authority-client.key")
        for name in SERVERS:
            settings = settings_of(name, folder)
            options = [f"-D{key}={value}" for key, value in settings.items()]
            enforcing = settings.get("tls.server.mode") == "enforcing"
            with RocketMQServers(
                built,
                Path(scratch) / name,
                settings={"diskMaxUsedSpaceRatio": "95"},
                options=options,
                tls=context if enforcing else None,
            ) as servers:
                found |= outcome(built, folder, {name: servers.name_servers})
    text = json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True)
    REFERENCE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    make_reference()
