"""The reader of one queue with faults of brokers: moved offsets, missing subscriptions, damaged responses."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from raptormq.client import ClientConfig, ConsumerConfig, EncryptionKeys, MessageExt, MessageQueue
from raptormq.client.cluster.client_instance import ClientInstance
from raptormq.client.consumer.broker_outages import BrokerOutages, Failure
from raptormq.client.consumer.process_queue import ProcessQueue
from raptormq.client.consumer.pull import PullResult
from raptormq.client.consumer.queue_reader import PullPace, QueueReader, ReaderContext
from raptormq.errors import ConfigError, KeyMissing, RaptorMQError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.encryption import encrypt_body
from raptormq.protocol.headers.offset import OffsetResponseHeader
from raptormq.protocol.headers.pull import PullMessageResponseHeader
from raptormq.protocol.record import StoredMessage, encode_record
from tests.client.eventually import eventually
from tests.client.member import Member
from tests.client.scripted_peer import Reply, ScriptedPeer, answer, hang_up, refuse, route, silence

QUEUE = MessageQueue("t", "broker-0", 0)
PULL = RequestCode.PULL_MESSAGE
HEART_BEAT = RequestCode.HEART_BEAT


def records(first: int, count: int, tag: str = "A") -> Reply:
    stored = [StoredMessage("t", 0, b"x" * 10, f"TAGS\x01{tag}\x02", queue_offset=first + n) for n in range(count)]
    header = PullMessageResponseHeader(0, first + count, 0, 1000)
    return answer(header=header, body=b"".join(map(encode_record, stored)))


def inner_batch(base: int, count: int, stated: int | None = None) -> bytes:
    body = encode_batch([(0, b"%d" % n, b"TAGS\x01%s\x02" % (b"AB"[n % 2 : n % 2 + 1])) for n in range(count)])
    properties = f"INNER_NUM\x01{stated or count}\x02"
    return encode_record(StoredMessage("t", 0, body, properties, sys_flag=0xC0, queue_offset=base))


def pulled(*stored: bytes, following: int) -> Reply:
    return answer(header=PullMessageResponseHeader(0, following, 0, 1000), body=b"".join(stored))


def pull_results(next_offset: int) -> list[object]:
    """The responses to pulls that end with an exception."""
    return [kept for kept in gc.get_objects() if isinstance(kept, PullResult) and kept.next_offset == next_offset]


class Handed:
    """Receives the messages of the reader."""

    def __init__(self) -> None:
        self.calls: list[tuple[QueueReader, ProcessQueue, Sequence[MessageExt]]] = []
        self._changed = asyncio.Event()

    def __call__(self, reader: QueueReader, progress: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        self.calls.append((reader, progress, messages))
        self._changed.set()

    @property
    def offsets(self) -> list[int]:
        return [message.queue_offset for _, _, messages in self.calls for message in messages]

    async def until(self, count: int) -> None:
        while len(self.offsets) < count:
            self._changed.clear()
            await self._changed.wait()


@asynccontextmanager
async def reading(
    peer: ScriptedPeer,
    *pulls: Reply,
    committed: int = 5,
    expression: str = "*",
    config: ConsumerConfig | None = None,
    whole: bool = False,
    keys: EncryptionKeys | None = None,
    pace: PullPace | None = None,
) -> AsyncIterator[tuple[QueueReader, Handed]]:
    peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
    peer.on(RequestCode.QUERY_CONSUMER_OFFSET, answer(header=OffsetResponseHeader(committed)))
    peer.on(PULL, *pulls)
    instance = ClientInstance.acquire(ClientConfig(peer.address, keys=keys))
    instance.register_consumer("g", Member())
    handed = Handed()
    subscription = Subscription.parse("t", expression, 1)
    settings, outages = config or ConsumerConfig(), BrokerOutages("g")
    context = ReaderContext(instance, settings, "g", handed, None, pace or PullPace(), outages, lambda _: None)
    reader = QueueReader(context, QUEUE, subscription, lambda: whole)
    try:
        yield reader, handed
    finally:
        reader.revoke()
        await reader.wait_for_calls(0)
        await instance.unregister_consumer("g")
        await instance.release()


async def test_it_starts_where_the_group_stands_and_goes_on() -> None:
    async with ScriptedPeer() as peer, reading(peer, records(5, 3), records(8, 2), silence) as (reader, handed):
        await handed.until(5)
        await peer.wait_for(PULL, 3)
        assert handed.offsets == [5, 6, 7, 8, 9]
        assert [pull.ext_fields["queueOffset"] for pull in peer.received[PULL]] == ["5", "8", "10"]
        assert reader.process_queue is not None
        assert reader.process_queue.commit_offset == 5


async def test_a_pull_says_what_a_push_consumer_says() -> None:
    async with ScriptedPeer() as peer, reading(peer, silence):
        [pull] = await peer.wait_for(PULL)
        assert pull.ext_fields == {
            "consumerGroup": "g",
            "topic": "t",
            "queueId": "0",
            "queueOffset": "5",
            "maxMsgNums": "32",
            "sysFlag": "2",
            "commitOffset": "0",
            "suspendTimeoutMillis": "15000",
            "subVersion": "1",
            "expressionType": "TAG",
            "bname": "broker-0",
            "topicId": "?",
        }


async def test_one_of_many_idle_queues_is_asked_for_seldom() -> None:
    pace = PullPace()
    pace.waiting = 8_000 - 1
    async with ScriptedPeer() as peer, reading(peer, silence, pace=pace):
        [pull] = await peer.wait_for(PULL)
        assert pull.ext_fields["suspendTimeoutMillis"] == "40000"
        assert pace.waiting == 8_000
    assert pace.waiting == 8_000 - 1


async def test_an_idle_queue_does_not_keep_what_it_brought_last() -> None:
    async with ScriptedPeer() as peer, reading(peer, records(7_005, 3), silence, committed=7_005) as (_, handed):
        await handed.until(3)
        await peer.wait_for(PULL, 2)
        assert not pull_results(next_offset=7_008)


async def test_a_queue_without_a_key_does_not_keep_what_it_could_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        logging.getLogger("raptormq.client.consumer.queue_reader"), "disabled", True
    )  # pytest keeps logged records
    encrypted = encrypt_body(b"secret", 0, "k1", bytes(16), b"n" * 12)
    stored = encode_record(StoredMessage("t", 0, encrypted, "__ENCRYPTION_KEY\x01k1\x02", queue_offset=8_005))
    pulls = pulled(stored, following=8_006), silence
    async with ScriptedPeer() as peer, reading(peer, *pulls, committed=8_005, keys=LateKeys()):
        first, second = await peer.wait_for(PULL, 2)
        assert first.ext_fields["queueOffset"] == second.ext_fields["queueOffset"] == "8005"
        assert not pull_results(next_offset=8_006)


async def test_an_offset_that_moved_makes_what_is_unfinished_void() -> None:
    moved = answer(ResponseCode.PULL_OFFSET_MOVED, PullMessageResponseHeader(0, 100, 100, 200))
    async with (
        ScriptedPeer() as peer,
        reading(peer, records(5, 3), moved, records(100, 1), silence) as (
            reader,
            handed,
        ),
    ):
        await handed.until(4)
        assert handed.offsets == [5, 6, 7, 100]
        before, after = handed.calls[0][1], handed.calls[1][1]
        assert before.dropped
        assert not after.dropped
        assert after is reader.process_queue
        assert after.commit_offset == 100


@pytest.mark.parametrize("code", [24, 25, 26])
async def test_a_broker_that_forgot_the_subscription_hears_of_it_before_the_next_pull(code: int) -> None:
    async with ScriptedPeer() as peer, reading(peer, refuse(code), records(5, 1), silence) as (_, handed):
        await handed.until(1)
        assert len(peer.received[HEART_BEAT]) >= 1


async def test_a_broker_that_is_back_and_has_forgotten_is_read_from_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(self: BrokerOutages, queue: MessageQueue, failure: Failure, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(BrokerOutages, "pause", pause)
    replies = [hang_up] * 4 + [refuse(24)] * 2 + [records(5, 1), hang_up, silence]
    async with ScriptedPeer() as peer, reading(peer, *replies) as (_, handed):
        await handed.until(1)
        await eventually(lambda: len(pauses) == 7)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 0.1, 0.2, 0.1]


@pytest.mark.parametrize(
    "reply",
    [
        refuse(ResponseCode.SYSTEM_BUSY),
        hang_up,
        answer(),
        answer(header=PullMessageResponseHeader(0, 6, 0, 9), body=b"damaged" * 20),
    ],
    ids=["busy", "hangs up", "no fields", "damaged"],
)
async def test_a_failure_is_tried_again_and_nothing_is_skipped(reply: Reply) -> None:
    async with ScriptedPeer() as peer, reading(peer, reply, reply, records(5, 2), silence) as (_, handed):
        await handed.until(2)
        assert handed.offsets == [5, 6]
        assert [pull.ext_fields["queueOffset"] for pull in peer.received[PULL][:3]] == ["5", "5", "5"]


async def test_filtered_messages_count_as_done() -> None:
    none_matches = answer(ResponseCode.PULL_RETRY_IMMEDIATELY, PullMessageResponseHeader(0, 40, 0, 41))
    async with (
        ScriptedPeer() as peer,
        reading(peer, records(5, 3, tag="BB"), none_matches, records(40, 1, tag="Aa"), silence, expression="Aa") as (
            reader,
            handed,
        ),
    ):
        await handed.until(1)
        assert handed.offsets == [40]
        assert reader.process_queue is not None
        assert reader.process_queue.commit_offset == 40


async def test_messages_before_the_offset_are_not_handed_out_again() -> None:
    async with ScriptedPeer() as peer, reading(peer, records(3, 4), silence) as (_, handed):
        await handed.until(2)
        assert handed.offsets == [5, 6]  # a batch is returned whole, although 3 and 4 were consumed before


async def test_fetching_pauses_while_too_much_is_unfinished() -> None:
    config = ConsumerConfig(max_messages_per_queue=2)
    async with (
        ScriptedPeer() as peer,
        reading(peer, records(5, 2), records(7, 1), silence, config=config) as (
            reader,
            handed,
        ),
    ):
        await handed.until(2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(peer.received[PULL]) == 1
        assert reader.process_queue is not None
        reader.complete(reader.process_queue, 5)
        await handed.until(3)


async def test_the_suggested_replica_is_asked_next() -> None:
    async with ScriptedPeer() as peer:
        suggestion = answer(
            header=PullMessageResponseHeader(1, 6, 0, 9),
            body=encode_record(StoredMessage("t", 0, b"x", "", queue_offset=5)),
        )
        async with reading(peer, suggestion, silence) as (reader, _):
            await peer.wait_for(PULL, 2)
            assert reader._broker_id == 1


async def test_a_pull_that_begins_inside_a_batch_hands_out_only_the_rest() -> None:
    batch = pulled(inner_batch(3, 4), following=7)
    async with ScriptedPeer() as peer, reading(peer, batch, silence) as (reader, handed):
        await handed.until(2)
        await peer.wait_for(PULL, 2)
        assert handed.offsets == [5, 6]
        assert [pull.ext_fields["queueOffset"] for pull in peer.received[PULL]] == ["5", "7"]
        assert reader.process_queue is not None
        assert reader.process_queue.unfinished_messages == 2


async def test_whole_batches_are_handed_out_one_by_one_and_finished_as_one() -> None:
    batches = pulled(inner_batch(3, 4), inner_batch(7, 2), following=9)
    async with ScriptedPeer() as peer, reading(peer, batches, silence, whole=True) as (reader, handed):
        await handed.until(4)
        [first, _] = await peer.wait_for(PULL, 2)
        assert (first.ext_fields["maxMsgNums"], first.ext_fields["maxMsgBytes"]) == ("32767", "1048576")
        assert [[each.queue_offset for each in batch] for _, _, batch in handed.calls] == [[5, 6], [7, 8]]
        assert reader.process_queue is not None
        reader.complete(reader.process_queue, 5)
        assert (reader.process_queue.commit_offset, reader.process_queue.unfinished_messages) == (7, 2)


@pytest.mark.parametrize("whole", [False, True])
async def test_messages_of_a_batch_are_filtered_by_their_own_tags(whole: bool) -> None:
    batch = pulled(inner_batch(5, 4), following=9)
    async with ScriptedPeer() as peer, reading(peer, batch, silence, expression="B", whole=whole) as (reader, handed):
        await handed.until(2)
        assert handed.offsets == [6, 8]
        assert reader.process_queue is not None
        assert reader.process_queue.commit_offset == 6


class LateKeys:
    """A key that becomes available after the first request."""

    def __init__(self, error: type[RaptorMQError] = KeyMissing) -> None:
        self.asked = 0
        self.error = error

    def current(self) -> tuple[str, bytes]:
        return "k1", bytes(16)

    def key(self, key_id: str) -> bytes:
        self.asked += 1
        if self.asked == 1:
            raise self.error(f"no key {key_id}")
        return bytes(16)


@pytest.mark.parametrize("error", [KeyMissing, ConfigError])
@pytest.mark.parametrize("whole", [False, True])
async def test_what_stands_before_a_message_without_a_key_is_handed_out(
    whole: bool, error: type[RaptorMQError]
) -> None:
    encrypted = encode_record(
        StoredMessage(
            "t", 0, encrypt_body(b"x", 0, "k1", bytes(16), bytes(12)), "__ENCRYPTION_KEY\x01k1\x02", queue_offset=7
        )
    )
    first, second = pulled(inner_batch(5, 2), encrypted, following=8), pulled(encrypted, following=8)
    async with (
        ScriptedPeer() as peer,
        reading(peer, first, second, silence, keys=LateKeys(error), whole=whole) as (
            _,
            handed,
        ),
    ):
        await handed.until(3)
        assert handed.offsets == [5, 6, 7]
        assert [pull.ext_fields["queueOffset"] for pull in peer.received[PULL][:2]] == ["5", "7"]


async def test_a_missing_key_stops_the_queue_until_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    encrypted = encrypt_body(b"secret", 0, "k1", bytes(16), b"n" * 12)
    stored = encode_record(StoredMessage("t", 0, encrypted, "__ENCRYPTION_KEY\x01k1\x02", queue_offset=5))
    async with (
        ScriptedPeer() as peer,
        reading(peer, pulled(stored, following=6), pulled(stored, following=6), silence, keys=LateKeys()) as (
            _,
            handed,
        ),
    ):
        await handed.until(1)
        [(_, _, [message])] = handed.calls
        assert (message.body, message.queue_offset) == (b"secret", 5)
    assert "no key k1" in caplog.text


async def test_a_record_with_a_wrong_checksum_is_left_out_when_it_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    def stored(body: bytes, offset: int) -> bytes:
        return encode_record(StoredMessage("t", 0, body, "", queue_offset=offset))

    damaged = stored(b"was right", 6).replace(b"was right", b"is  wrong")
    first = pulled(stored(b"a", 5), damaged, stored(b"c", 7), following=8)
    right, wrong = pulled(stored(b"was right", 6), following=7), pulled(damaged, stored(b"c", 7), following=8)
    async with ScriptedPeer() as peer, reading(peer, first, right, silence) as (_, handed):
        await handed.until(2)
        assert handed.offsets == [5, 6], "the second body was valid"
    async with ScriptedPeer() as peer, reading(peer, first, wrong, silence) as (_, handed):
        await handed.until(2)
        assert handed.offsets == [5, 7]
    assert caplog.text.count("the message at offset 6 of t@broker-0:0 cannot be consumed") == 1


async def test_a_body_that_nobody_can_read_is_left_out_and_the_queue_goes_on() -> None:
    broken = encode_record(StoredMessage("t", 0, b"not zlib", "", sys_flag=0x301, queue_offset=5))
    async with (
        ScriptedPeer() as peer,
        reading(peer, pulled(broken, inner_batch(6, 1), following=7), silence) as (_, handed),
    ):
        await handed.until(1)
        assert handed.offsets == [6]


async def test_a_batch_that_lies_is_left_out_and_the_queue_goes_on() -> None:
    stored = pulled(inner_batch(5, 2, stated=3), inner_batch(8, 1), following=9)
    async with ScriptedPeer() as peer, reading(peer, stored, silence) as (_, handed):
        await handed.until(1)
        assert handed.offsets == [8]
