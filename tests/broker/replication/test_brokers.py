"""Three whole brokers of one group in one process: what only a leader does goes over to the next one, and back."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from raptormq.broker.broker import Broker
from raptormq.broker.replication import Replication
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.raft import Status, TransferLeadership
from tests.broker.harness import Peer, assembly_of, bodies, connected, running

LOOK_S = 0.01
FAST = {"dLegerHeartbeatInterval": "50", "dLegerElectionTimeout": "500"}


@asynccontextmanager
async def group(folder: Path, ports: list[int], more: dict[str, str] | None = None) -> AsyncIterator[dict[str, Broker]]:
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    async with AsyncExitStack() as opened:
        brokers = {}
        for number in range(len(ports)):
            pairs = {
                "enableDLegerCommitLog": "true",
                "dLegerGroup": "g",
                "dLegerPeers": peers,
                "dLegerSelfId": f"n{number}",
            }
            pairs |= FAST | (more or {})
            brokers[f"n{number}"] = await opened.enter_async_context(running(folder / f"n{number}", pairs))
        yield brokers


def part_of(broker: Broker) -> Replication:
    replication = assembly_of(broker).replication
    assert replication is not None
    return replication


def status_of(broker: Broker) -> Status:
    status = part_of(broker).status()
    assert status is not None
    return status


async def become(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(LOOK_S)


def leader_of(brokers: dict[str, Broker]) -> str:
    return next((member for member, broker in brokers.items() if part_of(broker).member.leads), "")


async def move(brokers: dict[str, Broker], to: str) -> None:
    leading = part_of(brokers[leader_of(brokers)])
    leading.member.propose(TransferLeadership(to))
    await become(lambda: leader_of(brokers) == to)


async def read(peer: Peer, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += bodies(await peer.pull(topic, len(found), wait_ms=5_000))
    return found


async def test_a_follower_refuses_what_only_a_leader_does(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        await become(lambda: bool(leader_of(brokers)))
        leader = leader_of(brokers)
        follower = next(broker for member, broker in brokers.items() if member != leader)
        async with connected(brokers[leader]) as peer, connected(follower) as other:
            assert (await peer.send("t", b"one")).code == ResponseCode.SUCCESS
            await become(lambda: part_of(follower).member.leader == leader)
            for answer in (
                await other.send("t", b"two"),
                await other.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"}),
            ):
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert f"member {leader} (127.0.0.1:" in (answer.remark or "")
            assert await read(other, "t", 1) == [b"one"], "what is confirmed is served"
        async with connected(brokers[leader]) as peer:
            await become(lambda: all(member.active for member in status_of(brokers[leader]).members))
            shown = json.loads((await peer.call(RequestCode.GET_BROKER_HA_STATUS)).body)
            assert shown["master"] is True
            assert shown["inSyncSlaveNums"] == len(shown["haConnectionInfo"]) == 2
        status, text = await brokers[leader]._pages.metrics()
        assert status == 200
        assert re.search(rb"replication_leads(\{[^}]*\})? 1(\.0)?\n", text)
        assert re.search(rb"replication_voters(\{[^}]*\})? 3(\.0)?\n", text)


async def test_delayed_messages_are_delivered_once_by_whoever_leads(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(3), {"messageDelayLevel": "1s 2s"}) as brokers:
        await become(lambda: bool(leader_of(brokers)))
        first = leader_of(brokers)
        second = next(member for member in brokers if member != first)
        expected: list[bytes] = []
        for number, (now, then) in enumerate([(first, second), (second, first), (first, second)]):
            async with connected(brokers[now]) as peer:
                body = b"delayed %d" % number
                assert (await peer.send("t", body, properties="DELAY\x011\x02")).code == ResponseCode.SUCCESS
            await move(brokers, then)
            expected.append(body)
            async with connected(brokers[then]) as peer:
                assert await read(peer, "t", len(expected)) == expected
        async with connected(brokers[second]) as peer:
            assert (await peer.send("t", b"last")).code == ResponseCode.SUCCESS
            assert await read(peer, "t", len(expected) + 1) == [*expected, b"last"]


async def test_a_leader_that_stops_hands_over(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        await become(lambda: bool(leader_of(brokers)))
        leader = leader_of(brokers)
        others = {member: broker for member, broker in brokers.items() if member != leader}
        stopping = asyncio.ensure_future(part_of(brokers[leader]).stop_leading())
        await become(lambda: bool(leader_of(others)))  # the old leader is still there: no election was due
        await stopping
