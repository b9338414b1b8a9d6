"""Broadcasting: every member gets every message, failures are not redelivered, and each member has its own progress."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raptormq.client import (
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageModel,
    Producer,
    PushConsumer,
)
from raptormq.client.cluster.client_instance import _instances
from raptormq.client.consumer.local_offsets import LocalOffsets
from raptormq.errors import ClientError
from raptormq.protocol.bodies.queue_offsets import TopicIds
from raptormq.protocol.message import MessageQueue
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually
from tests.client.recording_listener import Listener


def broadcasting(folder: Path) -> ConsumerConfig:
    return ConsumerConfig(
        consume_from=ConsumeFromWhere.FIRST,
        commit_interval=0.2,
        message_model=MessageModel.BROADCASTING,
        offset_folder=str(folder),
    )


async def send(cluster: Cluster, *bodies: bytes) -> None:
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for body in bodies:
            await producer.send(Message("t", body))


async def test_every_member_gets_everything_once(tmp_path: Path) -> None:
    config = broadcasting(tmp_path / "offsets")
    listeners = [Listener(), Listener()]
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        await send(cluster, b"0", b"no", b"1")
        consumers = [PushConsumer("g", name_servers=cluster.name_servers, config=config) for _ in listeners]
        for consumer, listener in zip(consumers, listeners, strict=True):
            consumer.subscribe("t", "*", listener)
            await consumer.start()
        for listener in listeners:
            await listener.until(3)
        await send(cluster, b"2")
        for listener in listeners:
            await listener.until(4)
        assert [len(consumer.assignment) for consumer in consumers] == [2, 2]
        for consumer in consumers:
            await consumer.stop()
    assert [sorted(listener.bodies) for listener in listeners] == [[b"0", b"1", b"2", b"no"]] * 2


async def test_from_the_first_on_nothing_is_missed_of_a_topic_that_is_made_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    listener = Listener()
    async with Cluster(tmp_path) as cluster:
        config = replace(broadcasting(tmp_path / "offsets"), allow_missing_topics=True)
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t", "*", listener)
        async with consumer:
            await eventually(lambda: "group g waits for topic t" in caplog.text)
            await cluster.create_topic("t", 1)
            await send(cluster, b"0", b"1")
            await listener.until(2)
    assert listener.bodies == [b"0", b"1"]


@pytest.mark.parametrize("name", [{"instance_name": "always-the-same"}, {}], ids=["named", "unnamed"])
async def test_a_member_goes_on_where_it_was(tmp_path: Path, name: dict[str, Any]) -> None:
    config = broadcasting(tmp_path / "offsets")
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        found: list[list[bytes]] = []
        for number in range(2):
            await send(cluster, b"%d" % number)
            listener = Listener()
            client = ClientConfig(cluster.name_servers, **name)
            async with PushConsumer("g", client_config=client, config=config) as consumer:
                consumer.subscribe("t", "*", listener)
                await listener.until(1)
            found.append(listener.bodies)
    assert found == [[b"0"], [b"1"]]


async def test_offsets_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    path = tmp_path / "me" / "g" / "offsets.json"
    queue = MessageQueue("t", "b", 0)
    assert LocalOffsets(tmp_path, "me", "g").get(queue) is None
    await LocalOffsets(tmp_path, "me", "g").store(queue, 7)
    assert path.read_bytes() == b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:7}}'
    assert LocalOffsets(tmp_path, "me", "g").get(queue) == 7
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ClientError, match="cannot be written"):
        await LocalOffsets(tmp_path, "you", "g/../../file/x").store(queue, 1)


CUT = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:'


@pytest.mark.parametrize(
    "contents", [b"", bytes(60), CUT, b"[]", b'{"offsetTable":{"t":7}}', b'{"messageQueueTable":{}}']
)
async def test_damaged_offsets_are_those_of_the_backup_or_an_error_that_says_what_to_do(
    tmp_path: Path, contents: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    name, queue = "1.2.3.4@DEFAULT", MessageQueue("t", "b", 0)
    path = tmp_path / name / "g" / "offsets.json"
    backup = path.with_name("offsets.json.bak")
    before = LocalOffsets(tmp_path, name, "g")
    await before.store(queue, 7)
    await before.store(queue, 8)
    await before.close()
    path.write_bytes(contents)
    again = LocalOffsets(tmp_path, name, "g")
    assert again.get(queue) == 7
    assert f"{path} is damaged" in caplog.text
    assert f"{backup}, which may be older" in caplog.text
    await again.close()
    backup.write_bytes(contents)
    remedy = f"remove {path} and {backup}; without them it begins where ConsumerConfig.consume_from says"
    for _ in range(2):  # a refused consumer does not hold the file
        with pytest.raises(ClientError, match=re.escape(remedy)):
            LocalOffsets(tmp_path, name, "g")
    path.unlink()
    backup.unlink()
    last = LocalOffsets(tmp_path, name, "g")
    assert last.get(queue) is None
    await last.close()


async def test_a_member_whose_offsets_are_cut_goes_on_with_those_of_the_backup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = broadcasting(tmp_path / "offsets")
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        for number in range(2):  # a file, and its backup
            await send(cluster, b"%d" % number)
            listener = Listener()
            async with PushConsumer("g", name_servers=cluster.name_servers, config=config) as consumer:
                consumer.subscribe("t", "*", listener)
                await listener.until(1)
        [path] = (tmp_path / "offsets").rglob("offsets.json")
        path.write_bytes(path.read_bytes()[:40])
        listener = Listener()
        async with PushConsumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t", "*", listener)
            await send(cluster, b"2")
            await eventually(lambda: b"2" in listener.bodies)
    assert b"0" not in listener.bodies
    assert f"{path} is damaged" in caplog.text


async def test_offsets_are_durable_once_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def sync(descriptor: int, real: Callable[[int], None] = real) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            real(descriptor)

        monkeypatch.setattr(os, name, sync)
    await LocalOffsets(tmp_path, "me", "g").store(MessageQueue("t", "b", 0), 7)
    folder = tmp_path / "me" / "g"
    assert {str(each) for each in (tmp_path, tmp_path / "me", folder, folder / "offsets.json.new")} <= set(synced)
    assert synced[-1] == str(folder)  # the rename is last


async def test_progress_of_many_queues_is_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    write = LocalOffsets._write

    def counted(self: LocalOffsets, offsets: dict[MessageQueue, int], topic_ids: TopicIds) -> None:
        writes.append(len(offsets))
        write(self, offsets, topic_ids)

    monkeypatch.setattr(LocalOffsets, "_write", counted)
    offsets = LocalOffsets(tmp_path, "me", "g")
    queues = [MessageQueue("t", "b", number) for number in range(100)]
    await asyncio.gather(*(offsets.store(queue, queue.queue_id) for queue in queues))
    assert len(writes) <= 2
    again = LocalOffsets(tmp_path, "me", "g")
    assert [again.get(queue) for queue in queues] == list(range(100))


async def test_a_write_that_nobody_waits_for_any_more_ends_before_the_next_and_before_the_file_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, begun, go = MessageQueue("t", "b", 0), threading.Semaphore(0), threading.Event()
    write, to_thread = LocalOffsets._write, asyncio.to_thread
    handed_over: list[object] = []

    def stalled(self: LocalOffsets, offsets: dict[MessageQueue, int], topic_ids: TopicIds) -> None:
        begun.release()
        go.wait()
        write(self, offsets, topic_ids)

    def counted(work: Callable[..., object], *arguments: object) -> Awaitable[object]:
        handed_over.append(work)
        return to_thread(work, *arguments)

    monkeypatch.setattr(LocalOffsets, "_write", stalled)
    monkeypatch.setattr(asyncio, "to_thread", counted)
    offsets = LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "g")
    given_up = asyncio.create_task(offsets.store(queue, 1))
    await eventually(lambda: begun.acquire(blocking=False))
    given_up.cancel()
    await asyncio.wait([given_up])
    putting = asyncio.create_task(offsets.store(queue, 2))
    await asyncio.sleep(0)
    closing = asyncio.create_task(offsets.close())
    for _ in range(10):
        await asyncio.sleep(0)
    other = LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "g")
    at_the_same_time = len(handed_over)
    go.set()
    await asyncio.gather(putting, closing)
    assert at_the_same_time == 1
    assert other.get(queue) is None
    again = LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "g")
    assert again.get(queue) == 2
    for each in (other, again):
        await each.close()


async def test_a_write_that_fails_fails_for_all_that_it_was_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []

    def fail(_: LocalOffsets, offsets: dict[MessageQueue, int], topic_ids: TopicIds) -> None:
        writes.append(len(offsets))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalOffsets, "_write", fail)
    offsets = LocalOffsets(tmp_path, "me", "g")
    puts = [offsets.store(MessageQueue("t", "b", number), 1) for number in range(100)]
    failures = await asyncio.gather(*puts, return_exceptions=True)
    assert {str(each) for each in failures} == {
        f"the offsets cannot be written to {tmp_path}/me/g/offsets.json: No space left on device"
    }
    assert len(writes) <= 2


async def test_members_without_a_name_have_a_file_each_and_the_next_ones_take_them_up(tmp_path: Path) -> None:
    queue = MessageQueue("t", "b", 0)
    first, second = (LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "g") for _ in range(2))
    await first.store(queue, 1)
    await second.store(queue, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.2.3.4@DEFAULT", "1.2.3.4@DEFAULT-2"]
    assert LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "other").get(queue) is None
    await first.close()
    await first.close()
    assert LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "g").get(queue) == 1
    with pytest.raises(ClientError, match=r"offsets cannot be stored in .*set ConsumerConfig\.offset_folder"):
        LocalOffsets(tmp_path / "1.2.3.4@DEFAULT" / "g" / "lock", "1.2.3.4@DEFAULT", "g")


async def test_a_second_consumer_that_cannot_start_holds_no_file(tmp_path: Path) -> None:
    client, config = ClientConfig("127.0.0.1:1"), broadcasting(tmp_path)
    async with PushConsumer("g", client_config=client, config=config):
        with pytest.raises(ClientError, match="has a consumer"):
            await PushConsumer("g", client_config=client, config=config).start()
        [free] = [path for path in tmp_path.iterdir() if path.name.endswith("-2")]
        third = LocalOffsets(tmp_path, free.name.removesuffix("-2"), "g")
        assert len(list(tmp_path.iterdir())) == 2
        await third.close()


def descriptors(folder: Path) -> list[int]:
    """Return the files below a folder that this process has open."""
    links = ((int(link.name), os.readlink(link)) for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
    return [number for number, target in links if target.startswith(str(folder))]


async def test_a_folder_without_locks_is_named_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    consumer = PushConsumer("g", name_servers="127.0.0.1:1", config=broadcasting(tmp_path))
    for _ in range(2):
        with pytest.raises(ClientError, match=r"No locks available; set ConsumerConfig\.offset_folder"):
            await consumer.start()
    assert not _instances[asyncio.get_running_loop()]
    assert descriptors(tmp_path) == []
    named = ClientConfig("127.0.0.1:1", instance_name="mine")
    async with PushConsumer("g", client_config=named, config=broadcasting(tmp_path)):
        pass


async def test_a_start_that_fails_gives_the_connections_back() -> None:
    config = broadcasting(Path("~no-such-user"))
    with pytest.raises(RuntimeError, match="home directory"):
        await PushConsumer("g", name_servers="127.0.0.1:1", config=config).start()
    assert not _instances[asyncio.get_running_loop()]


async def test_a_copy_of_the_lock_does_not_keep_it(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "g")
    [lock] = descriptors(tmp_path)
    copy = os.dup(lock)
    await offsets.close()
    again = LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "g")
    os.close(copy)
    await again.close()
    assert [path.name for path in tmp_path.iterdir()] == ["1.2.3.4@DEFAULT"]


FORKS = """
import asyncio, os, signal, sys
from pathlib import Path
from raptormq.client.cluster.client_instance import _instances
from raptormq.client.consumer.local_offsets import LocalOffsets

offsets = LocalOffsets(Path(sys.argv[1]), "1.2.3.4@DEFAULT", "g")
if os.fork() == 0:
    if sys.argv[2] == "closes":
        asyncio.run(offsets.close())
    print("forked", flush=True)
    sys.stdin.read()
    os._exit(0)
signal.pause()
"""


@pytest.mark.parametrize("child", ["closes", "leaves it"])
async def test_a_forked_child_neither_keeps_the_file_nor_gives_it_back(tmp_path: Path, child: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKS, str(tmp_path), child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "forked\n"
        second = LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "g")
        assert len(list(tmp_path.iterdir())) == 2
        parent.kill()  # the child process runs until its input ends
        while parent.poll() is None:
            await asyncio.sleep(0.01)
        first = LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "g")
        third = LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "g")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"1.2.3.4@DEFAULT{each}" for each in ("", "-2", "-3")]
    for each in (first, second, third):
        await each.close()
