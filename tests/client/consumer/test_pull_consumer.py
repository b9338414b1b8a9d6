"""The pull consumer with real brokers: assignments, positions, raw pulls, and brokers that stop and restart."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from raptormq.client import (
    ClientConfig,
    ConsumeFromWhere,
    Consumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PullStatus,
)
from raptormq.client.message import encryption
from raptormq.errors import (
    ClientClosed,
    ClientError,
    ConfigError,
    KeyMissing,
    NoRoute,
    RecordError,
    ServerError,
    TransportError,
)
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.encryption import encrypt_body
from raptormq.protocol.headers.offset import OffsetResponseHeader
from raptormq.protocol.headers.pull import PullMessageResponseHeader
from raptormq.protocol.record import StoredMessage, encode_record, iter_records
from raptormq.transport.connection import Connection
from tests.client.embedded_cluster import Cluster
from tests.client.scripted_peer import Reply, ScriptedPeer, answer, hang_up, refuse, route, silence
from tests.client.single_key import OneKey

Q0 = MessageQueue("t", "broker-0", 0)
Q1 = MessageQueue("t", "broker-0", 1)


async def fill(cluster: Cluster, count: int, queues: int = 1, tags: str = "A") -> None:
    await cluster.create_topic("t", queues)
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for queue in await producer.queues("t"):
            messages = [Message("t", b"%d-%d" % (queue.queue_id, n), tags[n % len(tags)]) for n in range(count)]
            await producer.send_batch(messages, queue=queue)


async def poll_all(consumer: PullConsumer, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    while len(messages) < count:
        messages += await consumer.poll(10)
    return messages


async def test_everything_that_is_assigned_is_read_in_order(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster:
        await fill(cluster, 100, queues=2)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            queues = await consumer.queues("t")
            assert len(queues) == 4
            consumer.assign(queues)
            messages = await poll_all(consumer, 400)
            for queue in queues:
                bodies = [m.body for m in messages if m.queue == queue]
                assert bodies == [b"%d-%d" % (queue.queue_id, n) for n in range(100)]
            assert await consumer.poll(0.05) == []
            assert [consumer.position(queue) for queue in queues] == [100] * 4


async def test_seek_and_what_stays_after_another_assignment(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, 50, queues=2)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            first, second = await consumer.queues("t")
            consumer.assign([first])
            consumer.seek(first, 45)
            assert [m.queue_offset for m in await poll_all(consumer, 5)] == [45, 46, 47, 48, 49]
            consumer.assign([second, first])
            assert consumer.assignment == [first, second]
            assert consumer.position(first) == 50
            assert {m.queue for m in await poll_all(consumer, 50)} == {second}
            consumer.assign([])
            assert await consumer.poll(0.01) == []


async def test_seek_while_a_pull_is_held_by_the_broker(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, 10)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            consumer.assign([Q0])
            assert len(await poll_all(consumer, 10)) == 10
            assert await consumer.poll(0.05) == []
            consumer.seek(Q0, 7)
            assert [m.queue_offset for m in await poll_all(consumer, 3)] == [7, 8, 9]


async def test_a_held_pull_brings_a_new_message_at_once(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await cluster.create_topic("t", 1)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            consumer.assign([Q0])
            assert await consumer.poll(0.05) == []
            await producer.send(Message("t", b"news"))
            assert [m.body for m in await consumer.poll(10)] == [b"news"]  # brokers hold it for longer


async def test_tags_are_compared_as_text(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, 10, tags="AB")
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for tag in ("BB", "Aa"):  # equal hashes
                await producer.send(Message("t", tag.encode(), tag))
        async with PullConsumer(name_servers=cluster.name_servers, expression="B || Aa") as consumer:
            consumer.assign([Q0])
            messages = await poll_all(consumer, 6)
            assert [m.tags for m in messages] == ["B"] * 5 + ["Aa"]


async def test_progress_is_committed_and_found_again(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, 40, queues=2)
        async with PullConsumer(name_servers=cluster.name_servers, group="g") as consumer:
            queues = await consumer.queues("t")
            consumer.assign(queues)
            for queue in queues:
                consumer.seek(queue, 30)
            await poll_all(consumer, 20)
            await consumer.commit()
            assert [await consumer.committed(queue) for queue in queues] == [40, 40]
        async with PullConsumer(name_servers=cluster.name_servers, group="g") as again:
            again.assign(queues)
            while [again.position(queue) for queue in queues] != [40, 40]:
                assert await again.poll(0.1) == []


async def test_members_of_the_group_are_its_consumers_with_heartbeats(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, 1)
        async with PullConsumer(name_servers=cluster.name_servers, group="g") as consumer:
            assert await consumer.members(Q0) == []
            member = Consumer("g", client_config=ClientConfig(cluster.name_servers, instance_name="member"))
            member.subscribe("t")
            async with member:
                [client_id] = await consumer.members(Q0)
                assert client_id.endswith("@member")
            assert await consumer.members(Q0) == []


@pytest.mark.parametrize("group", [None, "new"])
@pytest.mark.parametrize("where", list(ConsumeFromWhere))
async def test_where_a_reader_without_progress_starts(
    tmp_path: Path, where: ConsumeFromWhere, group: str | None
) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await fill(cluster, 5)
        async with PullConsumer(name_servers=cluster.name_servers) as reader:
            [last] = (await reader.pull(Q0, 4)).messages()
            while int(time.time() * 1000) <= last.store_timestamp:
                await asyncio.sleep(0)
        middle = int(time.time() * 1000)
        await producer.send(Message("t", b"later"))
        async with PullConsumer(
            name_servers=cluster.name_servers, group=group, consume_from=where, consume_from_ms=middle
        ) as consumer:
            if group is not None:
                assert await consumer.committed(Q0) is None
            consumer.assign([Q0])
            started = asyncio.create_task(consumer.poll(10))
            while consumer.position(Q0) is None:
                await asyncio.sleep(0)
            await producer.send(Message("t", b"last"))
            first = (await started)[0].queue_offset
        assert first == {ConsumeFromWhere.FIRST: 0, ConsumeFromWhere.LAST: 6, ConsumeFromWhere.TIMESTAMP: 5}[where]


async def test_bounds_and_times(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, 7)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            assert await consumer.min_offset(Q0) == 0
            assert await consumer.max_offset(Q0) == 7
            assert await consumer.offset_by_time(Q0, 0) == 0
            assert await consumer.offset_by_time(Q0, int(time.time() * 1000) + 60_000) == 7


async def test_a_raw_pull_returns_the_stored_records(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, 10)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            result = await consumer.pull(Q0, 3, 4)
            assert result.status is PullStatus.FOUND
            assert (result.next_offset, result.min_offset, result.max_offset) == (7, 0, 10)
            assert [record.queue_offset for record in iter_records(result.body)] == [3, 4, 5, 6]
            assert [m.body for m in result.messages()] == [b"0-3", b"0-4", b"0-5", b"0-6"]
            at_the_end = await consumer.pull(Q0, 10)
            assert (at_the_end.status, at_the_end.next_offset) == (PullStatus.NO_NEW_MESSAGE, 10)
            beyond = await consumer.pull(Q0, 999)
            assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 10)
            nothing_matches = await consumer.pull(Q0, 0, expression="C")
            assert nothing_matches.status is PullStatus.NO_MATCHED_MESSAGE
            assert nothing_matches.messages() == []


async def test_an_offset_outside_the_queue_is_corrected(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await fill(cluster, 3)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            consumer.assign([Q0])
            consumer.seek(Q0, 1000)
            while consumer.position(Q0) != 3:
                assert await consumer.poll(0.1) == []
            await producer.send(Message("t", b"new"))
            assert [m.body for m in await consumer.poll(10)] == [b"new"]


async def test_a_broker_that_restarts_elsewhere_is_read_on(tmp_path: Path, free_port: int) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, 100)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            consumer.assign([Q0])
            assert (await consumer.poll(10))[0].queue_offset == 0
            position = consumer.position(Q0)
            assert position is not None
            old = cluster.broker().address
            await cluster.stop_broker(0)
            await cluster.start_broker(0, free_port)
            assert cluster.broker().address != old
            rest = await poll_all(consumer, 100 - position)
            assert [m.queue_offset for m in rest] == list(range(position, 100))


async def test_a_broker_that_is_down_is_an_error_only_when_it_lasts(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("p", name_servers=cluster.name_servers) as producer:
        await fill(cluster, 10)
        async with PullConsumer(name_servers=cluster.name_servers) as consumer:
            consumer.assign([Q0])
            await poll_all(consumer, 10)
            await cluster.stop_broker(0)
            with pytest.raises((TransportError, NoRoute)):
                await consumer.poll(0.5)
            await cluster.start_broker(0)
            await producer.send(Message("t", b"back"))
            assert [message.body for message in await consumer.poll(20)] == [b"back"]


async def test_misuse_is_named(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, 1)
        consumer = PullConsumer(name_servers=cluster.name_servers)
        with pytest.raises(ClientClosed):
            await consumer.queues("t")
        async with consumer:
            with pytest.raises(NoRoute, match="nope"):
                await consumer.queues("nope")
            with pytest.raises(NoRoute, match="broker-9"):
                await consumer.pull(MessageQueue("t", "broker-9", 0), 0)
            with pytest.raises(ServerError):
                await consumer.pull(MessageQueue("t", "broker-0", 99), 0)
            with pytest.raises(ClientError, match="not assigned"):
                consumer.seek(Q0, 0)
            consumer.assign([Q0])
            with pytest.raises(ClientError, match="of at least 0, not -1"):
                consumer.seek(Q0, -1)
            with pytest.raises(ClientError, match="no group"):
                await consumer.commit()
        await consumer.close()
        with pytest.raises(ClientClosed):
            await consumer.poll(0.1)
    with pytest.raises(ConfigError):
        PullConsumer(name_servers="nowhere")


# --- peers that misbehave ---

PULL = RequestCode.PULL_MESSAGE
EMPTY = PullMessageResponseHeader(0, 0, 0, 0)
PLAIN = encode_record(StoredMessage("t", 0, b"x", "", queue_offset=0))


async def test_a_broker_that_cannot_hold_a_pull_is_not_asked_all_the_time() -> None:
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        peer.on(RequestCode.GET_MIN_OFFSET, answer(header=OffsetResponseHeader(0)))
        peer.on(PULL, answer(ResponseCode.PULL_NOT_FOUND, EMPTY))
        async with PullConsumer(name_servers=peer.address) as consumer:
            consumer.assign([Q0])
            assert await consumer.poll(0.5) == []
        assert len(peer.received[PULL]) <= 4


async def test_a_refusal_is_raised() -> None:
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        peer.on(RequestCode.GET_MIN_OFFSET, answer(header=OffsetResponseHeader(0)))
        peer.on(PULL, refuse(ResponseCode.NO_PERMISSION))
        async with PullConsumer(name_servers=peer.address) as consumer:
            consumer.assign([Q0])
            with pytest.raises(ServerError) as caught:
                await consumer.poll(5)
            assert caught.value.code == ResponseCode.NO_PERMISSION


async def test_a_damaged_record_is_raised_and_not_skipped() -> None:
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        peer.on(RequestCode.GET_MIN_OFFSET, answer(header=OffsetResponseHeader(0)))
        peer.on(PULL, answer(header=PullMessageResponseHeader(0, 1, 0, 1), body=b"\x00" * 100))
        async with PullConsumer(name_servers=peer.address) as consumer:
            consumer.assign([Q0])
            with pytest.raises(RecordError):
                await consumer.poll(5)
            assert consumer.position(Q0) == 0


async def test_a_record_with_a_wrong_checksum_is_told_twice_and_left_out() -> None:
    bodies = [encode_record(StoredMessage("t", 0, b"body", "", queue_offset=offset)) for offset in (0, 1, 2)]
    bodies[1] = bodies[1].replace(b"body", b"dead")
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        peer.on(RequestCode.GET_MIN_OFFSET, answer(header=OffsetResponseHeader(0)))
        header = PullMessageResponseHeader(0, 3, 0, 3)
        peer.on(PULL, *(answer(header=header, body=b"".join(bodies[start:])) for start in (0, 1, 1, 2)))
        async with PullConsumer(name_servers=peer.address) as consumer:
            consumer.assign([Q0])
            assert [message.queue_offset for message in await consumer.poll(5)] == [0]
            for after in (1, 2):
                with pytest.raises(RecordError, match="the message at offset 1 of"):
                    await consumer.poll(5)
                assert consumer.position(Q0) == after
            assert [message.queue_offset for message in await consumer.poll(5)] == [2]


def both_at_once(bodies: dict[str, bytes]) -> Reply:
    """Respond to the first pulls of these queues in one write, so that one poll receives all responses, and none
    later.
    """
    waiting: list[RemotingCommand] = []

    def reply(connection: Connection, request: RemotingCommand) -> None:
        if request.ext_fields["queueOffset"] != "0":
            return
        waiting.append(request)
        if len(waiting) == len(bodies):
            for pull in waiting:
                header = PullMessageResponseHeader(0, 1, 0, 1)
                connection.send(response_to(pull, header=header, body=bodies[pull.ext_fields["queueId"]]))
            waiting.clear()

    return reply


async def test_a_damaged_record_of_one_queue_takes_nothing_of_another_along() -> None:
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(2, peer))
        peer.on(RequestCode.GET_MIN_OFFSET, answer(header=OffsetResponseHeader(0)))
        peer.on(PULL, both_at_once({"0": PLAIN, "1": b"\0" * 100}))
        async with PullConsumer(name_servers=peer.address) as consumer:
            consumer.assign([Q0, Q1])
            assert await consumer.poll(0) == []  # starts both pulls
            assert [message.body for message in await consumer.poll(5)] == [b"x"]
            with pytest.raises(RecordError):
                await consumer.poll(5)
            assert (consumer.position(Q0), consumer.position(Q1)) == (1, 0)


class FailingKeys(OneKey):
    """A user-defined key source whose service is unavailable."""

    def key(self, key_id: str) -> bytes:
        raise ConfigError("the key service is away")


@pytest.mark.parametrize("expected", [KeyMissing, MemoryError])
async def test_whatever_a_message_of_one_queue_raises_takes_nothing_of_another_along(
    monkeypatch: pytest.MonkeyPatch, expected: type[Exception]
) -> None:
    if expected is MemoryError:
        monkeypatch.setattr(encryption, "decrypt_body", Mock(side_effect=MemoryError))
    body = encrypt_body(b"secret", 0, "k1", bytes(32), bytes(12))
    encrypted = encode_record(StoredMessage("t", 1, body, "__ENCRYPTION_KEY\x01k1\x02", queue_offset=0))
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(2, peer))
        peer.on(RequestCode.GET_MIN_OFFSET, answer(header=OffsetResponseHeader(0)))
        peer.on(PULL, both_at_once({"0": PLAIN, "1": encrypted}))
        keys = FailingKeys() if expected is KeyMissing else OneKey()
        async with PullConsumer(client_config=ClientConfig(peer.address, keys=keys)) as consumer:
            consumer.assign([Q0, Q1])
            assert await consumer.poll(0) == []  # starts both pulls
            assert [message.body for message in await consumer.poll(5)] == [b"x"]
            with pytest.raises(expected):
                await consumer.poll(5)
            assert (consumer.position(Q0), consumer.position(Q1)) == (1, 0)


async def test_a_query_that_a_former_leader_refuses_goes_to_the_next_one() -> None:
    async with ScriptedPeer() as former, ScriptedPeer() as leader:
        former.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, former), route(1, leader))
        former.on(RequestCode.GET_MAX_OFFSET, refuse(ResponseCode.SERVICE_NOT_AVAILABLE))
        leader.on(RequestCode.GET_MAX_OFFSET, answer(header=OffsetResponseHeader(7)))
        async with PullConsumer(name_servers=former.address) as consumer:
            assert await consumer.max_offset(Q0) == 7
            former.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, leader))
            leader.on(RequestCode.GET_MAX_OFFSET, refuse(ResponseCode.SERVICE_NOT_AVAILABLE))
            with pytest.raises(ServerError):  # no other leader is known yet
                await consumer.max_offset(Q0)


async def test_a_connection_that_breaks_during_a_pull_is_made_again() -> None:
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        peer.on(RequestCode.GET_MIN_OFFSET, answer(header=OffsetResponseHeader(3)))
        moved = answer(ResponseCode.PULL_OFFSET_MOVED, PullMessageResponseHeader(0, 5, 5, 9))
        record = encode_record(StoredMessage("t", 0, b"x", "", queue_offset=5))
        peer.on(PULL, hang_up, moved, answer(header=PullMessageResponseHeader(0, 6, 5, 9), body=record), silence)
        async with PullConsumer(name_servers=peer.address) as consumer:
            consumer.assign([Q0])
            assert [message.queue_offset for message in await consumer.poll(20)] == [5]
