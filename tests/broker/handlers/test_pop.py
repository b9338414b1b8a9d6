"""POP over a real socket: pop, acknowledgement, return, long polling, order, and a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.broker.pop import pop_service
from raptormq.protocol.bodies.pop import BatchAck
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.pop_handle import PopHandle, build_handle
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import StoredMessage
from raptormq.storage.store import now_ms
from tests.broker.batch_acks import encode_batch_acks
from tests.broker.harness import Peer, bodies, connected, copy_of_running, held, messages, running, saved
from tests.clock import Clock

MINUTE = 60_000
HOUR = 60 * MINUTE
RETRY = "%RETRY%consumers_t"


async def pop(peer: Peer, **more: object) -> RemotingCommand:
    fields: dict[str, object] = {
        "consumerGroup": "consumers", "topic": "t", "queueId": 0, "maxMsgNums": 32, "invisibleTime": MINUTE,
        "pollTime": 0, "bornTime": now_ms() + HOUR, "initMode": 0,  # long enough for the slowest machine
    }  # fmt: skip
    return await peer.call(RequestCode.POP_MESSAGE, fields | more)


def handle_of(popped: RemotingCommand, start: int) -> PopHandle:
    found = popped.ext_fields
    return PopHandle(start, int(found["popTime"]), int(found["invisibleTime"]), int(found["reviveQid"]), "broker-a")


async def ack(peer: Peer, handle: PopHandle, offset: int, topic: str = "t", **more: object) -> RemotingCommand:
    fields: dict[str, object] = {
        "consumerGroup": "consumers", "topic": topic, "queueId": 0, "offset": offset,
        "extraInfo": build_handle(handle, topic, 0, offset),
    }  # fmt: skip
    return await peer.call(RequestCode.ACK_MESSAGE, fields | more)


async def come_back(peer: Peer, count: int) -> list[StoredMessage]:
    """Pop until this number of messages is received."""
    found: list[StoredMessage] = []
    while len(found) < count:
        found += messages(await pop(peer, queueId=-1, pollTime=1_000))
    return found


async def test_one_answer_is_no_longer_than_clients_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_service, "MAX_ANSWER_BYTES", 1000)
    async with running(tmp_path) as broker, connected(broker) as peer:
        for queue_id, size in enumerate((400, 401, 402, 2000)):
            await peer.send("t", bytes(size), queue_id)
        found: list[int] = []
        while len(found) < 4:
            popped = await pop(peer, queueId=-1)
            sizes = [len(body) for body in bodies(popped)]
            assert len(popped.body) <= 1000 or sizes == [2000]
            found += sizes
            assert int(popped.ext_fields["restNum"]) == 4 - len(found)
    assert sorted(found) == [400, 401, 402, 2000]


async def test_what_is_popped_is_invisible_and_what_is_acknowledged_is_done(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1", b"2"])
        first = await pop(peer, maxMsgNums=2)
        second = await pop(peer)
        third = await pop(peer)
        assert (await ack(peer, handle_of(first, 0), 1)).code == 0
    assert (first.code, first.remark, bodies(first)) == (0, "FOUND", [b"0", b"1"])
    assert (first.ext_fields["startOffsetInfo"], first.ext_fields["msgOffsetInfo"]) == ("0 0 0", "0 0 0,1")
    assert (first.ext_fields["restNum"], second.ext_fields["restNum"]) == ("1", "0")
    assert bodies(second) == [b"2"]
    assert (third.code, third.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")


async def test_what_is_not_acknowledged_comes_back_once(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"done", b"again"])
        popped = await pop(peer)
        await ack(peer, handle_of(popped, 0), 0)
        clock.move(MINUTE)
        (again,) = await come_back(peer, 1)
        late = await ack(peer, handle_of(popped, 0), 1)
        empty = await pop(peer, queueId=-1, pollTime=600)
    assert (again.topic, again.body, again.reconsume_times) == ("t", b"again", 1)
    found = decode_properties(again.properties)
    assert found["1ST_POP_TIME"] == popped.ext_fields["popTime"]
    assert found["POP_CK"].split(" ")[4:] == ["1", "broker-a", "0", "0"]
    assert (late.code, empty.code) == (0, ResponseCode.POLLING_TIMEOUT)


async def test_a_message_of_the_retry_topic_is_acknowledged_there(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"again")
        await pop(peer, invisibleTime=0)
        (again,) = await come_back(peer, 1)
        info = decode_properties(again.properties)["POP_CK"]
        done = await ack(peer, PopHandle(0, 0, 0, 0, ""), 0, RETRY, extraInfo=info)
    assert done.code == 0


async def test_a_restart_loses_neither_what_is_outstanding_nor_what_is_done(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"done", b"again"])
        popped = await pop(peer)
        await ack(peer, handle_of(popped, 0), 0)
    clock.move(MINUTE)
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        (again,) = await come_back(peer, 1)
        info = decode_properties(again.properties)["POP_CK"]
        await ack(peer, PopHandle(0, 0, 0, 0, ""), 0, RETRY, extraInfo=info)
        await peer.send("t", b"new")
        last = await come_back(peer, 1)
    assert again.body == b"again"
    assert [message.body for message in last] == [b"new"]


async def test_a_crash_loses_nothing_that_was_popped(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    async with running(before, {"flushConsumerOffsetInterval": "50"}) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1"])
        popped = await pop(peer)
        offsets = before / "config" / "consumerOffset.json"
        while b"t@consumers" not in saved(offsets):
            await asyncio.sleep(0.02)  # the group's offset is before the popped message
        copy_of_running(before, after)
    assert len(bodies(popped)) == 2
    clock = Clock()
    clock.move(MINUTE)
    async with running(after, clock=clock) as broker, connected(broker) as peer:
        back = await come_back(peer, 2)
    assert sorted(message.body for message in back) == [b"0", b"1"]
    assert {message.reconsume_times for message in back} == {1}


async def test_the_invisible_time_can_be_changed(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await peer.send("t", b"later")
        popped = await pop(peer)
        handle = handle_of(popped, 0)
        fields = {
            "consumerGroup": "consumers", "topic": "t", "queueId": 0, "offset": 0, "invisibleTime": HOUR,
            "extraInfo": build_handle(handle, "t", 0, 0),
        }  # fmt: skip
        changed = await peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
        clock.move(MINUTE)
        empty = await pop(peer, queueId=-1, pollTime=600)
        fields |= {"invisibleTime": 0, "extraInfo": build_handle(handle_of(changed, 0), "t", 0, 0)}
        assert (await peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)).code == 0
        (later,) = await come_back(peer, 1)
        beyond = await peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields | {"offset": 1})
    assert (changed.code, changed.ext_fields["invisibleTime"]) == (0, str(HOUR))
    assert (empty.code, later.body) == (ResponseCode.POLLING_TIMEOUT, b"later")
    assert beyond.code == ResponseCode.NO_MESSAGE


async def test_a_batch_of_acknowledgements(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1", b"2"])
        popped = await pop(peer)
        handle = handle_of(popped, 0)
        one = BatchAck("consumers", "t", "0", 0, handle.revive_queue, 0, handle.pop_time, (0, 2, 7))
        done = await peer.call(RequestCode.BATCH_ACK_MESSAGE, None, encode_batch_acks("broker-a", [one]))
        nothing = await peer.call(RequestCode.BATCH_ACK_MESSAGE, None, encode_batch_acks("broker-a", []))
        clock.move(MINUTE)
        back = await come_back(peer, 1)
    assert (done.code, nothing.code) == (0, ResponseCode.NO_MESSAGE)
    assert [message.body for message in back] == [b"1"]


async def test_a_message_wakes_one_waiting_pop(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as producer:
        await producer.send("t", b"0")
        await pop(peer)
        waiting = [asyncio.ensure_future(pop(peer, queueId=-1, pollTime=20_000)) for _ in range(2)]
        await held(peer, 2)
        await producer.send("t", b"1", 3)
        done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [bodies(task.result()) for task in done] == [[b"1"]]
        await producer.send("t", b"2", 1)
        assert [bodies(await task) for task in pending] == [[b"2"]]


async def test_an_orderly_pop_blocks_the_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1", b"2"])
        first = await pop(peer, order="true", maxMsgNums=2)
        blocked = await pop(peer, order="true")
        await ack(peer, handle_of(first, 0), 0)
        await ack(peer, handle_of(first, 0), 1)
        second = await pop(peer, order="true", invisibleTime=0)
        again = await pop(peer, order="true")
    assert (bodies(first), first.ext_fields["reviveQid"]) == ([b"0", b"1"], "999")
    assert blocked.code == ResponseCode.POLLING_TIMEOUT
    assert bodies(second) == bodies(again) == [b"2"]
    assert again.ext_fields["orderCountInfo"] == "0 qo0%2 1"


async def test_the_same_attempt_of_an_orderly_pop_gets_the_same_messages_again(tmp_path: Path) -> None:
    """The consumer did not get the response. The messages of another attempt stay invisible to it."""
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1", b"2"])
        await pop(peer, order="true", maxMsgNums=2, attemptId="a")
        again = await pop(peer, order="true", maxMsgNums=2, attemptId="a")
        others = [await pop(peer, order="true", **more) for more in ({"attemptId": "b"}, {"attemptId": ""}, {})]
        assert [bodies(each) for each in (again, *others)] == [[b"0", b"1"], [], [], []]
        assert "orderCountInfo" not in again.ext_fields  # for the consumer it is the first attempt
        await ack(peer, handle_of(again, 0), 0)
        one_left = await pop(peer, order="true", maxMsgNums=2, attemptId="a")
        assert (bodies(one_left), one_left.ext_fields.get("orderCountInfo")) == ([b"1", b"2"], None)
        for offset in (1, 2):
            await ack(peer, handle_of(one_left, 1), offset)
        assert (await pop(peer, order="true", attemptId="a")).code == ResponseCode.POLLING_TIMEOUT
        assert (await pop(peer, order="true", attemptId="b")).code == ResponseCode.POLLING_TIMEOUT


async def test_an_attempt_after_one_whose_time_was_up_counts(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        counts = [
            (await pop(peer, order="true", invisibleTime=0, attemptId=attempt)).ext_fields.get("orderCountInfo")
            for attempt in "aabbc"
        ]
    assert counts == [None, None, "0 qo0%0 1", "0 qo0%0 1", "0 qo0%0 2"]


async def test_pops_without_an_attempt_are_no_repeated_one(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        assert bodies(await pop(peer, order="true")) == [b"0"]
        assert bodies(await pop(peer, order="true")) == []
        assert bodies(await pop(peer, order="true", attemptId="")) == []


async def test_an_orderly_notification_is_for_who_could_pop(tmp_path: Path) -> None:
    """An invisible message does not complete a notification, except for the attempt that made it invisible."""
    asked: dict[str, object] = {
        "consumerGroup": "consumers", "topic": "t", "queueId": 0, "pollTime": 0, "bornTime": 0, "order": "true",
    }  # fmt: skip

    async with running(tmp_path) as broker, connected(broker) as peer:

        async def has_message(**more: object) -> str:
            return (await peer.call(RequestCode.NOTIFICATION, asked | more)).ext_fields["hasMsg"]

        await peer.send("t", b"0")
        assert await has_message() == "true"
        popped = await pop(peer, order="true", attemptId="a")
        assert [await has_message(**more) for more in ({"attemptId": "a"}, {"attemptId": "b"}, {})] == [
            "true", "false", "false",
        ]  # fmt: skip
        waiting = asyncio.ensure_future(has_message(pollTime=20_000))
        await peer.send("t", b"1")  # wakes it without a message for it
        await ack(peer, handle_of(popped, 0), 0)
        assert await waiting == "true"


async def test_tags_are_filtered_and_passed_over(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for tag in "ABA":
            await peer.send("t", tag.encode(), properties=f"TAGS\x01{tag}\x02")
        popped = await pop(peer, exp="A", expType="TAG")
        empty = await pop(peer)
    assert (bodies(popped), popped.ext_fields["msgOffsetInfo"]) == ([b"A", b"A"], "0 0 0,2")
    assert empty.code == ResponseCode.POLLING_TIMEOUT


async def test_a_new_group_may_start_at_the_end_of_an_old_topic_only(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1"])
        assert bodies(await pop(peer, initMode=1)) == [b"0", b"1"]  # a new topic is read from its beginning


async def test_notification(tmp_path: Path) -> None:
    fields = {"consumerGroup": "consumers", "topic": "t", "queueId": -1, "pollTime": 20_000, "bornTime": 0}
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as producer:
        await producer.send("t", b"0")
        ready = await peer.call(RequestCode.NOTIFICATION, fields)
        await pop(peer)
        waiting = asyncio.ensure_future(peer.call(RequestCode.NOTIFICATION, fields))
        empty = await peer.call(RequestCode.NOTIFICATION, fields | {"pollTime": 0})
        await producer.send("t", b"1", 2)
        woken = await waiting
    assert [answer.ext_fields["hasMsg"] for answer in (ready, empty, woken)] == ["true", "false", "true"]


async def test_peeking_takes_nothing(tmp_path: Path) -> None:
    fields: dict[str, object] = {"consumerGroup": "consumers", "topic": "t", "queueId": -1, "maxMsgNums": 2}
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"0", b"1", b"2"])
        peeked = [await peer.call(RequestCode.PEEK_MESSAGE, fields) for _ in range(2)]
        await pop(peer, maxMsgNums=2)
        last = await peer.call(RequestCode.PEEK_MESSAGE, fields)
        await pop(peer)
        nothing = await peer.call(RequestCode.PEEK_MESSAGE, fields)
        unknown = await peer.call(RequestCode.PEEK_MESSAGE, fields | {"topic": "unknown"})
    assert [(bodies(each), each.ext_fields["restNum"]) for each in peeked] == [([b"0", b"1"], "3")] * 2
    assert (bodies(last), last.ext_fields["restNum"]) == ([b"2"], "1")
    assert (nothing.code, unknown.code) == (ResponseCode.PULL_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"maxMsgNums": 32}, 0),
        ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"bornTime": 0}, ResponseCode.POLLING_TIMEOUT),
        ({"invisibleTime": -1}, ResponseCode.INVALID_PARAMETER),
        ({"exp": "a >", "expType": "SQL92"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_what_can_be_popped(tmp_path: Path, change: dict[str, object], code: int) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        assert (await pop(peer, **change)).code == code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 4}, ResponseCode.MESSAGE_ILLEGAL),
        ({"offset": 1}, 0),
        ({"offset": 2}, ResponseCode.NO_MESSAGE),
        ({"offset": -1}, ResponseCode.NO_MESSAGE),
        ({"extraInfo": "1 2 3"}, ResponseCode.SYSTEM_ERROR),
        ({"extraInfo": "a b c d e f"}, ResponseCode.SYSTEM_ERROR),
        ({"extraInfo": "0 0 0 8 0 broker-a"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_what_can_be_acknowledged(tmp_path: Path, change: dict[str, object], code: int) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        handle = handle_of(await pop(peer), 0)
        fields: dict[str, object] = {"consumerGroup": "consumers", "topic": "t", "queueId": 0, "offset": 0}
        fields |= {"extraInfo": build_handle(handle, "t", 0, 0)} | change
        assert (await peer.call(RequestCode.ACK_MESSAGE, fields)).code == code


async def test_what_is_not_acknowledged_has_a_limit(tmp_path: Path) -> None:
    async with running(tmp_path, {"maxOutstandingPops": "2"}) as broker, connected(broker) as peer:
        for number in range(3):
            await peer.send("t", b"%d" % number)
        first = await pop(peer, maxMsgNums=1)
        assert (await pop(peer, maxMsgNums=1)).code == 0
        full = await pop(peer, maxMsgNums=1)
        assert (full.code, full.body) == (ResponseCode.POLLING_FULL, b"")
        await ack(peer, handle_of(first, 0), 0)
        assert bodies(await pop(peer, maxMsgNums=1)) == [b"2"]


async def test_retry_topics_of_the_second_form_and_what_is_left_in_the_first(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"old")
        await pop(peer, invisibleTime=1)
        while broker._store.queue_end(RETRY, 0) < 1:
            await asyncio.sleep(0.01)
    async with running(tmp_path, {"enableRetryTopicV2": "true"}) as broker, connected(broker) as peer:
        await peer.send("t", b"new")
        await pop(peer, invisibleTime=1)
        second = "%RETRY%consumers+t"
        while broker._store.queue_end(second, 0) < 1:
            await asyncio.sleep(0.01)
        found = {each.body: each for each in await come_back(peer, 2)}
        assert set(found) == {b"old", b"new"}
        kinds = {body: decode_properties(each.properties)["POP_CK"].split(" ")[4] for body, each in found.items()}
        assert kinds == {b"old": "1", b"new": "2"}
        await peer.send("t", b"last")
        await pop(peer, invisibleTime=300)
        assert bodies(await pop(peer, queueId=-1, pollTime=20_000)) == [b"last"]  # an arrival there ends the wait


async def test_the_first_form_can_be_left_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"old")
        await pop(peer, invisibleTime=1)
        while broker._store.queue_end(RETRY, 0) < 1:
            await asyncio.sleep(0.01)
    settings = {"enableRetryTopicV2": "true", "retrieveMessageFromPopRetryTopicV1": "false"}
    async with running(tmp_path, settings) as broker, connected(broker) as peer:
        assert (await pop(peer, queueId=-1)).code == ResponseCode.POLLING_TIMEOUT
