"""`raptormq dev` as a process: start, stop, restart, and errors that prevent the start."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[bytes]]
Serve = Callable[..., AbstractContextManager[Any]]

ANY_PORTS = ["--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0"]


def one_line(done: subprocess.CompletedProcess[bytes], code: int = 2) -> str:
    """Return the only line on stderr of a command that must fail."""
    assert done.returncode == code
    assert done.stdout == b""
    text = done.stderr.decode()
    assert text.startswith("raptormq: ")
    assert text.count("\n") == 1, text
    return text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_when_ready_and_a_clean_stop_within_5_seconds(
    serving: Serve, tmp_path: Path, number: signal.Signals
) -> None:
    with serving("dev", "--data-dir", str(tmp_path / "data"), *ANY_PORTS) as server:
        ports = [server.address(name).split(":") for name in ("namesrv", "broker", "metrics")]
        assert all(host == "127.0.0.1" and int(port) > 0 for host, port in ports)
        server.process.send_signal(number)
        assert server.process.wait(timeout=30) == 0
        assert server.process.stdout.read() == ""


def test_a_broker_is_registered_when_it_is_ready(serving: Serve, raptormq: Run, tmp_path: Path) -> None:
    with serving("dev", "--data-dir", str(tmp_path / "data"), *ANY_PORTS) as server:
        done = raptormq("cluster", "describe", "-o", "json", "-n", server.address("namesrv"))
        assert server.address("broker").encode() in done.stdout
        assert b"DefaultCluster" in done.stdout
        assert b"broker-a" in done.stdout
        with urllib.request.urlopen(f"http://{server.address('metrics')}/readyz", timeout=30) as answer:
            assert answer.status == 200


def test_messages_survive_a_restart(serving: Serve, raptormq: Run, tmp_path: Path) -> None:
    arguments = ["dev", "--data-dir", str(tmp_path / "data"), *ANY_PORTS]
    with serving(*arguments) as server:
        done = raptormq("produce", "kept", "-n", server.address("namesrv"), stdin=b"one\ntwo\n")
        assert done.returncode == 0, done.stderr
        server.process.terminate()
        assert server.process.wait(timeout=30) == 0
    with serving(*arguments) as server:
        done = raptormq("consume", "kept", "--no-follow", "-n", server.address("namesrv"))
        assert sorted(done.stdout.splitlines()) == [b"one", b"two"]


def test_settings_of_the_broker_are_taken_from_a_file(serving: Serve, raptormq: Run, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("brokerName=broker-x\nautoCreateTopicEnable=false\n")
    arguments = ["dev", "-c", str(tmp_path / "broker.conf"), "--data-dir", str(tmp_path / "data"), *ANY_PORTS]
    with serving(*arguments) as server:
        done = raptormq("cluster", "describe", "-o", "json", "-n", server.address("namesrv"))
        assert b"broker-x" in done.stdout
        refused = one_line(raptormq("produce", "nowhere", "-n", server.address("namesrv"), stdin=b"x\n"), code=4)
        assert "no route for topic nowhere: it does not exist" in refused


def test_a_data_directory_in_use_is_one_line(serving: Serve, raptormq: Run, tmp_path: Path) -> None:
    arguments = ["dev", "--data-dir", str(tmp_path / "data"), *ANY_PORTS]
    with serving(*arguments):
        assert str(tmp_path / "data") in one_line(raptormq(*arguments))


@pytest.mark.parametrize("name", ["namesrv", "broker", "metrics"])
def test_a_port_in_use_is_one_line(serving: Serve, raptormq: Run, tmp_path: Path, name: str) -> None:
    with serving("dev", "--data-dir", str(tmp_path / "a"), *ANY_PORTS) as server:
        port = server.address(name).split(":")[1]
        done = raptormq("dev", "--data-dir", str(tmp_path / "b"), *ANY_PORTS, f"--{name}-port", port)
        assert port in one_line(done)


@pytest.mark.parametrize("below", ["", "/data"])
def test_a_file_in_place_of_the_directory_is_one_line(raptormq: Run, tmp_path: Path, below: str) -> None:
    (tmp_path / "f.txt").write_text("")
    said = one_line(raptormq("dev", "--data-dir", f"{tmp_path / 'f.txt'}{below}", *ANY_PORTS))
    assert f"{tmp_path / 'f.txt'} is not a directory" in said


def test_an_empty_directory_is_one_line(raptormq: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "the path is empty" in one_line(raptormq("dev", "--data-dir", "", *ANY_PORTS))
    assert list(tmp_path.iterdir()) == []


def test_no_port_for_metrics(serving: Serve, tmp_path: Path) -> None:
    with serving("dev", "--data-dir", str(tmp_path / "data"), *ANY_PORTS, "--metrics-port", "-1") as server:
        assert "metrics" not in server.ready


def test_a_directory_that_cannot_be_written_is_one_line(raptormq: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "data", Path("/sys/raptormq")):
        assert str(folder) in one_line(raptormq("dev", "--data-dir", str(folder), *ANY_PORTS))


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("brokerRole=SLAVE", "brokerRole"),
        ("flushDiskType=SOMETIMES", "flushDiskType"),
        ("maxMessageSize=-1", "maxMessageSize"),
    ],
)
def test_a_bad_setting_is_one_line(raptormq: Run, tmp_path: Path, line: str, key: str) -> None:
    (tmp_path / "broker.conf").write_text(line + "\n")
    done = raptormq("dev", "-c", str(tmp_path / "broker.conf"), "--data-dir", str(tmp_path / "data"), *ANY_PORTS)
    assert key in one_line(done)
    assert not os.path.exists(tmp_path / "data")


def test_an_unknown_setting_is_a_warning(serving: Serve, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("flushDiskTyp=ASYNC_FLUSH\n")
    log = tmp_path / "log"
    arguments = ["dev", "-c", str(tmp_path / "broker.conf"), "--data-dir", str(tmp_path / "data"), *ANY_PORTS]
    with log.open("w") as stderr, serving(*arguments, stderr=stderr):
        pass
    assert "unknown setting flushDiskTyp is ignored, did you mean flushDiskType?" in log.read_text()


def test_a_group_of_three_members_fails_over(serving: Serve, raptormq: Run, tmp_path: Path) -> None:
    arguments = ["dev", "--members", "3", "--data-dir", str(tmp_path / "data"), *ANY_PORTS[:-2], "--metrics-port", "-1"]
    with (tmp_path / "errors").open("w") as errors, serving(*arguments, stderr=errors) as server:
        leader = server.address("leader")
        assert leader in ("n0", "n1", "n2")
        assert raptormq("produce", "kept", "-n", server.address("namesrv"), stdin=b"one\n").returncode == 0
        os.kill(int(server.address(f"pid-{leader}")), signal.SIGKILL)
        while "leader=" not in (tmp_path / "errors").read_text():
            assert server.process.poll() is None
            time.sleep(0.05)
        done = raptormq("consume", "kept", "--max", "1", "-n", server.address("namesrv"))
        assert b"one" in done.stdout
        server.process.terminate()
        assert server.process.wait(timeout=30) == 0
    assert f"member {leader} exited with code -9" in (tmp_path / "errors").read_text()


def test_an_even_number_of_members_is_one_line(raptormq: Run, tmp_path: Path) -> None:
    done = raptormq("dev", "--members", "2", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert b"2 is even: expected 1, 3 or 5" in done.stderr
