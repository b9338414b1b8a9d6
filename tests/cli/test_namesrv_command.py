"""`raptormq namesrv` as a process."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[bytes]]
Serve = Callable[..., AbstractContextManager[Any]]


def settings(folder: Path, **more: str) -> str:
    pairs = {"listenPort": "0", "bindAddress": "127.0.0.1", "kvConfigPath": str(folder / "kv.json")} | more
    path = folder / "namesrv.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
    return str(path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_and_stops(serving: Serve, raptormq: Run, tmp_path: Path, number: signal.Signals) -> None:
    with serving("namesrv", "-c", settings(tmp_path)) as server:
        topics = raptormq("topic", "list", "--all", "-o", "json", "-n", server.address("namesrv"))
        assert (topics.returncode, topics.stdout.strip()) == (0, b"[]")
        server.process.send_signal(number)
        assert server.process.wait(timeout=30) == 0
        assert server.process.stdout.read() == ""


def test_a_bad_value_is_one_line(raptormq: Run, tmp_path: Path) -> None:
    done = raptormq("namesrv", "-c", settings(tmp_path, listenPort="99999"))
    assert done.returncode == 2
    assert (
        done.stderr
        == b"raptormq: setting listenPort = '99999' is not usable: expected a whole number from 0 to 65535\n"
    )


def test_home_folder_in_a_path_is_that_of_the_user(
    serving: Serve, raptormq: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work" / "~" / "kv").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    with serving("namesrv", "-c", settings(tmp_path, kvConfigPath="~/kv/kv.json")) as server:
        done = raptormq("topic", "list", "--all", "-n", server.address("namesrv"))
        assert done.returncode == 0, done.stderr
    (tmp_path / "work" / "~" / "kv" / "kv.json").write_text("{}")
    done = raptormq("namesrv", "-c", settings(tmp_path, kvConfigPath="~/kv/kv.json"))
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
    assert f"means {tmp_path / 'kv' / 'kv.json'}, but the path {tmp_path / 'work/~/kv/kv.json'}" in done.stderr.decode()


def test_an_unknown_key_is_a_warning(serving: Serve, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as stderr, serving("namesrv", "-c", settings(tmp_path, listenport="1"), stderr=stderr):
        pass
    assert "unknown setting listenport is ignored, did you mean listenPort?" in log.read_text()


def test_a_port_in_use_is_one_line(serving: Serve, raptormq: Run, tmp_path: Path) -> None:
    with serving("namesrv", "-c", settings(tmp_path)) as server:
        port = server.address("namesrv").split(":")[1]
        done = raptormq("namesrv", "-c", settings(tmp_path, listenPort=port))
    assert done.returncode == 2
    assert done.stderr.startswith(b"raptormq: cannot listen on 127.0.0.1:" + port.encode())
    assert done.stderr.count(b"\n") == 1


def test_without_brokers_there_is_nothing_to_produce_to(serving: Serve, raptormq: Run, tmp_path: Path) -> None:
    with serving("namesrv", "-c", settings(tmp_path)) as server:
        address = server.address("namesrv")
        for command in (["produce", "t"], ["consume", "t"], ["topic", "create", "t"], ["topic", "describe", "t"]):
            done = raptormq(*command, "-n", address, stdin=b"line\n")
            assert done.returncode == 4
            assert done.stderr.startswith(b"raptormq: ")
            assert done.stderr.count(b"\n") == 1
