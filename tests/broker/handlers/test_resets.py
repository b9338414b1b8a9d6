"""Offset resets: by the broker alone, and by a notification of the group's members."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.broker.cooperative import steady_ms
from raptormq.broker.pull.offset_resets import PULLED_AGAIN_MS
from raptormq.errors import NotLeader
from raptormq.protocol.bodies.queue_offsets import decode_offsets
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message import MessageQueue
from raptormq.storage.store import MessageStore
from tests.broker.harness import Peer, assembly_of, bodies, connected, held, running

LONG = 20_000


async def reset(peer: Peer, **fields: object) -> RemotingCommand:
    header = {"topic": "t", "group": "consumers", "timestamp": 0, "isForce": True} | fields
    return await peer.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


async def stored_offset(peer: Peer, queue_id: int = 0) -> RemotingCommand:
    fields = {"topic": "t", "consumerGroup": "consumers", "queueId": queue_id}
    return await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)


async def commit(peer: Peer, offset: int) -> RemotingCommand:
    fields = {"topic": "t", "consumerGroup": "consumers", "queueId": 0, "commitOffset": offset}
    return await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


async def test_the_next_pull_learns_of_a_reset_and_commits_until_then_are_ignored(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1", b"2"])
        assert (await peer.pull("t", 3)).code == ResponseCode.PULL_NOT_FOUND
        assert (await commit(peer, 3)).code == 0
        answer = await reset(peer, queueId=0, offset=1)
        assert (answer.code, decode_offsets(answer.body)) == (0, {MessageQueue("t", "broker-a", 0): 1})
        assert (await commit(peer, 3)).code == 0
        assert (await stored_offset(peer)).ext_fields["offset"] == "1"
        moved = await peer.pull("t", 3, sysFlag=5, commitOffset=3)
        assert (moved.code, moved.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert moved.ext_fields["nextBeginOffset"] == "1"
        assert (await stored_offset(peer)).ext_fields["offset"] == "1"
        assert bodies(await peer.pull("t", 1)) == [b"1", b"2"]
        assert (await commit(peer, 3)).code == 0
        assert (await stored_offset(peer)).ext_fields["offset"] == "3"


@pytest.mark.parametrize(("subscribed", "stored"), [(None, "3"), ("t", "0"), ("another", "3")])
async def test_commits_of_who_has_not_pulled_count_unless_a_member_will(
    tmp_path: Path, subscribed: str | None, stored: str
) -> None:
    """Spark only commits offsets. It pulls under another name and would not apply the reset."""
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1", b"2"])
        assert (await commit(peer, 1)).code == 0
        if subscribed is not None:
            await peer.heartbeat("me", "consumers", subscribed)
        assert (await reset(peer)).code == 0
        assert (await stored_offset(peer)).ext_fields["offset"] == "0"
        assert (await commit(peer, 3)).code == 0
        assert (await stored_offset(peer)).ext_fields["offset"] == stored


@pytest.mark.parametrize(("is_member", "stored"), [(False, "3"), (True, "0")])
async def test_commits_count_again_when_nobody_has_pulled_for_longer_than_a_pull_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_member: bool, stored: str
) -> None:
    """A client that pulled before the reset may have ended without a heartbeat, or a member may be slow."""
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1", b"2"])
        if is_member:
            await peer.heartbeat("me", "consumers", "t")
        await peer.pull("t", 0)
        assert (await reset(peer)).code == 0
        assert (await commit(peer, 3)).code == 0
        assert (await stored_offset(peer)).ext_fields["offset"] == "0"
        monkeypatch.setattr(assembly_of(broker).pulls._resets, "_steady_clock", lambda: steady_ms() + PULLED_AGAIN_MS)
        assert (await commit(peer, 3)).code == 0
        assert (await stored_offset(peer)).ext_fields["offset"] == stored


async def test_a_held_pull_learns_of_a_reset_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as admin:
        await peer.send_list("t", [b"0", b"1"])
        waiting = asyncio.ensure_future(peer.pull("t", 2, wait_ms=LONG))
        other = asyncio.ensure_future(peer.pull("t", 2, wait_ms=LONG, consumerGroup="others"))
        await held(peer, 2)
        everything = await reset(admin)
        moved = await waiting
        assert not other.done()
        await admin.send("t", b"2")
        assert bodies(await other) == [b"2"]
    assert (moved.code, moved.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
    assert decode_offsets(everything.body) == {MessageQueue("t", "broker-a", number): 0 for number in range(4)}


async def test_to_the_end(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1"])
        await peer.pull("t", 0)
        offsets = decode_offsets((await reset(peer, timestamp=-1)).body)
    assert sorted(offsets.values()) == [0, 0, 0, 2]


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST, "unknown"),
        ({"group": "unknown"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group unknown does not exist"),
        ({"queueId": 0, "offset": 3}, 0, None),
        ({"queueId": 0, "offset": 4}, 1, "Target offset 4 not in consume queue range [0-2]"),
        ({"queueId": 4, "offset": 0}, ResponseCode.INVALID_PARAMETER, "queue 4 is not one of"),
        ({"timestamp": "soon"}, 1, "timestamp"),
    ],
)
async def test_what_can_be_reset(tmp_path: Path, fields: dict[str, object], code: int, remark: str | None) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1"])
        await peer.pull("t", 0)
        answer = await reset(peer, **fields)
    assert answer.code == code
    assert remark is None or remark in (answer.remark or "")


async def test_a_topic_that_is_deleted_takes_its_resets_along(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        await peer.pull("t", 0)
        await reset(peer)
        await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
        await peer.send("t", b"new")
        assert bodies(await peer.pull("t", 0)) == [b"new"]


async def test_members_are_told_where_the_broker_does_not_reset_by_itself(tmp_path: Path) -> None:
    pairs = {"useServerSideResetOffset": "false"}
    async with running(tmp_path, pairs) as broker, connected(broker) as peer, connected(broker) as admin:
        await admin.send("t", b"0")
        await admin.call(RequestCode.UPDATE_AND_CREATE_TOPIC, _one_queue())
        assert (await reset(admin)).code == ResponseCode.SYSTEM_ERROR
        await admin.pull("t", 0)
        await commit(admin, 1)
        assert (await reset(admin)).code == ResponseCode.CONSUMER_NOT_ONLINE
        await peer.heartbeat("me", "consumers", "t")
        assert (await reset(admin, isForce=False, timestamp=-1)).code == 0
        notices = [await peer.notices.get(), await peer.notices.get()]
    told = next(notice for notice in notices if notice.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
    assert told.is_oneway
    assert decode_offsets(told.body) == {MessageQueue("t", "broker-a", 0): 1}


def _one_queue() -> dict[str, object]:
    fields: dict[str, object] = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": "false"}
    return fields | {"topic": "t", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG"}


async def test_nothing_is_reset_after_a_loss_of_leadership(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers may have gone on at another leader."""
    bounds = MessageStore.queue_bounds

    async def lost(store: MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
        found = await bounds(store, topic, queue_id)
        store._confirmation.abandon(NotLeader("another member leads"))
        return found

    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1", b"2"])
        await peer.pull("t", 0)
        assert (await commit(peer, 3)).code == 0
        with monkeypatch.context() as changed:
            changed.setattr(MessageStore, "queue_bounds", lost)
            answer = await reset(peer, queueId=0, offset=1)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert not len(assembly_of(broker).resets)
        assert (await stored_offset(peer)).ext_fields["offset"] == "3"
