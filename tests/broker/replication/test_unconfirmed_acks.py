"""Acknowledgements of popped messages that a majority of the group does not have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from raptormq.broker.handlers import acks
from raptormq.broker.pop.revive_service import PopReviveService
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.pop_handle import PopHandle, build_handle
from tests.broker.handlers.test_pop import HOUR, ack, come_back, handle_of, pop
from tests.broker.harness import Peer, bodies, connected
from tests.broker.replication.test_brokers import (
    LONG_S,
    become,
    first_and_second,
    group,
    leader_of,
    part_of,
    withheld,
)
from tests.broker.replication.test_returning_leader import service

INVISIBLE_MS = 1_000


def change(peer: Peer, handle: PopHandle, offset: int, invisible_ms: int) -> asyncio.Future[RemotingCommand]:
    fields: dict[str, object] = {
        "consumerGroup": "consumers", "topic": "t", "queueId": 0, "offset": offset, "invisibleTime": invisible_ms,
        "extraInfo": build_handle(handle, "t", 0, offset),
    }  # fmt: skip
    return asyncio.ensure_future(peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields))


@pytest.mark.crossing("pop", "dledger", "fail-over")
async def test_messages_whose_acknowledgements_a_cut_off_leader_refused_are_delivered_by_the_next_leader(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        first, _ = await first_and_second(brokers)
        others = {member: broker for member, broker in brokers.items() if member != first}
        part = part_of(brokers[first])
        async with connected(brokers[first]) as peer:
            for number in range(20):
                assert (await peer.send("t", b"%d" % number)).code == ResponseCode.SUCCESS
            popped = await pop(peer, invisibleTime=3 * INVISIBLE_MS)
            handle = handle_of(popped, 0)
            assert (await ack(peer, handle, 0)).code == ResponseCode.SUCCESS
            monkeypatch.setattr(part._links, "send", lambda _: None)
            monkeypatch.setattr(part.inbox, "_receive", lambda _: None)
            refused = await asyncio.gather(*(ack(peer, handle, number) for number in range(1, 20)))
            assert {each.code for each in refused} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        await become(lambda: bool(leader_of(others)))
        async with connected(others[leader_of(others)]) as peer:
            assert (await ack(peer, handle, 1)).code == ResponseCode.SUCCESS
            found = [message.body for message in await come_back(peer, 18)]
        assert sorted(found) == sorted(b"%d" % number for number in range(2, 20))


async def test_an_unconfirmed_acknowledgement_is_refused_and_counts_once_it_is_confirmed(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is due before the acknowledgement is confirmed, and is not revived meanwhile."""
    monkeypatch.setattr(acks, "CONFIRM_S", 0.1)
    async with group(tmp_path, free_ports(3)) as brokers:
        first, _ = await first_and_second(brokers)
        leader, outstanding = brokers[first], service(brokers[first], PopReviveService)._outstanding
        async with connected(leader) as peer:
            for number in range(2):
                assert (await peer.send("t", b"%d" % number)).code == ResponseCode.SUCCESS
            popped = await pop(peer, invisibleTime=INVISIBLE_MS)
            with withheld(part_of(leader), set(brokers) - {first}, monkeypatch):
                late = await ack(peer, handle_of(popped, 0), 0)
                assert late.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert "retry" in (late.remark or "")
                assert len(outstanding) == 1
                due = service(leader, PopReviveService)._clock() + 2 * INVISIBLE_MS
                await become(lambda: service(leader, PopReviveService)._clock() > due)
                assert len(outstanding) == 1
            assert [message.body for message in await come_back(peer, 1)] == [b"1"]


async def test_requests_behind_an_unconfirmed_acknowledgement_are_answered(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "CONFIRM_S", LONG_S)
    async with group(tmp_path, free_ports(3)) as brokers:
        first, _ = await first_and_second(brokers)
        async with connected(brokers[first]) as peer:
            for number in range(3):
                assert (await peer.send("t", b"%d" % number)).code == ResponseCode.SUCCESS
            handle = handle_of(await pop(peer, maxMsgNums=2), 0)
            with withheld(part_of(brokers[first]), set(brokers) - {first}, monkeypatch):
                waiting = [
                    asyncio.ensure_future(ack(peer, handle, 0)),
                    change(peer, handle, 1, HOUR),
                    change(peer, handle, 1, HOUR),
                ]
                await asyncio.sleep(0)
                assert bodies(await peer.pull("t", 0)) == [b"0", b"1", b"2"]
                offsets = {"consumerGroup": "others", "topic": "t", "queueId": 0, "commitOffset": 1}
                assert (await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, offsets)).code == ResponseCode.SUCCESS
                assert not any(each.done() for each in waiting)
            assert {(await each).code for each in waiting} == {ResponseCode.SUCCESS}


async def test_a_message_that_is_acknowledged_while_its_invisible_time_changes_does_not_come_again(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        first, _ = await first_and_second(brokers)
        outstanding = service(brokers[first], PopReviveService)._outstanding
        async with connected(brokers[first]) as peer:
            assert (await peer.send("t", b"0")).code == ResponseCode.SUCCESS
            handle = handle_of(await pop(peer), 0)
            with withheld(part_of(brokers[first]), set(brokers) - {first}, monkeypatch):
                end = brokers[first]._store.end_offset
                changing = change(peer, handle, 0, INVISIBLE_MS)
                await become(lambda: brokers[first]._store.end_offset > end)
                acknowledging = asyncio.ensure_future(ack(peer, handle, 0))
                end = brokers[first]._store.end_offset
                await become(lambda: brokers[first]._store.end_offset > end)
            assert [(await each).code for each in (changing, acknowledging)] == [ResponseCode.SUCCESS] * 2
            assert len(outstanding) == 0
