"""Three complete brokers of one group in one process: tasks of a leader continue at the next leader."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from raptormq.broker import reput
from raptormq.broker.broker import Broker
from raptormq.broker.conversions import Conversions
from raptormq.broker.pull import service as pull_service
from raptormq.broker.replication import TABLES_TOPIC, Replication, forwarding, replication, table_records
from raptormq.broker.staging.staging_service import StagingService
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.errors import ConfigError, NotLeader, OutOfResources, StoreDamaged
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.bodies.tolerant_json import dumps, loads_object
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.queue_batches import Part, PartKind, decode_part_responses, encode_parts
from raptormq.protocol.record import decode_record
from raptormq.protocol.signing import Credentials
from raptormq.protocol.topic_names import STAGED_TOPIC
from raptormq.raft import (
    Append,
    LacksData,
    Message,
    Position,
    PromoteMember,
    Proposal,
    ProposalRefused,
    Status,
    TimeoutNow,
    TransferLeadership,
)
from raptormq.security.settings import AccessControl
from raptormq.security.tables import load_security
from raptormq.storage import MessageStore, background
from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.queue import Arrival
from raptormq.storage.read import GetResult, GetStatus
from raptormq.storage.replica import Replica
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool
from tests.broker.handlers.test_pop import pop
from tests.broker.harness import Peer, assembly_of, bodies, connected, pull_fields, running, send_fields, settings
from tests.broker.slow_disk import SlowDisk, saves_the_topics
from tests.broker.staging.staging_peer import STAGES, commit, committed, stage, staged

LOOK_S = 0.01
LIST = encode_batch([(0, b"listed", b"")])
LONG_S = 3_600.0
"""Longer than a test may take."""
FAST = {"dLegerHeartbeatInterval": "50", "dLegerElectionTimeout": "500"}


@asynccontextmanager
async def group(
    folder: Path,
    ports: list[int],
    more: dict[str, str] | None = None,
    disk: FileSystem | None = None,
) -> AsyncIterator[dict[str, Broker]]:
    """Run a group. ``disk`` is that of the member n0."""
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
            brokers[f"n{number}"] = broker = Broker(
                settings(folder / f"n{number}", pairs), filesystem=None if number else disk
            )
            await broker.start()
            opened.push_async_callback(stop, brokers, f"n{number}")
        yield brokers


async def stop(brokers: dict[str, Broker], member: str) -> None:
    """Stop a member unless it is stopped."""
    if (broker := brokers.pop(member, None)) is not None:
        await broker.stop()


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


async def first_and_second(brokers: dict[str, Broker]) -> tuple[str, str]:
    """Return the leader and another member."""
    await all_ready(brokers)
    leader = leader_of(brokers)
    return leader, next(member for member in brokers if member != leader)


async def move(brokers: dict[str, Broker], to: str) -> None:
    """Transfer leadership, again if the group has given up a transfer: a busy machine may need several."""
    while (leader := leader_of(brokers)) != to:
        if leader:
            with suppress(ProposalRefused):
                part_of(brokers[leader]).member.propose(TransferLeadership(to))
        await asyncio.sleep(LOOK_S)


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
            wanted = {"topic": "t", "action": "start", "queueType": "BatchCQ"}
            refused = await peer.call(RequestCode.CONVERT_QUEUE, wanted)
            assert refused.code == ResponseCode.ILLEGAL_OPERATION
            assert "on a member of a replication group" in (refused.remark or "")
            for answer in (
                await other.send("t", b"two"),
                await other.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"}),
            ):
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert f"member {leader} (127.0.0.1:" in (answer.remark or "")
            assert await read(other, "t", 1) == [b"one"], "confirmed messages are served"
        async with connected(brokers[leader]) as peer:
            await become(lambda: all(member.active for member in status_of(brokers[leader]).members))
            shown = json.loads((await peer.call(RequestCode.GET_BROKER_HA_STATUS)).body)
            assert shown["master"] is True
            assert shown["inSyncSlaveNums"] == len(shown["haConnectionInfo"]) == 2
        status, text = await brokers[leader]._pages.metrics()
        assert status == 200
        assert re.search(rb"replication_leads(\{[^}]*\})? 1(\.0)?\n", text)
        assert re.search(rb"replication_voters(\{[^}]*\})? 3(\.0)?\n", text)


async def test_a_follower_moves_no_consumer_to_another_offset(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """The queues of a follower may be behind those of the leader, from which the consumer has read."""
    async with group(tmp_path, free_ports(3)) as brokers:
        await become(lambda: bool(leader_of(brokers)))
        leader = leader_of(brokers)
        follower = next(broker for member, broker in brokers.items() if member != leader)
        async with connected(brokers[leader]) as peer, connected(follower) as other:
            for body in (b"one", b"two"):
                assert (await peer.send("t", body)).code == ResponseCode.SUCCESS
            assert await read(other, "t", 2) == [b"one", b"two"]
            beyond = await other.pull("t", 7, wait_ms=0)
            assert (beyond.code, beyond.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "7")
            empty = await other.pull("t", 7, queue_id=1, wait_ms=0)
            assert (empty.code, empty.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "7")
            moved = await peer.pull("t", 7, wait_ms=0)
            assert (moved.code, moved.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "2")
            queue = {"topic": "t", "queueId": "0"}
            for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET):
                answer = await other.call(code, queue | {"consumerGroup": "g"})
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_follower_moves_no_consumer_when_messages_are_deleted_during_a_cold_read(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader may have kept messages that a follower has deleted."""
    deleted = GetResult(GetStatus.OFFSET_TOO_SMALL, [], 1, 1, 1)
    found = iter([deleted._replace(non_resident=True), deleted])

    async def load_messages(*_: object) -> GetResult:
        return deleted

    async with group(tmp_path, free_ports(3)) as brokers:
        await become(lambda: bool(leader_of(brokers)))
        leader = leader_of(brokers)
        follower = next(broker for member, broker in brokers.items() if member != leader)
        async with connected(brokers[leader]) as peer, connected(follower) as other:
            await peer.send("t", b"one")
            assert await read(other, "t", 1) == [b"one"]
            monkeypatch.setattr(MessageStore, "get_messages", lambda *_: next(found))
            monkeypatch.setattr(MessageStore, "load_messages", load_messages)
            again = await other.pull("t", 0)
            assert (again.code, again.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "0")


async def test_a_follower_that_is_behind_does_not_say_that_a_queue_ends(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        await become(lambda: bool(leader_of(brokers)))
        leader = leader_of(brokers)
        follower = next(broker for member, broker in brokers.items() if member != leader)
        async with connected(brokers[leader]) as peer, connected(follower) as other:
            await peer.send("t", b"one")
            assert await read(other, "t", 1) == [b"one"]
            assert (await other.pull("t", 1)).code == ResponseCode.PULL_NOT_FOUND
            with monkeypatch.context() as deaf:
                deaf.setattr(part_of(follower).inbox, "_receive", lambda _: None)
                await peer.send("t", b"two")
                monkeypatch.setattr(pull_service, "CATCH_UP_S", 0.2)
                again = await other.pull("t", 1)
                assert (again.code, again.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "1")
                monkeypatch.setattr(pull_service, "CATCH_UP_S", 60.0)
                waiting = asyncio.ensure_future(other.pull("t", 1))
                await become(lambda: bool(part_of(follower).member.reads._asked))
            assert bodies(await waiting) == [b"two"]


async def test_a_leader_that_does_not_know_its_successor_tells_no_ends_of_queues(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the member stops, like that of a stopped process, so that it does not step down by itself."""
    monkeypatch.setattr(pull_service, "CATCH_UP_S", 0.2)
    async with group(tmp_path, free_ports(3)) as brokers:
        await become(lambda: bool(leader_of(brokers)))
        former = leader_of(brokers)
        others = {member: broker for member, broker in brokers.items() if member != former}
        part = part_of(brokers[former])
        queue = {"topic": "t", "queueId": 0}
        async with connected(brokers[former]) as peer:
            await peer.send("t", b"one")
            with monkeypatch.context() as frozen:
                frozen.setattr(part.inbox, "_receive", lambda _: None)
                frozen.setattr(part._links, "send", lambda _: None)
                frozen.setattr(part.member, "tick", lambda: None)
                await become(lambda: bool(leader_of(others)))
                async with connected(others[leader_of(others)]) as successor:
                    assert (await successor.send("t", b"two")).code == ResponseCode.SUCCESS
                assert part.member.leads
                assert (await peer.pull("t", 1)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
                assert (await peer.pull("t", 2)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
                refused = await peer.call(RequestCode.GET_MAX_OFFSET, queue)
                assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert await read(peer, "t", 2) == [b"one", b"two"]


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


async def test_a_batch_that_one_leader_begins_to_publish_is_published_once_by_the_next_one(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group(tmp_path, free_ports(3), STAGES) as brokers:
        await become(lambda: bool(leader_of(brokers)))
        first = leader_of(brokers)
        async with connected(brokers[first]) as peer:
            offsets = [await staged(peer, [b"%d" % number]) for number in range(4)]
            staging, publish_list = assembly_of(brokers[first]).staging, StagingService._publish_list

            async def publish_two(self: StagingService, commit: Any, offset: int, unconfirmed: int) -> int:
                if self is staging and offset >= offsets[2]:
                    raise OutOfResources("stopped by the test")
                return await publish_list(self, commit, offset, unconfirmed)

            monkeypatch.setattr(StagingService, "_publish_list", publish_two)
            answer = await commit(peer, offsets)
            assert (answer.ext_fields["isPublished"], answer.ext_fields["messageCount"]) == ("false", "2")
            repeated = [await staged(peer, [b"%d" % number]) for number in range(4)]
        second = next(member for member in brokers if member != first)
        await move(brokers, second)
        monkeypatch.undo()
        async with connected(brokers[second]) as peer:
            await committed(peer, repeated)
            assert await read(peer, "t", 4) == [b"0", b"1", b"2", b"3"]
        await move(brokers, first)
        async with connected(brokers[first]) as peer:
            await committed(peer, repeated)
            other = await staged(peer, [b"4"], batch=1)
            await committed(peer, [other], batch=1)
            assert await read(peer, "t", 5) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_leader_that_stops_hands_over(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        await become(lambda: bool(leader_of(brokers)))
        leader = leader_of(brokers)
        others = {member: broker for member, broker in brokers.items() if member != leader}
        stopping = asyncio.ensure_future(part_of(brokers[leader]).stop_leading())
        await become(lambda: bool(leader_of(others)))  # the old leader is still running, so no election was due
        await stopping


async def page(broker: Broker, path: str) -> tuple[int, dict[str, Any]]:
    status, body = await broker._pages.by_path()[path]()
    return status, json.loads(body)


async def is_ready(broker: Broker) -> bool:
    return (await broker._pages.readiness())[0] == 200


async def all_ready(brokers: dict[str, Broker]) -> None:
    while not all([await is_ready(broker) for broker in brokers.values()]):
        await asyncio.sleep(LOOK_S)


async def test_probes_tell_who_may_be_restarted(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        await all_ready(brokers)
        leader = leader_of(brokers)
        for member, broker in brokers.items():
            status, answered = await page(broker, "/replication/restart-allowed")
            assert (status, answered["allowed"]) == (200, True), (member, answered)
            status, answered = await page(broker, "/replication/caught-up")
            assert (status, answered["caughtUp"]) == (200, True)
            status, shown = await page(broker, "/replication")
            assert status == 200
            assert (shown["mode"], shown["group"], shown["member"], shown["leader"]) == ("dledger", "g", member, leader)
            assert shown["role"] == ("leader" if member == leader else "follower")
        _, shown = await page(brokers[leader], "/replication")
        assert [each["answering"] for each in shown["members"]] == [True] * 3
        assert [each["lagBytes"] for each in shown["members"]] == [0] * 3

        gone, asked = (member for member in brokers if member != leader)
        await stop(brokers, gone)
        await become(lambda: not all(each.active for each in status_of(brokers[leader]).members))
        for member in (leader, asked):
            status, answered = await page(brokers[member], "/replication/restart-allowed")
            assert (status, answered["allowed"]) == (503, False)
            assert f"{gone} has not responded for" in answered["reason"]
        assert await is_ready(brokers[asked]), "a majority is running"

        await stop(brokers, leader)
        while await is_ready(brokers[asked]):
            await asyncio.sleep(LOOK_S)
        for path in ("/replication/restart-allowed", "/replication/caught-up"):
            status, answered = await page(brokers[asked], path)
            assert status == 503, answered
        _, shown = await page(brokers[asked], "/replication")
        assert shown["role"] == "candidate"
        assert shown["leader"] in ("", asked), "it may have won an election, but confirms nothing any more"


async def test_the_next_leader_knows_who_pops(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    body = dumps({"topic": "t", "consumerGroup": "poppers", "mode": "POP", "popShareQueueNum": 0})
    async with group(tmp_path, free_ports(3)) as brokers:
        await all_ready(brokers)
        first = leader_of(brokers)
        second = next(member for member in brokers if member != first)
        async with connected(brokers[first]) as peer, connected(brokers[second]) as other:
            await peer.send("t", b"x")
            await peer.heartbeat("me", "poppers", "t")
            refused = await other.call(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body)
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert (await peer.call(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body)).code == ResponseCode.SUCCESS
            await move(brokers, second)
            found = loads_object((await other.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)).body)
    assert found["messageRequestModeMap"]["t"]["poppers"]["mode"] == "POP"
    assert b'"POP"' in (tmp_path / second / "config" / "messageRequestMode.json").read_bytes()


async def test_leadership_is_handed_over_on_request(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        await all_ready(brokers)
        leader = leader_of(brokers)
        to, third = (member for member in brokers if member != leader)
        async with connected(brokers[leader]) as peer, connected(brokers[third]) as other:
            refused = await other.call(RequestCode.TRANSFER_LEADERSHIP, {"to": to})
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert f"member {leader} " in (refused.remark or "")
            for wrong in ("n9", leader):
                refused = await peer.call(RequestCode.TRANSFER_LEADERSHIP, {"to": wrong})
                assert refused.code == ResponseCode.ILLEGAL_OPERATION, refused.remark
            answered = await peer.call(RequestCode.TRANSFER_LEADERSHIP, {"to": to})
            assert answered.code == ResponseCode.SUCCESS, answered.remark
            assert json.loads(answered.body)["leader"] == to
            await become(lambda: leader_of(brokers) == to)
            shown = json.loads((await peer.call(RequestCode.DESCRIBE_REPLICATION, {"restarting": leader})).body)
            assert shown["restart"]["allowed"] is False, "only the new leader knows"
        async with connected(brokers[to]) as peer:
            answered = await peer.call(RequestCode.TRANSFER_LEADERSHIP)
            assert answered.code == ResponseCode.SUCCESS, answered.remark
            await become(lambda: leader_of(brokers) not in ("", to))


async def test_a_broker_without_copies_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await page(broker, "/replication"))[1]["mode"] == "none"
        assert (await page(broker, "/replication/restart-allowed"))[0] == 200
        assert (await page(broker, "/replication/caught-up"))[0] == 200
        refused = await peer.call(RequestCode.TRANSFER_LEADERSHIP, {"to": "n1"})
        assert refused.code == ResponseCode.ILLEGAL_OPERATION
    assert (await Broker(settings(tmp_path))._pages.restart_allowed())[0] == 503, "it is still starting"
    assert (await Broker(settings(tmp_path))._pages.caught_up())[0] == 503


async def test_a_leader_changes_no_queue_type_in_the_table_of_its_group(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(1)) as brokers, connected(brokers["n0"]) as peer:
        await become(lambda: bool(leader_of(brokers)))
        assert (await peer.send("orders", b"0")).code == ResponseCode.SUCCESS
        assembly = assembly_of(brokers["n0"])
        conversions = next(each for each in assembly.services if isinstance(each, Conversions))
        part_of(brokers["n0"])._store._queues.batch_topics.add("orders")
        await conversions.stop()
        conversions.start()  # as when it begins to lead
        assert not assembly.topics.configs["orders"].is_batch


async def test_members_are_found_by_name(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    ports = free_ports(3)
    names = ";".join(f"n{number}-localhost:{port}" for number, port in enumerate(ports))
    async with group(tmp_path, ports, {"dLegerPeers": names}) as brokers:
        await all_ready(brokers)
        _, shown = await page(brokers[leader_of(brokers)], "/replication")
        assert [each["address"] for each in shown["members"]] == [f"localhost:{port}" for port in ports]


async def test_a_producer_that_knows_the_old_leader_alone_notices_nothing_of_a_transfer(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are held until the next leader accepts messages, not until a time has passed."""
    monkeypatch.setattr(forwarding, "HOLD_S", LONG_S)
    monkeypatch.setattr(replication, "_TRANSFER_S", LONG_S)
    async with group(tmp_path, free_ports(3), {"dLegerElectionTimeout": "5000"}) as brokers:
        first, to = await first_and_second(brokers)
        term = status_of(brokers[first]).term
        sent: list[bytes] = []

        async def produce(peer: Peer, until: Callable[[], bool]) -> None:
            while not until():
                body = b"%d" % len(sent)
                answered = await peer.send("t", body)
                assert answered.code == ResponseCode.SUCCESS, answered.remark
                sent.append(body)

        async with connected(brokers[first]) as peer, connected(brokers[to]) as other:
            await produce(peer, lambda: len(sent) >= 20)
            producing = asyncio.ensure_future(produce(peer, lambda: leader_of(brokers) == to and len(sent) >= 200))
            await part_of(brokers[first]).transfer(to)
            await producing
            assert await read(other, "t", len(sent)) == sent
            assert status_of(brokers[to]).term == term + 1, "no other election"
            answered = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "x"})
            assert answered.code == ResponseCode.SERVICE_NOT_AVAILABLE, (
                "requests that depend on the connection are refused"
            )


async def test_offsets_do_not_go_back_when_leadership_is_handed_over(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        await all_ready(brokers)
        names = [leader_of(brokers), *(member for member in brokers if member != leader_of(brokers))]
        async with connected(brokers[names[0]]) as peer:
            for number in range(10):
                assert (await peer.send("t", b"%d" % number)).code == ResponseCode.SUCCESS
        fields = {"consumerGroup": "g", "topic": "t", "queueId": 0}
        for committed, now, then in ((3, names[0], names[1]), (7, names[1], names[2]), (9, names[2], names[0])):
            async with connected(brokers[now]) as peer:
                done = await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"commitOffset": committed})
                assert done.code == ResponseCode.SUCCESS
                await part_of(brokers[now]).transfer(then)
                await become(lambda to=then: leader_of(brokers) == to)  # type: ignore[misc]
                assert brokers[then]._store.consumer_offsets.get("t", "g", 0) == committed
                late = await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"commitOffset": committed + 1})
                assert late.code == ResponseCode.SUCCESS, "the request is forwarded to the next leader"
                assert brokers[then]._store.consumer_offsets.get("t", "g", 0) == committed + 1


async def test_offsets_do_not_go_back_when_the_next_leader_has_to_catch_up_first(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_records, "OFFSETS_S", LONG_S)
    async with group(tmp_path, free_ports(3)) as brokers:
        first, to = await first_and_second(brokers)
        fields = {"consumerGroup": "g", "topic": "t", "queueId": 0}
        async with connected(brokers[first]) as peer:
            with withheld(part_of(brokers[first]), {to}, monkeypatch):
                for _ in range(3):
                    assert (await peer.send("t", bytes(1 << 20))).code == ResponseCode.SUCCESS
                moving = asyncio.ensure_future(part_of(brokers[first]).transfer(to))
                for committed in range(1, 4):
                    done = await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"commitOffset": committed})
                    assert done.code == ResponseCode.SUCCESS
            await moving
        await become(lambda: leader_of(brokers) == to)
        assert brokers[to]._store.consumer_offsets.get("t", "g", 0) == 3


async def test_a_pop_in_flight_is_not_repeated_by_the_next_leader(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        first, to = await first_and_second(brokers)
        async with connected(brokers[first]) as peer:
            assert (await peer.send("t", b"0")).code == ResponseCode.SUCCESS
            with withheld(part_of(brokers[first]), set(brokers) - {first}, monkeypatch):
                end = brokers[first]._store.end_offset
                popping = asyncio.ensure_future(pop(peer))
                await become(lambda: brokers[first]._store.end_offset > end)
                moving = asyncio.ensure_future(part_of(brokers[first]).transfer(to))
                await become(lambda: not part_of(brokers[first]).member.takes_messages)
                late = await pop(peer)
                assert late.code == ResponseCode.SERVICE_NOT_AVAILABLE
            await moving
            assert (await popping).code == ResponseCode.SUCCESS
        await become(lambda: leader_of(brokers) == to)
        assert brokers[to]._store.consumer_offsets.get("t", "consumers", 0) == 1


@contextmanager
def withheld(leader: Replication, members: set[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Withhold the bytes of the log from these members."""
    send = leader._links.send

    def drop(each: Message) -> None:
        if each.to not in members or not isinstance(each, Append) or each.previous.offset == each.end.offset:
            send(each)

    with monkeypatch.context() as patch:
        patch.setattr(leader._links, "send", drop)
        yield


async def test_resets_and_copies_of_offsets_are_answered_when_a_majority_has_them(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reset = {"topic": "t", "group": "consumers", "timestamp": "0", "isForce": "true"}
    copy = {"srcGroup": "consumers", "destGroup": "others", "topic": "t"}
    requests = (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset), (RequestCode.CLONE_GROUP_OFFSET, copy)
    async with group(tmp_path, free_ports(3)) as brokers:
        await all_ready(brokers)
        leader = leader_of(brokers)
        queue = {"topic": "t", "consumerGroup": "consumers", "queueId": "0"}
        async with connected(brokers[leader]) as peer:
            await peer.send("t", b"0")
            assert await read(peer, "t", 1) == [b"0"]
            assert (await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, queue | {"commitOffset": "1"})).code == 0
            for code, fields in requests:
                assert (await peer.call(code, fields)).code == ResponseCode.SUCCESS
            for broker in brokers.values():
                monkeypatch.setattr(part_of(broker)._links, "send", lambda message: None)
            reset["timestamp"] = "-1"
            found = await asyncio.gather(*(peer.call(code, fields) for code, fields in requests))
            assert [each.code for each in found] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2


async def test_the_commit_of_a_pull_counts_at_the_leader_alone(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        await all_ready(brokers)
        leader = leader_of(brokers)
        follower = next(member for member in brokers if member != leader)
        committing = pull_fields("t", 0) | {"sysFlag": 5, "commitOffset": 2}
        async with connected(brokers[leader]) as peer, connected(brokers[follower]) as other:
            for number in range(3):
                await peer.send("t", b"%d" % number)
            assert await read(other, "t", 3) == [b"0", b"1", b"2"]
            assert (await other.call(RequestCode.PULL_MESSAGE, committing)).code == ResponseCode.SUCCESS
            assert brokers[follower]._store.consumer_offsets.get("t", "consumers", 0) is None
            assert (await peer.call(RequestCode.PULL_MESSAGE, committing)).code == ResponseCode.SUCCESS
            assert brokers[leader]._store.consumer_offsets.get("t", "consumers", 0) == 2


async def test_a_leader_that_returns_does_not_repeat_an_old_reset(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        await all_ready(brokers)
        first = leader_of(brokers)
        second = next(member for member in brokers if member != first)
        queue = {"topic": "t", "consumerGroup": "consumers", "queueId": "0"}
        async with connected(brokers[first]) as peer, connected(brokers[second]) as other:
            for number in range(3):
                await peer.send("t", b"%d" % number)
            assert await read(peer, "t", 3) == [b"0", b"1", b"2"]
            reset = {"topic": "t", "group": "consumers", "timestamp": "0", "isForce": "true"}
            assert (await peer.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)).code == ResponseCode.SUCCESS
            await move(brokers, second)
            follower = await peer.pull("t", 0)
            assert (follower.code, bodies(follower)) == (ResponseCode.SUCCESS, [b"0", b"1", b"2"])
            answer = await other.call(RequestCode.UPDATE_CONSUMER_OFFSET, queue | {"commitOffset": "3"})
            assert answer.code == ResponseCode.SUCCESS
            await all_ready(brokers)
            await move(brokers, first)
            assert (await peer.pull("t", 3, wait_ms=0)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_member_that_cannot_dispatch_leaves_the_lead_to_others_until_it_can(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would lead without accepting messages, because a leader dispatches its log first."""
    monkeypatch.setattr(reput, "REPEAT_S", 0.0)

    def fails(_: MessageStore) -> list[Arrival]:
        raise StoreDamaged("a record in the log is damaged")

    def may_lead(broker: Broker) -> bool:
        raft = part_of(broker).member._raft
        return raft is not None and raft.eligible

    async with group(tmp_path, free_ports(3)) as brokers:
        await all_ready(brokers)
        first = leader_of(brokers)
        victim = next(member for member in brokers if member != first)
        store, dispatch = brokers[victim]._store, MessageStore.dispatch
        with monkeypatch.context() as damaged:
            damaged.setattr(MessageStore, "dispatch", lambda each: fails(each) if each is store else dispatch(each))
            async with connected(brokers[first]) as peer:
                assert (await peer.send("t", b"one")).code == ResponseCode.SUCCESS
            await become(lambda: not may_lead(brokers[victim]))
            await stop(brokers, first)
            await become(lambda: bool(leader_of(brokers)))
            second = leader_of(brokers)
            assert second != victim
            async with connected(brokers[second]) as peer:
                assert (await peer.send("t", b"two")).code == ResponseCode.SUCCESS
            part_of(brokers[second]).member.propose(TransferLeadership(victim))
            await become(lambda: part_of(brokers[second]).member.takes_messages)
            assert leader_of(brokers) == second
        await become(lambda: may_lead(brokers[victim]))
        await move(brokers, victim)


async def test_the_preferred_leader_leads_once_it_has_caught_up_and_offsets_stay(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    ports = free_ports(3)
    async with group(tmp_path, ports, {"preferredLeaderId": "n2"}) as brokers:
        await become(lambda: leader_of(brokers) == "n2")
        config = brokers["n2"].config
        await stop(brokers, "n2")
        await become(lambda: bool(leader_of(brokers)))
        deputy = leader_of(brokers)
        async with connected(brokers[deputy]) as peer:
            for number in range(30):
                assert (await peer.send("t", b"%d" % number)).code == ResponseCode.SUCCESS
            brokers["n2"] = Broker(config)
            await brokers["n2"].start()
            committed = 0
            while leader_of(brokers) == deputy or committed < 20:
                committed += 1
                fields = {"consumerGroup": f"g{committed}", "topic": "t", "queueId": 0, "commitOffset": 9}
                done = await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
                assert done.code == ResponseCode.SUCCESS
                await asyncio.sleep(LOOK_S)
        await become(lambda: leader_of(brokers) == "n2")
        offsets = brokers["n2"]._store.consumer_offsets
        assert [number for number in range(1, committed + 1) if offsets.get("t", f"g{number}", 0) != 9] == []
        await stop(brokers, "n2")


async def test_a_transfer_that_is_given_up_refuses_no_send(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        first, to = await first_and_second(brokers)
        links = part_of(brokers[first])._links
        send = links.send
        monkeypatch.setattr(links, "send", lambda each: None if isinstance(each, TimeoutNow) else send(each))
        async with connected(brokers[first]) as peer:
            part_of(brokers[first]).member.propose(TransferLeadership(to))
            assert not part_of(brokers[first]).member.takes_messages
            answers = await asyncio.gather(*(peer.send("t", b"%d" % number) for number in range(20)))
            assert {answered.code for answered in answers} == {ResponseCode.SUCCESS}
            assert leader_of(brokers) == first
            assert await read(peer, "t", 20) == [b"%d" % number for number in range(20)]


async def test_no_send_is_confirmed_before_a_majority_has_it(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """WAIT=false would confirm messages that only the leader has, which the next leader does not deliver."""
    no_wait = "WAIT\x01false\x02"
    async with group(tmp_path, free_ports(3)) as brokers:
        await all_ready(brokers)
        leader = brokers[leader_of(brokers)]
        monkeypatch.setattr(part_of(leader)._links, "send", lambda _: None)
        async with connected(leader) as peer:
            parts = [
                Part(PartKind.MESSAGE, 0, 0, 0, 0, no_wait, b"one"),
                Part(PartKind.LIST, 0, 0, 0, 0, no_wait, LIST),
            ]
            body = encode_parts(parts)
            several = await peer.call(RequestCode.SEND_QUEUE_BATCHES, send_fields("t"), body)
            single = await peer.send("t", b"two", properties=no_wait)
            listed = await peer.call(RequestCode.SEND_BATCH_MESSAGE, send_fields("t", 0, no_wait) | {"m": "true"}, LIST)
        refused = ResponseCode.SERVICE_NOT_AVAILABLE
        assert [each.code for each in decode_part_responses(several.body, 2)] == [refused, refused]
        assert [single.code, listed.code] == [refused, refused]


async def replaced(
    brokers: dict[str, Broker],
    monkeypatch: pytest.MonkeyPatch,
    request: Callable[[Peer], list[asyncio.Future[RemotingCommand]]],
    size: int,
    *,
    leads_again: bool,
) -> list[RemotingCommand]:
    """Make requests to the leader n0, for which it appends more than ``size`` bytes that no other member gets. Let
    another member lead, whose records are confirmed at the same offsets, and then perhaps n0. Save its topics, and
    return the responses.
    """
    disk = brokers["n0"]._filesystem
    assert isinstance(disk, SlowDisk)
    await all_ready(brokers)
    if leader_of(brokers) != "n0":
        await move(brokers, "n0")
        await all_ready(brokers)
    first = part_of(brokers["n0"])
    async with connected(brokers["n0"]) as peer:
        disk.release.clear()
        with monkeypatch.context() as cut:
            cut.setattr(first._links, "send", lambda _: None)
            before = first._store.end_offset
            waiting = request(peer)
            await become(lambda: first._store.end_offset > before + size)
            end = first._store.end_offset
            await become(lambda: not first.member.leads and bool(leader_of(brokers)))
            async with connected(brokers[leader_of(brokers)]) as other:
                for _ in range(9):
                    assert (await other.send("t", b"x" * 1_000)).code == ResponseCode.SUCCESS
        await become(lambda: first._store.confirmed_offset > end)
        if leads_again:
            await all_ready(brokers)
            await move(brokers, "n0")
        assert not any(each.done() for each in waiting)
        disk.release.set()
        return list(await asyncio.gather(*waiting))


@pytest.mark.parametrize("leads_again", [False, True])
async def test_a_lost_message_is_not_confirmed_when_its_topic_is_saved(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch, leads_again: bool
) -> None:
    lost = b"x" * 1_000
    parts = encode_parts([Part(PartKind.MESSAGE, 0, 0, 0, 0, "", lost)])

    def request(peer: Peer) -> list[asyncio.Future[RemotingCommand]]:
        several = peer.call(RequestCode.SEND_QUEUE_BATCHES, send_fields("new"), parts)
        return list(map(asyncio.ensure_future, (peer.send("new", lost), several, stage(peer, [lost], topic="new"))))

    async with group(tmp_path, free_ports(3), STAGES, SlowDisk(saves_the_topics)) as brokers:
        answers = await replaced(brokers, monkeypatch, request, 3 * len(lost), leads_again=leads_again)
        (part,) = decode_part_responses(answers[1].body, 1)
        assert [answers[0].code, part.code, answers[2].code] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 3
        async with connected(brokers[leader_of(brokers)]) as peer:
            assert (await peer.pull("new", 0, wait_ms=0)).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("leads_again", [False, True])
async def test_a_lost_change_is_not_confirmed_when_its_table_is_saved(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch, leads_again: bool
) -> None:
    """The topic and the user are not known to the group."""
    wanted = {"topic": "new", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    wanted |= {"topicFilterType": "SINGLE_TAG", "order": "false"}
    bob = json.dumps({"password": "bobs-password", "userType": "Normal"}).encode()

    def request(peer: Peer) -> list[asyncio.Future[RemotingCommand]]:
        topic = peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted)
        consumers = peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName": "consumers"}')
        user = peer.call(RequestCode.AUTH_CREATE_USER, {"username": "bob"}, bob)
        return list(map(asyncio.ensure_future, (topic, consumers, user)))

    def saves_a_table(kind: str, path: str) -> bool:
        return kind == "replace" and path.endswith(("topics.json", "subscriptionGroup.json", "users.json"))

    async with group(tmp_path, free_ports(3), None, SlowDisk(saves_a_table)) as brokers:
        answers = await replaced(brokers, monkeypatch, request, 500, leads_again=leads_again)
        assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 3
        tables = assembly_of(brokers[leader_of(brokers)]).tables
        assert "new" not in tables.topics.configs
        assert "consumers" not in tables.groups.configs
        assert tables.security.users.get("bob") is None


@pytest.mark.parametrize("kind", ["topics", "groups"])
async def test_a_list_is_not_changed_on_after_a_loss_of_leadership(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The tables of a follower would differ from those of the group."""
    monkeypatch.setattr(background, "_SLICE_S", -1.0)  # the handler yields after every entry
    code, table, body = {
        "topics": (
            (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, RequestCode.DELETE_TOPIC_IN_BROKER_LIST),
            TopicTable,
            {"topicConfigList": [{"topicName": name} for name in "ab"], "topicList": ["a", "b"]},
        ),
        "groups": (
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST),
            GroupTable,
            {"groupConfigList": [{"groupName": name} for name in "ab"], "groupNameList": ["a", "b"]},
        ),
    }[kind]
    async with group(tmp_path, free_ports(3)) as brokers:
        for each, method in zip(code, ("put", "delete"), strict=True):
            await all_ready(brokers)
            leader = brokers[leader_of(brokers)]
            act, done = getattr(table, method), list[object]()

            def noted(
                self: object, *given: object, act: Any = act, done: list[object] = done, leader: Broker = leader
            ) -> Any:
                done.append(given)
                if len(done) == 1:
                    part_of(leader).member._replica.follow(NotLeader("another member leads"))
                    part_of(leader).tables.follow()
                return act(self, *given)

            async with connected(leader) as peer:
                with monkeypatch.context() as changed:
                    changed.setattr(table, method, noted)
                    answer = await peer.call(each, {}, json.dumps(body).encode())
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert len(done) == 1


def end_forwarding(broker: Broker, begun: float) -> None:
    """Let the time pass in which the former leader forwards requests after a transfer that has begun at this time."""
    sends, now = part_of(broker)._forwarding, asyncio.get_running_loop().time()
    assert sends is not None
    assert begun <= sends._until - forwarding.FORWARD_S <= now
    sends._until = now


async def test_sends_go_on_to_the_next_leader_for_a_while_only(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        first, to = await first_and_second(brokers)
        async with connected(brokers[first]) as peer:
            begun = asyncio.get_running_loop().time()
            await part_of(brokers[first]).transfer(to)
            assert (await peer.send("t", b"goes on")).code == ResponseCode.SUCCESS
            end_forwarding(brokers[first], begun)
            answered = await peer.send("t", b"late")
            assert answered.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert f"member {to} (127.0.0.1:" in (answered.remark or "")


@pytest.mark.parametrize("mounted", [False, True])
async def test_members_sign_what_they_send_one_another(
    tmp_path: Path, free_ports: Callable[[int], list[int]], mounted: bool
) -> None:
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "username").write_text("inner")
    (folder / "password").write_text("inner-secret")
    keys = json.dumps({"accessKey": "inner", "secretKey": "inner-secret"})
    own = {"innerClientCredentialsPath": str(folder)} if mounted else {"innerClientAuthenticationCredentials": keys}
    access = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
    async with group(tmp_path, free_ports(3), access | own) as brokers:
        await all_ready(brokers)
        asked = next(member for member in brokers if member != leader_of(brokers))
        status, answered = await page(brokers[asked], "/replication/restart-allowed")
        assert status == 200, answered
        assert not any(part_of(broker).inbox.refused for broker in brokers.values())
    peers = {"dLegerGroup": "g", "dLegerPeers": "n0-a:1;n1-b:1;n2-c:1", "dLegerSelfId": "n0"}
    with pytest.raises(ConfigError, match="needs innerClientAuthenticationCredentials or innerClientCredentialsPath"):
        settings(tmp_path, access | peers | {"enableDLegerCommitLog": "true"})


async def test_settings_that_are_added_to_a_group_take_effect(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """The log has the users and system topics of the earlier settings."""
    ports = free_ports(3)
    async with group(tmp_path, ports, {"autoCreateTopicEnable": "false"}) as brokers:
        await all_ready(brokers)
        tables = [assembly_of(broker).tables for broker in brokers.values()]
        assert not any(each.security.users.users or "TBW102" in each.topics.configs for each in tables)
    access = {"authenticationEnabled": "true", "stagedMessagesEnable": "true", "autoCreateTopicEnable": "true"}
    access["innerClientAuthenticationCredentials"] = json.dumps({"accessKey": "inner", "secretKey": "inner-secret"})
    access["initAuthenticationUser"] = json.dumps({"username": "admin", "password": "admin-secret"})
    async with group(tmp_path, ports, access) as brokers:
        await all_ready(brokers)
        tables = [assembly_of(broker).tables for broker in brokers.values()]
        await become(lambda: all({"inner", "admin"} == each.security.users.users.keys() for each in tables))
        await become(lambda: all({"TBW102", STAGED_TOPIC} <= each.topics.configs.keys() for each in tables))
    async with group(tmp_path, ports, access | {"autoCreateTopicEnable": "false"}) as brokers:
        await all_ready(brokers)
        tables = [assembly_of(broker).tables for broker in brokers.values()]
        await become(lambda: not any("TBW102" in each.topics.configs for each in tables))


async def test_a_member_keeps_its_own_user_when_it_adopts_tables_without_it(tmp_path: Path) -> None:
    """It would refuse the messages that create the user."""
    inner, admin = Credentials("inner", "inner-secret"), Credentials("admin", "admin-secret")
    tables = load_security(AccessControl(own_credentials=inner, first_user=admin), tmp_path)
    tables.adopt({"users": [], "acls": []})
    assert list(tables.users.users) == ["inner"], "an administrator may delete the first user"
    other = {"username": "inner", "password": "other", "userType": "Super", "userStatus": "enable"}
    tables.adopt({"users": [other], "acls": []})
    assert tables.to_dict()["users"] == [other]


async def test_users_and_permissions_are_those_of_the_group(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    keys = json.dumps({"accessKey": "inner", "secretKey": "inner-secret"})
    access = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
    access["innerClientAuthenticationCredentials"] = keys
    async with group(tmp_path, free_ports(3), access) as brokers:
        await all_ready(brokers)
        leader = leader_of(brokers)
        to = next(member for member in brokers if member != leader)
        pool = ConnectionPool(None, ConnectionLimits(credentials=Credentials("inner", "inner-secret")))

        async def call(member: str, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
            return await pool.request(brokers[member].address, RemotingCommand(code, fields, body), 10)

        bob = json.dumps({"password": "bobs-password", "userType": "Normal"}).encode()
        refused = await call(to, RequestCode.AUTH_CREATE_USER, {"username": "bob"}, bob)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await call(leader, RequestCode.AUTH_CREATE_USER, {"username": "bob"}, bob)).code == 0
        acl = {"resource": "Topic:orders", "actions": ["Pub"], "decision": "Allow"}
        policies = json.dumps({"policies": [{"policyType": "Custom", "entries": [acl]}]}).encode()
        assert (await call(leader, RequestCode.AUTH_CREATE_ACL, {"subject": "User:bob"}, policies)).code == 0
        tables = {member: assembly_of(broker).tables.security for member, broker in brokers.items()}
        await become(lambda: all(table.to_dict() == tables[leader].to_dict() for table in tables.values()))
        assert [acl["subject"] for acl in tables[to].to_dict()["acls"]] == ["User:bob"]
        await part_of(brokers[leader]).transfer(to)
        await become(lambda: leader_of(brokers) == to)
        assert (await call(to, RequestCode.AUTH_DELETE_USER, {"username": "bob"})).code == 0
        await become(lambda: all(table.users.get("bob") is None for table in tables.values()))
        assert all(not table.to_dict()["acls"] for table in tables.values())
        for member, broker in brokers.items():
            assert (tmp_path / member / "commitlog").stat().st_mode & 0o077 == 0
            store = broker._store
            end = store.queue_end(TABLES_TOPIC, 0)
            places = [item[0] for at in range(end) for item in await store.queue_items(TABLES_TOPIC, 0, at, 1)]
            shown = [await call(member, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(place)}) for place in places]
            assert len(shown) > 5
            await check_permissions_have_users(store, places)
            assert all(not answered.body and answered.code != 0 for answered in shown), (
                "the remark is the same for every client"
            )
            assert b"bobs-password" in b"".join(map(bytes, replica_of(broker).read(0, store.end_offset, wait=True)))
            pulled = {"consumerGroup": "g", "topic": TABLES_TOPIC, "queueId": "0", "queueOffset": "0"}
            pulled |= {"maxMsgNums": "32", "sysFlag": "0", "commitOffset": "0", "suspendTimeoutMillis": "0"}
            pulled |= {"subVersion": "0", "subscription": "*"}
            assert (await call(member, RequestCode.PULL_MESSAGE, pulled)).code == ResponseCode.NO_PERMISSION
        async with connected(brokers[to]) as peer:
            forged = await peer.send(TABLES_TOPIC, b'{"security": {"users": [], "acls": []}}')
        assert forged.code == ResponseCode.NO_PERMISSION
        sent = {"producerGroup": "p", "topic": TABLES_TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"}
        sent |= {"queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0"}
        assert (await call(to, RequestCode.SEND_MESSAGE, sent, b"{}")).code == ResponseCode.NO_PERMISSION
        went_on = await call(leader, RequestCode.SEND_MESSAGE, sent | {"topic": "orders"}, b"{}")
        assert went_on.code == ResponseCode.SUCCESS, "with its original signature"
        async with connected(brokers[leader]) as peer:
            assert (await peer.send("orders", b"unsigned")).code == ResponseCode.NO_PERMISSION
        await pool.close()


async def check_permissions_have_users(store: MessageStore, places: list[int]) -> None:
    """Check the table records at these log offsets. The next user of a name would inherit permissions without user."""
    for place in places:
        stored = await store.message_at(place)
        assert stored is not None
        security = loads_object(bytes(decode_record(bytes(stored)).body)).get("security", {"acls": [], "users": []})
        owners = {f"User:{user['username']}" for user in security["users"]}
        assert {acl["subject"] for acl in security["acls"]} <= owners


def replica_of(broker: Broker) -> Replica:
    assert broker._store.replica is not None
    return broker._store.replica


def lacking_data_twice(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[Proposal]:
    """Make the learner lack data at the next two promotions. Return all attempted promotions."""
    attempts: list[Proposal] = []
    member = part_of(broker).member
    propose = member.propose

    def attempt(proposal: Proposal) -> Position | None:
        if isinstance(proposal, PromoteMember):
            attempts.append(proposal)
            if len(attempts) <= 2:
                raise LacksData(f"{proposal.id} lacks committed data: try again when it has caught up")
        return propose(proposal)

    monkeypatch.setattr(member, "propose", attempt)
    return attempts


async def test_a_group_of_three_becomes_one_of_five_and_shrinks_again(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = free_ports(5)
    everybody = {"dLegerPeers": ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))}
    async with group(tmp_path, ports[:3]) as brokers:
        await all_ready(brokers)
        async with connected(brokers[leader_of(brokers)]) as peer:
            assert (await peer.send("t", b"first")).code == ResponseCode.SUCCESS
            refused = await peer.call(RequestCode.CHANGE_MEMBERS, {"action": "add", "member": "n3"})
            assert refused.code == ResponseCode.ILLEGAL_OPERATION
            assert "'n3' is not in dLegerPeers" in (refused.remark or "")
        for member in list(brokers):
            await stop(brokers, member)
    async with group(tmp_path, ports, everybody) as brokers:
        await become(lambda: bool(leader_of(brokers)))
        await become(lambda: len(status_of(brokers[leader_of(brokers)]).joining_disks) == 2)
        leader = leader_of(brokers)
        async with connected(brokers[leader]) as peer:

            async def change(action: str, member: str) -> RemotingCommand:
                return await peer.call(RequestCode.CHANGE_MEMBERS, {"action": action, "member": member})

            for wrong in ("n9", leader):
                assert (await change("add", wrong)).code == ResponseCode.ILLEGAL_OPERATION
            assert (await change("enlarge", "n3")).code == ResponseCode.ILLEGAL_OPERATION
            assert (await change("add", "n3")).code == ResponseCode.SUCCESS
            await become(lambda: "n3" in status_of(brokers[leader]).configuration.voters())
            await become(lambda: status_of(brokers[leader]).configuration_committed)
            answered = await change("addLearner", "n4")
            assert answered.code == ResponseCode.SUCCESS, answered.remark
            assert json.loads(answered.body)["members"][4]["role"] == "learner"
            requests, attempts = 1, lacking_data_twice(brokers[leader], monkeypatch)
            while (answered := await change("promote", "n4")).code != ResponseCode.SUCCESS:
                assert "has caught up" in (answered.remark or ""), answered.remark
                requests += 1
            assert len(attempts) >= requests + 2, "a learner that briefly lacks data is promoted a little later"
            await all_ready(brokers)
            assert (await peer.send("t", b"second")).code == ResponseCode.SUCCESS
            for member in ("n3", "n4"):
                assert (await change("remove", member)).code == ResponseCode.SUCCESS
            assert status_of(brokers[leader]).configuration.voters() == ["n0", "n1", "n2"]
            while await is_ready(brokers["n4"]):  # no member counts it any more, because it hears no leader
                await asyncio.sleep(LOOK_S)
            assert (await change("remove", leader)).code == ResponseCode.SUCCESS
        await become(lambda: leader_of(brokers) not in ("", leader))
        async with connected(brokers[leader_of(brokers)]) as peer:
            assert await read(peer, "t", 2) == [b"first", b"second"]
