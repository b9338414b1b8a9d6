"""Requests for several queues, on the wire: every part is a separate send."""

from __future__ import annotations

import asyncio
import errno
import zlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from raptormq.broker.send.queue_batches import MAX_NEW_TOPICS
from raptormq.errors import NotLeader
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import CommandFlag, RemotingCommand
from raptormq.protocol.inner_batch import INNER_BATCH, unwrap
from raptormq.protocol.message_id import decode_host, parse_offset_id
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.queue_batches import Part, PartKind, PartResponse, decode_part_responses, encode_parts
from raptormq.protocol.record import SysFlag
from raptormq.storage.fs.real import RealFileSystem
from raptormq.storage.queue.append_batches import AppendedLists, PendingList
from raptormq.storage.store import MessageStore
from tests.broker.batches.batch_peer import create_topic
from tests.broker.harness import TIMEOUT, Peer, bodies, connected, messages, running
from tests.broker.slow_disk import SlowDisk
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.turns import counted_turns

LIST, MESSAGE = PartKind.LIST, PartKind.MESSAGE
FIELDS = {"a": "producers", "c": "TBW102", "d": "4", "g": "1700000000000", "n": "broker-a"}


def listed(queue_id: int, *names: str, topic: int = 0, properties: str = "WAIT\x01true\x02") -> Part:
    body = encode_batch([(0, name.encode(), f"UNIQ_KEY\x01{name}\x02".encode()) for name in names])
    return Part(LIST, topic, queue_id, 0, 0, properties, body)


def single(queue_id: int, name: str, topic: int = 0, properties: str = "", flag: int = 5) -> Part:
    return Part(MESSAGE, topic, queue_id, 0, flag, properties, name.encode())


def places(answer: PartResponse) -> list[int]:
    return [parse_offset_id(each).physical_offset for each in answer.text.split(",")]


async def ask(peer: Peer, parts: Sequence[Part], topics: str = "t", body: bytes | None = None) -> RemotingCommand:
    command = RemotingCommand(
        RequestCode.SEND_QUEUE_BATCHES, FIELDS | {"b": topics}, encode_parts(parts) if body is None else body
    )
    return await peer.connection.request(command, TIMEOUT)


async def send(peer: Peer, *parts: Part, topics: str = "t") -> list[PartResponse]:
    answer = await ask(peer, parts, topics)
    assert answer.code == 0, answer.remark
    return decode_part_responses(answer.body, len(parts))


async def test_each_part_goes_to_its_queue_and_is_answered_with_its_place(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await send(peer, listed(0, "before"))
        answers = await send(
            peer, listed(3, "a", "b"), listed(0, "c"), single(1, "d"), listed(2, "e", topic=1), topics="t;u"
        )
        stored = [
            messages(await peer.pull(topic, 0, queue)) for topic, queue in (("t", 3), ("t", 0), ("t", 1), ("u", 2))
        ]
    assert [(each.code, each.stored_as_batch, each.queue_id, each.queue_offset) for each in answers] == [
        (0, False, 3, 0),
        (0, False, 0, 1),
        (0, False, 1, 0),
        (0, False, 2, 0),
    ]
    assert [[message.body for message in queue] for queue in stored] == [
        [b"a", b"b"],
        [b"before", b"c"],
        [b"d"],
        [b"e"],
    ]
    assert [places(each) for each in answers] == [
        [message.physical_offset for message in queue[-count:]]
        for queue, count in zip(stored, (2, 1, 1, 1), strict=True)
    ]
    assert stored[2][0].flag == 5
    assert {message.born_timestamp for queue in stored for message in queue} == {1_700_000_000_000}
    own = decode_properties(stored[0][0].properties)
    assert (own["UNIQ_KEY"], own["CLUSTER"]) == ("a", "DefaultCluster")
    assert decode_host(stored[0][0].born_host)[0] == "127.0.0.1"


async def test_a_part_that_is_refused_leaves_the_others_alone(tmp_path: Path) -> None:
    async with running(tmp_path, {"maxMessageSize": "1000"}) as broker, connected(broker) as peer:
        await send(peer, listed(0, "x"))
        answers = await send(
            peer,
            listed(0, "good"),
            listed(99, "no queue"),
            listed(0, "x", topic=1),
            listed(0, "x" * 2000),
            Part(LIST, 0, 0, 0, 0, "", b"no records"),
            Part(LIST, 0, 0, -1, 0, "", encode_batch([(0, b"x", b"")])),
            listed(0, "later", properties="DELAY\x013\x02"),
            single(2, "as good"),
            topics="t;bad topic",
        )
        assert bodies(await peer.pull("t", 1)) == [b"good"]
        assert bodies(await peer.pull("t", 0, 2)) == [b"as good"]
    assert [each.code for each in answers] == [
        0,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.MESSAGE_ILLEGAL,
        0,
    ]
    assert "request queueId[99] is illegal" in answers[1].text
    assert "msg body length limit 1000B" in answers[3].text


async def test_what_cannot_be_read_is_refused_as_a_whole(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        good = encode_parts([listed(0, "x")])
        answers = [await ask(peer, [], body=body) for body in (b"", good[:-1], good + b"\0")]
        unknown = await ask(peer, [listed(0, "x", topic=1)])
        headless = await peer.call(RequestCode.SEND_QUEUE_BATCHES, {"b": "t"}, good)
        assert bodies(await peer.pull("t", 0)) == []
    assert {each.code for each in (*answers, unknown, headless)} == {ResponseCode.SYSTEM_ERROR}
    assert [each.remark for each in answers] == [
        "the request has no parts",
        "part 0 of the request is truncated",
        "part 1 of the request is truncated",
    ]


async def test_topics_that_store_batches_whole_get_them_whole(tmp_path: Path) -> None:
    plain = encode_batch([(0, b"a", b"UNIQ_KEY\x01A\x02"), (0, b"b", b"UNIQ_KEY\x01B\x02")])
    wrapped = INNER_BATCH | int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        answers = await send(
            peer,
            Part(LIST, 0, 0, 0, 0, "UNIQ_KEY\x01ONE\x02", plain),
            Part(MESSAGE, 0, 1, wrapped, 0, "UNIQ_KEY\x01TWO\x02INNER_NUM\x012\x02", zlib.compress(plain)),
            Part(MESSAGE, 0, 1, wrapped, 0, "UNIQ_KEY\x01LIE\x02INNER_NUM\x010\x02", zlib.compress(plain)),
            Part(MESSAGE, 1, 0, wrapped, 0, "UNIQ_KEY\x01TWO\x02INNER_NUM\x012\x02", zlib.compress(plain)),
            topics="b;t",
        )
        stored = [messages(await peer.pull("b", 0, queue)) for queue in (0, 1)]
    assert [(each.code, each.stored_as_batch, each.queue_offset) for each in answers] == [
        (0, True, 0),
        (0, True, 0),
        (ResponseCode.MESSAGE_ILLEGAL, False, -1),
        (ResponseCode.MESSAGE_ILLEGAL, False, -1),
    ]
    assert [[each.body for each in unwrap(batch)] for (batch,) in stored] == [[b"a", b"b"]] * 2
    assert places(answers[0]) == [stored[0][0].physical_offset]


async def test_a_oneway_request_is_stored(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        peer.connection.oneway(
            RemotingCommand(
                RequestCode.SEND_QUEUE_BATCHES,
                FIELDS | {"b": "t"},
                encode_parts([listed(0, "x"), listed(1, "y")]),
                flag=CommandFlag.ONEWAY,
            )
        )
        assert bodies(await peer.pull("t", 0, 1, wait_ms=5_000)) == [b"y"]


async def test_the_messages_of_a_request_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raptormq.broker.send.queue_batches.MAX_MESSAGES", 4)
    async with running(tmp_path) as broker, connected(broker) as peer:
        answers = await send(peer, listed(0, "a", "b"), listed(1, "c", "d", "e"), listed(2, "f", "g"))
    assert [each.code for each in answers] == [0, ResponseCode.MESSAGE_ILLEGAL, 0]
    assert answers[1].text == "a request for several queues has at most 4 messages"


async def test_others_have_their_turn_between_the_slices_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raptormq.broker.send.queue_batches.SLICE_S", -1.0)  # every part is a slice
    append, turns_of = MessageStore.append_lists, defaultdict[bytes, list[int]](list)
    with counted_turns() as turns:

        def noted(store: MessageStore, lists: Sequence[PendingList]) -> AppendedLists:
            for each in lists:
                turns_of[each.batch[20:21]].append(turns())
            return append(store, lists)

        monkeypatch.setattr(MessageStore, "append_lists", noted)
        async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as other:
            await send(peer, listed(0, "known"))
            sending = [
                asyncio.ensure_future(send(each, *[listed(1, f"{name}{part}") for part in range(12)], listed(99, "no")))
                for each, name in ((peer, "a"), (other, "b"))
            ]
            await asyncio.sleep(0)  # its request is sent first
            behind = await send(peer, listed(1, "later"))
            answers = [await each for each in sending]
            stored = bodies(await peer.pull("t", 0, 1, count=100))
    assert [len(set(turns_of[name])) for name in (b"a", b"b")] == [12, 12]
    codes = [0] * 12 + [int(ResponseCode.INVALID_PARAMETER)]
    assert [[each.code for each in answer] for answer in answers] == [codes, codes]
    for name, answer in zip("ab", answers, strict=True):
        assert [stored[each.queue_offset] for each in answer[:12]] == [b"%b%d" % (name.encode(), n) for n in range(12)]
    assert stored[behind[0].queue_offset] == b"later"
    assert behind[0].queue_offset > answers[0][11].queue_offset


async def test_parts_from_before_a_loss_of_leadership_are_not_confirmed_with_those_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next leader may have truncated the first slice."""
    monkeypatch.setattr("raptormq.broker.send.queue_batches.SLICE_S", -1.0)  # every part is a slice
    append, appended = MessageStore.append_lists, list[int]()

    def noted(store: MessageStore, lists: Sequence[PendingList]) -> AppendedLists:
        if len(appended) == 1:
            store._confirmation.abandon(NotLeader("another member leads"))
            store._confirmation.resume()
        appended.append(store.end_offset)
        return append(store, lists)

    async with running(tmp_path) as broker, connected(broker) as peer:
        await send(peer, listed(0, "known"))
        monkeypatch.setattr(MessageStore, "append_lists", noted)
        answers = await send(peer, listed(0, "a"), listed(0, "b"), listed(99, "no"))
    assert len(appended) == 2
    assert [each.code for each in answers] == [
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.INVALID_PARAMETER,
    ]


async def test_what_requests_under_way_take_together_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raptormq.broker.send.queue_batches.SLICE_S", -1.0)  # every part is a slice
    parts = [listed(1, f"part {number}") for number in range(12)]
    size = len(encode_parts(parts))
    monkeypatch.setattr("raptormq.broker.send.queue_batches.MAX_HELD_BYTES", size + 1)
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as other:
        await send(peer, listed(0, "known"))
        for _ in range(2):  # the memory of a request is released
            first = asyncio.ensure_future(send(peer, *parts))
            await asyncio.sleep(0)  # its request is sent first
            refused = await ask(other, [listed(2, "too much")])
            assert not first.done()
            assert (refused.code, refused.remark) == (
                ResponseCode.SYSTEM_BUSY,
                f"requests of {size} bytes for several queues are being stored; retry later",
            )
            assert {each.code for each in await first} == {0}
        await send(other, listed(2, "as good"))
        assert bodies(await peer.pull("t", 0, 2)) == [b"as good"]


async def test_a_large_request_is_taken_apart_when_those_before_had_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raptormq.broker.send.queue_batches.SLICE_S", -1.0)  # every part is a slice
    monkeypatch.setattr("raptormq.broker.send.queue_batches.LARGE_BYTES", 0)
    cut = encode_parts([listed(2, "never")])[:-1]
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as other:
        await send(peer, listed(0, "known"))
        first = asyncio.ensure_future(send(peer, *[listed(1, str(number)) for number in range(12)]))
        await asyncio.sleep(0)  # its request is sent first
        second = [
            asyncio.ensure_future(ask(other, [], body=each))
            for each in (cut, encode_parts([listed(2, "a")]), encode_parts([listed(2, "b")]))
        ]
        answers = [await each for each in second]
        assert {each.code for each in await first} == {0}
        assert [each.code for each in answers] == [ResponseCode.SYSTEM_ERROR, 0, 0]
        assert answers[0].remark == "part 0 of the request is truncated"
        assert bodies(await peer.pull("t", 0, 2, count=2)) == [b"a", b"b"]


async def test_under_sync_flush_the_answer_waits_for_the_disk_when_a_part_wants_it(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with running(tmp_path, {"flushDiskType": "SYNC_FLUSH"}, disk) as broker, connected(broker) as peer:
        await send(peer, listed(0, "known"))
        disk.release.clear()
        waiting = asyncio.ensure_future(send(peer, listed(0, "a"), listed(1, "b", properties="WAIT\x01false\x02")))
        await asyncio.sleep(0)  # its request is sent first
        [unpatient] = await send(peer, listed(2, "c", properties="WAIT\x01false\x02"))
        assert not waiting.done()
        assert bodies(await peer.pull("t", 1)) == []
        disk.release.set()
        assert [each.code for each in await waiting] == [0, 0]
        assert unpatient.code == 0
        assert bodies(await peer.pull("t", 1, wait_ms=5_000)) == [b"a"]


@pytest.mark.parametrize("slice_s", [-1.0, 60.0], ids=["in slices", "at once"])
async def test_a_flush_that_takes_too_long_says_so_to_those_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slice_s: float
) -> None:
    monkeypatch.setattr("raptormq.broker.send.queue_batches.SLICE_S", slice_s)
    disk = SlowDisk()
    pairs = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "50"}
    async with running(tmp_path, pairs, disk) as broker, connected(broker) as peer:
        await send(peer, listed(0, "known"))
        disk.release.clear()
        late, unpatient = await send(peer, listed(0, "a"), listed(1, "b", properties="WAIT\x01false\x02"))
        disk.release.set()
    assert (late.code, late.queue_offset, len(late.text)) == (ResponseCode.FLUSH_DISK_TIMEOUT, 1, 32)
    assert unpatient.code == 0


async def test_a_full_disk_refuses_every_part_and_nothing_is_stored(tmp_path: Path) -> None:
    disk = FaultyFileSystem(RealFileSystem())
    async with running(tmp_path, None, disk) as broker, connected(broker) as peer:
        disk.faults.append(Fault(kind="allocate", error=errno.ENOSPC))
        answers = await send(peer, listed(0, "a"), single(1, "b"), listed(2, "c"))
        assert [each.code for each in answers[:1]] == [ResponseCode.SERVICE_NOT_AVAILABLE]
        assert bodies(await peer.pull("t", 0)) == []


@pytest.mark.parametrize("slice_s", [-1.0, 60.0], ids=["in slices", "at once"])
async def test_topics_that_cannot_be_saved_refuse_their_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slice_s: float
) -> None:
    monkeypatch.setattr("raptormq.broker.send.queue_batches.SLICE_S", slice_s)
    disk = FaultyFileSystem(RealFileSystem())
    async with running(tmp_path, None, disk) as broker, connected(broker) as peer:
        await send(peer, listed(0, "known"))
        disk.faults.append(Fault(kind="write", path="/topics.json", error=errno.ENOSPC, repeats=True))
        answers = await send(peer, listed(0, "a"), listed(1, "b", topic=1), topics="t;new")
        disk.faults.clear()
    assert [each.code for each in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2


async def test_a_request_makes_a_few_topics_and_the_next_one_more(tmp_path: Path) -> None:
    names = [f"new{number}" for number in range(MAX_NEW_TOPICS + 2)]
    parts = [single(0, name, topic=place) for place, name in enumerate(names)]
    async with running(tmp_path) as broker, connected(broker) as peer:
        first = await send(peer, *parts[:MAX_NEW_TOPICS], topics=";".join(names[:MAX_NEW_TOPICS]))
        assert {each.code for each in first} == {0}
        names = ["known", *(f"other{number}" for number in range(MAX_NEW_TOPICS + 2))]
        await send(peer, single(0, "known"), topics="known")
        parts = [single(0, name, topic=place) for place, name in enumerate(names)]
        for made in (MAX_NEW_TOPICS + 1, len(names)):
            answers = await send(peer, *parts, topics=";".join(names))
            assert [each.code for each in answers] == [0] * made + [ResponseCode.MESSAGE_ILLEGAL] * (len(names) - made)
        assert bodies(await peer.pull("known", 0, 0)) == [b"known"] * 3
        assert bodies(await peer.pull(names[-1], 0, 0)) == [names[-1].encode()]
