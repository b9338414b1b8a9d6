"""The complete broker: start, stop, restart, metrics and probes."""

from __future__ import annotations

import asyncio
import errno
import re
import threading
from pathlib import Path
from typing import cast

import pytest

from raptormq.broker.broker import Broker
from raptormq.errors import ConfigError, StoreDamaged, StoreReadOnly
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.fs.real import RealFileSystem
from tests.broker.harness import assembly_of, bodies, connected, running, settings
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem


async def get(port: int | None, path: str) -> tuple[int, str]:
    assert port is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def test_messages_and_tables_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for queue_id in range(4):
            await peer.send_list("t", [b"a", b"b"], queue_id)
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert [bodies(await peer.pull("t", 0, queue_id)) for queue_id in range(4)] == [[b"a", b"b"]] * 4
        assert (await peer.send("t", b"c")).ext_fields["queueOffset"] == "2"


async def test_without_auto_creation_the_template_of_an_earlier_run_goes(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    async with running(tmp_path, {"autoCreateTopicEnable": "false"}) as broker, connected(broker) as peer:
        answer = await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "TBW102"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_table_of_another_shape_is_one_line(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    (tmp_path / "config" / "topics.json").write_bytes(b'{"topicConfigTable":[1]}')
    with pytest.raises(StoreDamaged, match=r"topics\.json is damaged"):
        await Broker(settings(tmp_path)).start()


async def test_a_table_that_cannot_be_saved_at_the_stop_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyFileSystem(RealFileSystem())
    async with running(tmp_path, None, disk) as broker, connected(broker) as peer:
        assert (await peer.send("t", b"x")).code == 0
        disk.faults.append(Fault(kind="write", path="/topics.json", error=errno.ENOSPC, repeats=True))
        assert (await peer.send("u", b"x")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "topics.json: No space left on device" in caplog.text


async def test_several_brokers_in_one_process(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "a") as one,
        running(tmp_path / "b") as two,
        connected(one) as at_one,
        connected(two) as at_two,
    ):
        await at_one.send("t", b"1")
        await at_two.send("t", b"2")
        assert bodies(await at_one.pull("t", 0)) == [b"1"]
        assert bodies(await at_two.pull("t", 0)) == [b"2"]


async def test_stop_is_idempotent_and_frees_port_and_folder(tmp_path: Path, free_port: int) -> None:
    pairs = {"listenPort": str(free_port)}
    async with running(tmp_path, pairs) as broker:
        await broker.stop()
        async with running(tmp_path, pairs) as again, connected(again) as peer:
            assert (await peer.send("t", b"x")).code == 0


@pytest.mark.parametrize("part", ["pulls", "scrubber", "services"])
async def test_a_stop_that_fails_still_closes_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, free_port: int
) -> None:
    async def fail() -> None:
        raise RuntimeError("planted")

    pairs = {"listenPort": str(free_port)}
    broker = Broker(settings(tmp_path, pairs))
    await broker.start()
    assembly = assembly_of(broker)
    parts = assembly.services if part == "services" else (getattr(assembly, part),)
    stops = [each.stop for each in parts]
    monkeypatch.setattr(parts[-1], "stop", fail)
    with pytest.raises(RuntimeError, match="planted"):
        await broker.stop()
    await stops[-1]()
    async with running(tmp_path, pairs) as again, connected(again) as peer:
        assert (await peer.send("t", b"x")).code == 0


async def test_a_port_in_use_is_one_line_and_gives_the_folder_back(tmp_path: Path) -> None:
    async with running(tmp_path / "a") as broker:
        second = Broker(settings(tmp_path / "b", {"listenPort": str(broker.port)}))
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{broker.port}"):
            await second.start()
    async with running(tmp_path / "b") as broker, connected(broker) as peer:
        assert (await peer.send("t", b"x")).code == 0


async def test_a_metrics_port_in_use_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path / "a", {"metricsPort": "0", "metricsHost": "127.0.0.1"}) as broker:
        pairs = {"metricsPort": str(broker.metrics_port), "metricsHost": "127.0.0.1"}
        with pytest.raises(ConfigError, match="cannot serve metrics"):
            await Broker(settings(tmp_path / "b", pairs)).start()
    async with running(tmp_path / "b") as broker:
        assert broker.metrics_port is None


async def test_metrics_and_probes(tmp_path: Path) -> None:
    pairs = {"metricsPort": "0", "metricsHost": "127.0.0.1"}
    async with running(tmp_path, pairs) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"x"] * 3)
        await peer.pull("t", 0)
        assert (await peer.send("bad topic", b"x")).code == ResponseCode.INVALID_PARAMETER
        await peer.send("t", b"later", 0, "TIMER_DELAY_SEC\x01600\x02")
        await peer.send("t", b"half", 0, "TRAN_MSG\x01true\x02PGROUP\x01p\x02", f=4)
        assert await get(broker.metrics_port, "/healthz") == (200, "ok\n")
        assert await get(broker.metrics_port, "/readyz") == (200, "ready\n")
        status, text = await get(broker.metrics_port, "/metrics")
    assert status == 200
    label = r'\{broker="broker-a",cluster="DefaultCluster"\}'
    for name, value in (
        ("messages_in_total", "5.0"),
        ("timers_waiting", "1.0"),
        ("transactions_open", "1.0"),
        ("messages_out_total", "3.0"),
        ("sends_refused_total", "1.0"),
        ("pulls_found_total", "1.0"),
        ("connections", "1.0"),
        ("writable", "1.0"),
        ("dispatch_behind_bytes", "0.0"),
        ("dispatch_behind_milliseconds", "0.0"),
        ("recovering", "0.0"),
    ):
        assert re.search(rf"^raptormq_broker_{name}{label} {re.escape(value)}$", text, re.MULTILINE), name


class Gate:
    """A file system whose log can be read only when a test permits it."""

    def __init__(self) -> None:
        self.reached, self.free = threading.Event(), threading.Event()
        self.volume = RealFileSystem()

    def __getattr__(self, name: str) -> object:
        return getattr(self.volume, name)

    def names(self, folder: str) -> list[str]:
        names = self.volume.names(folder)
        if folder.endswith("/consumequeue"):
            self.reached.set()
            self.free.wait(30)
        return names


async def test_a_recovery_can_be_watched_and_is_not_ready(tmp_path: Path) -> None:
    pairs = {"metricsPort": "0", "metricsHost": "127.0.0.1"}
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
    (tmp_path / "abort").touch()
    gate = Gate()
    broker = Broker(settings(tmp_path, pairs), filesystem=cast("FileSystem", gate))
    start = asyncio.ensure_future(broker.start())
    try:
        await asyncio.to_thread(gate.reached.wait, 30)
        status, text = await get(broker.metrics_port, "/metrics")
        ready = await get(broker.metrics_port, "/readyz")
        alive = await get(broker.metrics_port, "/healthz")
    finally:
        gate.free.set()
        await start
    try:
        assert status == 200
        assert re.search(r"^raptormq_broker_recovering\{.*\} 1\.0$", text, re.MULTILINE)
        assert re.search(r"^raptormq_broker_dispatch_behind_bytes\{.*\} \d", text, re.MULTILINE)
        assert (ready[0], alive) == (503, (200, "ok\n"))
        assert ready[1].startswith("recovering, ")
        assert await get(broker.metrics_port, "/readyz") == (200, "ready\n")
    finally:
        await broker.stop()


async def test_a_start_that_is_cancelled_waits_for_the_recovery_and_gives_the_folder_back(tmp_path: Path) -> None:
    gate = Gate()
    start = asyncio.ensure_future(Broker(settings(tmp_path), filesystem=cast("FileSystem", gate)).start())
    await asyncio.to_thread(gate.reached.wait, 30)
    start.cancel()
    await asyncio.sleep(0)
    assert not start.done()
    gate.free.set()
    with pytest.raises(asyncio.CancelledError):
        await start
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.send("t", b"x")).code == 0


async def test_a_disk_that_failed_is_unhealthy_and_a_full_one_is_not(tmp_path: Path) -> None:
    pairs = {"metricsPort": "0", "metricsHost": "127.0.0.1", "flushDiskType": "SYNC_FLUSH"}
    disk = FaultyFileSystem(RealFileSystem())
    broker = Broker(settings(tmp_path, pairs), filesystem=disk)
    await broker.start()
    async with connected(broker) as peer:
        disk.faults.append(Fault(kind="allocate", error=errno.ENOSPC))
        assert (await peer.send("t", b"x")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await get(broker.metrics_port, "/healthz") == (200, "ok\n")
        assert await get(broker.metrics_port, "/readyz") == (200, "ready\n")
        while (await peer.send("t", b"x")).code:
            await asyncio.sleep(0.01)
        disk.faults.append(Fault(kind="sync", path="/commitlog/", error=errno.EIO))
        assert (await peer.send("t", b"x")).code == ResponseCode.FLUSH_DISK_TIMEOUT
        status, text = await get(broker.metrics_port, "/healthz")
        assert (status, "could not be flushed" in text) == (503, True)
    with pytest.raises(StoreReadOnly):
        await broker.stop()


async def test_a_broker_nobody_can_find_is_not_ready(tmp_path: Path, free_port: int) -> None:
    pairs = {"metricsPort": "0", "metricsHost": "127.0.0.1", "namesrvAddr": f"127.0.0.1:{free_port}"}
    async with running(tmp_path, pairs) as broker:
        assert await get(broker.metrics_port, "/healthz") == (200, "ok\n")
        assert await get(broker.metrics_port, "/readyz") == (503, "not registered with any name server\n")
