"""`raptormq broker` and `raptormq namesrv` as two processes."""

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


def write(path: Path, **pairs: str) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
    return str(path)


def test_a_broker_registers_with_its_name_server_and_leaves_it(serving: Serve, raptormq: Run, tmp_path: Path) -> None:
    namesrv = write(
        tmp_path / "namesrv.conf", listenPort="0", bindAddress="127.0.0.1", kvConfigPath=str(tmp_path / "kv.json")
    )
    broker = write(
        tmp_path / "broker.conf",
        listenPort="0",
        bindAddress="127.0.0.1",
        brokerIP1="127.0.0.1",
        brokerName="one",
        metricsPort="0",
        storePathRootDir=str(tmp_path / "store"),
    )
    with serving("namesrv", "-c", namesrv) as names:
        address = names.address("namesrv")
        with serving("broker", "-c", broker, "-n", address, "--metrics-port", "-1") as server:
            assert "metrics" not in server.ready
            done = raptormq("produce", "t", namesrv=address, stdin=b"a\n")
            assert done.returncode == 0, done.stderr
            done = raptormq("consume", "t", "--no-follow", namesrv=address)
            assert done.stdout == b"a\n"
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(timeout=30) == 0
        done = raptormq("cluster", "describe", "-o", "json", namesrv=address)
        assert (done.returncode, done.stdout.strip()) == (0, b"[]")
        done = raptormq("cluster", "describe", namesrv=address)
        assert (done.returncode, done.stdout) == (0, b"no broker is registered\n")


@pytest.mark.parametrize("command", ["broker", "namesrv"])
@pytest.mark.parametrize(
    ("pairs", "complaint"),
    [
        ({"tls.server.mode": "strict"}, b"setting tls.server.mode = 'strict' is not usable"),
        ({"tls.server.certPath": "a.pem", "tls.server.keyPath": "/nowhere/a.key"}, b"cannot read a.pem"),
    ],
)
def test_bad_settings_of_tls_are_one_line(
    raptormq: Run, tmp_path: Path, command: str, pairs: dict[str, str], complaint: bytes
) -> None:
    base = {"listenPort": "0", "metricsPort": "-1", "storePathRootDir": str(tmp_path)}
    wanted = base | {"kvConfigPath": str(tmp_path / "kv.json")} | pairs
    done = raptormq(command, "-c", write(tmp_path / "server.conf", **wanted), "--log-level", "error")
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("root", "complaint"), [("", "setting storePathRootDir = '' is not usable"), ("f.txt", "f.txt: not a folder")]
)
def test_what_is_no_folder_for_a_store_is_one_line(
    raptormq: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.txt").write_text("")
    conf = write(tmp_path / "broker.conf", listenPort="0", metricsPort="-1", storePathRootDir=root)
    done = raptormq("broker", "-c", conf, "--log-level", "error", "-n", "127.0.0.1:1")
    assert (done.returncode, done.stderr.count(b"\n"), complaint in done.stderr.decode()) == (2, 1, True), done.stderr


def test_several_paths_of_the_commit_log_are_refused_and_no_folder_is_made(raptormq: Run, tmp_path: Path) -> None:
    conf = write(
        tmp_path / "broker.conf",
        listenPort="0",
        metricsPort="-1",
        storePathRootDir=str(tmp_path / "store"),
        storePathCommitLog=f"{tmp_path}/a,{tmp_path}/b",
    )
    done = raptormq("broker", "-c", conf, "--log-level", "error", "-n", "127.0.0.1:1")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
    assert b"setting storePathCommitLog = " in done.stderr
    assert b"move the files of all folders into one" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["broker.conf"]


@pytest.mark.parametrize("path", ["~/store", "${user.home}/store"])
def test_home_folder_in_a_path_is_that_of_the_user(
    serving: Serve, raptormq: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path))
    conf = write(tmp_path / "broker.conf", listenPort="0", metricsPort="-1", storePathRootDir=path)
    with serving("broker", "-c", conf, "-n", ""):
        assert (tmp_path / "store" / "commitlog").is_dir()
        assert list(work.iterdir()) == []
    (work / path / "commitlog").mkdir(parents=True)
    done = raptormq("broker", "-c", conf, "--log-level", "error", "-n", "")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
    assert f"{path} means {tmp_path / 'store'}, but the path {work / path} exists" in done.stderr.decode()


PUBLISHED = """\ufeffbrokerClusterName=DefaultCluster
#所属集群名字
brokerName=broker-a
brokerId=0
autoCreateTopicEnable=true
listenPort=0
deleteWhen=04
fileReservedTime=120
mapedFileSizeCommitLog=1073741824
mapedFileSizeConsumeQueue=300000
diskMaxUsedSpaceRatio=100
registerNameServerPeriod=5000
timerPrecisionMs=10
haHousekeepingInterval=5000
maxMessageSize=65536
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
"""


def test_published_file_starts_with_a_warning_for_each_value_that_is_replaced(serving: Serve, tmp_path: Path) -> None:
    conf, log = tmp_path / "broker.conf", tmp_path / "log"
    more = f"bindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nmetricsPort=-1\nstorePathRootDir={tmp_path}/store\n"
    before, comment, after = PUBLISHED.partition("#所属集群名字")
    conf.write_bytes(before.encode() + comment.encode("gbk") + (after + more).encode())
    with log.open("w") as stderr, serving("broker", "-c", str(conf), "-n", "", stderr=stderr):
        pass
    warnings = [line.split(": ", 1)[1] for line in log.read_text().splitlines() if " WARNING raptormq.cli" in line]
    assert [warning.split()[1] for warning in warnings] == [
        "registerNameServerPeriod",
        "timerPrecisionMs",
        "diskMaxUsedSpaceRatio",
        "haHousekeepingInterval",
        "mapedFileSizeConsumeQueue",
    ]
    assert "setting diskMaxUsedSpaceRatio = '100' counts as 95, because the range is 10 to 95" in warnings


@pytest.mark.parametrize(
    ("pairs", "complaint"),
    [
        ({"brokerIP1": "127.0.0.1 # comment"}, "setting brokerIP1 = '127.0.0.1 # comment' is not usable"),
        (
            {"brokerIP1": "your_ip"},
            "setting brokerIP1 = 'your_ip' is not usable: expected a host name or an IP address",
        ),
        (
            {"namesrvAddr": "10.0.0.7:9876,10.0.0.8:9876"},
            "is not usable: expected host:port, or several separated by ;",
        ),
        ({"brokerName": "a|b"}, "setting brokerName = 'a|b' is not usable as a name"),
    ],
)
def test_values_that_no_client_could_use_are_one_line(
    raptormq: Run, tmp_path: Path, pairs: dict[str, str], complaint: str
) -> None:
    base = {"listenPort": "0", "metricsPort": "-1", "storePathRootDir": str(tmp_path / "store")}
    done = raptormq("broker", "-c", write(tmp_path / "broker.conf", **base, **pairs), "--log-level", "error")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
    assert complaint in done.stderr.decode()
    assert not (tmp_path / "store").exists()
