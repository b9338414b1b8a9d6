"""Offset commits use the current offset when they run, and skip revoked queues."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from raptormq.client import ClientConfig, MessageQueue
from raptormq.client.cluster.client_instance import ClientInstance
from raptormq.client.consumer.local_offsets import LocalOffsets
from raptormq.client.consumer.offset_commits import OffsetCommitter
from raptormq.client.consumer.process_queue import ProcessQueue
from raptormq.client.consumer.queue_reader import QueueReader
from raptormq.protocol.bodies.queue_offsets import TopicIds
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.transport.connection import Connection
from tests.client.scripted_peer import ScriptedPeer, answer, hang_up, refuse, route

COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


def reader_at(queue_id: int, offset: int) -> QueueReader:
    return cast(
        "QueueReader",
        SimpleNamespace(queue=MessageQueue("t", "broker-0", queue_id), process_queue=ProcessQueue(offset)),
    )


def stored(peer: ScriptedPeer) -> list[tuple[int, int]]:
    return [
        (int(command.ext_fields["queueId"]), int(command.ext_fields["commitOffset"]))
        for command in peer.received[COMMIT]
    ]


async def connected(peer: ScriptedPeer) -> ClientInstance:
    peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(3, peer))
    return ClientInstance.acquire(ClientConfig(peer.address))


async def test_a_queue_that_is_let_go_meanwhile_is_not_put_back() -> None:
    held: list[tuple[Connection, RemotingCommand]] = []
    async with ScriptedPeer() as peer:
        peer.on(COMMIT, lambda connection, command: held.append((connection, command)), answer())
        instance = await connected(peer)
        commits = OffsetCommitter(instance, "g", 1000.0)
        readers = [reader_at(0, 5), reader_at(1, 6), reader_at(2, 7)]
        committing = asyncio.create_task(commits.commit(readers))
        await peer.wait_for(COMMIT)
        readers[1].process_queue = None  # another member owns it now
        assert readers[2].process_queue is not None
        readers[2].process_queue.advance(9)
        [(connection, command)] = held
        connection.send(response_to(command))
        await committing
        assert stored(peer) == [(0, 5), (2, 9)]
        await instance.release()


async def test_only_what_has_changed_is_stored_and_what_failed_is_tried_again() -> None:
    async with ScriptedPeer() as peer:
        peer.on(COMMIT, refuse(ResponseCode.SYSTEM_ERROR), answer())
        instance = await connected(peer)
        commits = OffsetCommitter(instance, "g", 1000.0)
        readers = [reader_at(0, 5), reader_at(1, 6)]
        await commits.commit(readers)
        await commits.commit(readers)
        await commits.commit(readers)
        commits.forget(readers[1].queue)
        await commits.commit(readers)
        assert stored(peer) == [(0, 5), (1, 6), (0, 5), (1, 6)]
        await instance.release()


async def test_progress_that_begins_anew_is_stored_though_it_comes_to_the_same_offset() -> None:
    """A reset has moved the offset at the broker back, and the messages were consumed again."""
    async with ScriptedPeer() as peer:
        peer.on(COMMIT, answer())
        instance = await connected(peer)
        commits = OffsetCommitter(instance, "g", 1000.0)
        reader = reader_at(0, 5)
        await commits.commit([reader])
        reader.process_queue = ProcessQueue(2)
        reader.process_queue.advance(5)
        await commits.commit([reader])
        await commits.commit([reader])
        assert stored(peer) == [(0, 5), (0, 5)]
        await instance.release()


async def test_a_broker_that_is_away_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedPeer() as peer:
        peer.on(COMMIT, hang_up)
        instance = await connected(peer)
        commits = OffsetCommitter(instance, "g", 1000.0)
        await commits.commit([reader_at(number, 5) for number in range(3)])
        await instance.release()
    [record] = caplog.records
    assert "t@broker-0:0 and 2 more queues is not committed yet" in record.message


async def test_a_broker_that_stays_away_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    refused = refuse(ResponseCode.SYSTEM_ERROR)
    async with ScriptedPeer() as peer:
        peer.on(COMMIT, refused, refused, answer(), refused)
        instance = await connected(peer)
        commits = OffsetCommitter(instance, "g", 1000.0)
        for times, offset in [(1, 5), (1, 6), (1, 7), (2, 8)]:
            await commits.commit([reader_at(0, offset)])
            assert len(caplog.records) == times
        await instance.release()


async def test_progress_that_is_kept_here_is_written_once_also_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writes: list[int] = []
    write = LocalOffsets._write

    def limited(self: LocalOffsets, offsets: dict[MessageQueue, int], topic_ids: TopicIds) -> None:
        writes.append(len(offsets))
        if len(writes) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, offsets, topic_ids)

    monkeypatch.setattr(LocalOffsets, "_write", limited)
    instance = ClientInstance.acquire(ClientConfig("127.0.0.1:1"))
    local = LocalOffsets(tmp_path, "me", "g")
    commits = OffsetCommitter(instance, "g", 1000.0, local)
    readers = [reader_at(number, 5) for number in range(100)]
    await commits.commit(readers)
    assert writes == [100]
    [record] = caplog.records
    assert "and 99 more queues is not committed yet: the offsets cannot be written" in record.message
    await commits.commit(readers)
    assert writes == [100, 100]
    assert LocalOffsets(tmp_path, "me", "g").get(readers[99].queue) == 5
    await instance.release()
