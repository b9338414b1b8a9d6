"""Timer messages: they are delivered at their time, once, despite restarts, and can be recalled."""

from __future__ import annotations

import asyncio
import math
import struct
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.errors import StorageError
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.recall_handle import RecallHandle, decode_recall_handle, encode_recall_handle
from raptormq.protocol.tags import tag_hash
from raptormq.protocol.topic_names import TIMER_TOPIC
from raptormq.storage.store import now_ms
from tests.broker.harness import Peer, assembly_of, bodies, connected, messages, running
from tests.client.eventually import eventually
from tests.clock import Clock

QUICK = {"timerPrecisionMs": "100", "recallMessageEnable": "true"}
THREE_DAYS_MS = 259_200_000
RECALL = 370


async def recall(peer: Peer, handle: str, topic: str = "t") -> tuple[int, str | None, str | None]:
    answer = await peer.call(RECALL, {"topic": topic, "recallHandle": handle, "producerGroup": "g"})
    return answer.code, answer.remark, answer.ext_fields.get("msgId")


@pytest.mark.parametrize(
    "asked", ["TIMER_DELAY_MS\x01300\x02", "TIMER_DELAY_SEC\x011\x02TIMER_DELAY_MS\x015000000\x02"]
)
async def test_a_message_comes_when_it_is_due(tmp_path: Path, asked: str) -> None:
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        sent = await peer.send("t", b"late", 3, f"{asked}TAGS\x01a\x02UNIQ_KEY\x01id\x02")
        (waiting,) = messages(await peer.pull(TIMER_TOPIC, 0))
        due = int(decode_properties(waiting.properties)["TIMER_OUT_MS"])
        assert decode_recall_handle(sent.ext_fields["recallHandle"]) == RecallHandle(
            "t", "broker-a", str(due + 1), "id"
        )
        (message,) = messages(await peer.pull("t", 0, 3, wait_ms=20_000))
        assert (message.body, message.queue_id) == (b"late", 3)
        assert message.store_timestamp >= due + 100
        found = decode_properties(message.properties)
        assert (found["REAL_TOPIC"], found["REAL_QID"], found["WAIT"]) == ("t", "3", "false")
        assert int(found["TIMER_ENQUEUE_MS"]) <= int(found["TIMER_DEQUEUE_MS"])
        assert await broker._store.tag_codes("t", 3, 0, 9) == [tag_hash("a")]


@pytest.mark.parametrize(
    "asked", ["TIMER_DELIVER_MS\x011000\x02", "TIMER_DELAY_MS\x010\x02", "TIMER_DELAY_SEC\x01-5\x02"]
)
async def test_a_time_that_has_passed_is_no_delay(tmp_path: Path, asked: str) -> None:
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        sent = await peer.send("t", b"now", 0, asked)
        assert bodies(await peer.pull("t", 0)) == [b"now"]
        assert "recallHandle" not in sent.ext_fields


async def test_a_delay_level_overrules_times(tmp_path: Path) -> None:
    async with running(tmp_path, QUICK | {"messageDelayLevel": "1s"}) as broker, connected(broker) as peer:
        await peer.send("t", b"x", 0, f"DELAY\x011\x02TIMER_DELAY_MS\x01{THREE_DAYS_MS * 2}\x02mine\x01yes\x02")
        (message,) = messages(await peer.pull("t", 0, wait_ms=20_000))
        assert {"DELAY", "mine"} <= (found := decode_properties(message.properties)).keys()
        assert "TIMER_DELAY_MS" not in found


async def test_times_are_refused_beyond_the_latest_and_when_they_are_none(tmp_path: Path) -> None:
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        for asked in (
            f"TIMER_DELAY_MS\x01{THREE_DAYS_MS + 60_000}\x02",
            "TIMER_DELIVER_MS\x01soon\x02",
            "TIMER_DELAY_SEC\x01" + "9" * 30 + "\x02",
            "TIMER_DELIVER_MS\x011000\x02TIMER_DEL_UNIQKEY\x01t+id\x02",
        ):
            refused = await peer.send("t", b"x", 0, asked)
            assert refused.code == 13
            assert str(refused.remark).startswith("timer message illegal")
        assert (await peer.send("t", b"x", 0, f"TIMER_DELAY_MS\x01{THREE_DAYS_MS - 1}\x02")).code == 0
        half = await peer.send("t", b"x", 0, "TRAN_MSG\x01true\x02PGROUP\x01g\x02TIMER_DELAY_MS\x0150000\x02", f=4)
        assert (half.code, half.remark) == (13, "a transactional message cannot have a delivery time")


async def test_timers_can_be_switched_off(tmp_path: Path) -> None:
    async with running(tmp_path, {"timerWheelEnable": "false"}) as broker, connected(broker) as peer:
        refused = await peer.send("t", b"x", 0, "TIMER_DELAY_MS\x01300\x02")
        assert (refused.code, refused.remark) == (1, "accurate timer message is not enabled, timerWheelEnable is false")


async def test_many_messages_come_once_each_in_the_order_of_their_times(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, QUICK, clock=clock) as broker, connected(broker) as peer:
        at = clock.hold() + 300
        for number in range(200):
            await peer.send("t", b"%d" % number, 0, f"TIMER_DELIVER_MS\x01{at - number % 2 * 200}\x02")
        clock.run()
        received: list[int] = []
        while len(received) < 200:
            received += [int(body) for body in bodies(await peer.pull("t", len(received), wait_ms=20_000))]
        assert received == [*range(1, 200, 2), *range(0, 200, 2)]
        assert (await peer.pull("t", 200)).code == 19


@pytest.mark.parametrize(("names_topic", "key"), [("true", b"t+one"), ("false", b"one")])
async def test_a_recalled_message_never_comes(tmp_path: Path, names_topic: str, key: bytes) -> None:
    """The recall was stored by any release of RocketMQ, or will be read by one."""
    clock, settings = Clock(), QUICK | {"appendTopicForTimerDeleteKey": names_topic}
    async with running(tmp_path, settings, clock=clock) as broker, connected(broker) as peer:
        at = f"TIMER_DELIVER_MS\x01{clock.hold() + 300}\x02"
        sent = await peer.send("t", b"recalled", 0, at + "UNIQ_KEY\x01one\x02")
        await peer.send("t", b"kept", 0, at + "UNIQ_KEY\x01two\x02")
        assert await recall(peer, sent.ext_fields["recallHandle"]) == (0, None, "one")
        assert b"TIMER_DEL_UNIQKEY\x01%b\x02" % key in (tmp_path / "commitlog" / f"{0:020}").read_bytes()
        clock.run()
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"kept"]
        assert (await peer.pull("t", 1)).code == 19


async def test_recalls_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        await peer.send("t", b"x")

        def handle(topic: str = "t", broker_name: str = "broker-a", due: str = "") -> str:
            return encode_recall_handle(RecallHandle(topic, broker_name, due or str(now_ms() + 60_000), "id"))

        assert await recall(peer, handle(), "nowhere") == (17, "recall failed, the topic[nowhere] not exist", None)
        assert await recall(peer, "%%%") == (604, "recall handle is invalid", None)
        assert await recall(peer, "djI=") == (604, "recall handle is invalid", None)
        assert await recall(peer, handle("u")) == (604, "recall failed, topic not match", None)
        assert (await recall(peer, handle(broker_name="b")))[:2] == (604, "recall failed, broker service not available")
        for due in ("soon", "1", "-1", str(now_ms() + THREE_DAYS_MS + 60_000)):
            assert (await recall(peer, handle(due=due)))[:2] == (604, "recall failed, timestamp invalid")
    async with running(tmp_path / "off") as broker, connected(broker) as peer:
        assert await recall(peer, handle()) == (16, "recall failed, operation is forbidden", None)


async def test_a_restart_delivers_what_waits_and_nothing_twice(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, QUICK, clock=clock) as broker, connected(broker) as peer:
        clock.hold()
        await peer.send("t", b"waits", 0, "TIMER_DELAY_MS\x013000\x02")
        await peer.send("t", b"gone", 0, "TIMER_DELAY_MS\x01100\x02")
        taken_back = await peer.send("t", b"recalled", 0, "TIMER_DELAY_MS\x012500\x02")
        assert (await recall(peer, taken_back.ext_fields["recallHandle"]))[0] == 0
        clock.move(1_000)
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"gone"]
    progress = struct.unpack_from(">qqqq", (tmp_path / "config" / "timercheck").read_bytes())
    assert progress[1:] == (0, 4, 0)
    clock.move(3_000)
    async with running(tmp_path, QUICK, clock=clock) as broker, connected(broker) as peer:
        assert bodies(await peer.pull("t", 1, wait_ms=20_000)) == [b"waits"]
        assert (await peer.pull("t", 2)).code == 19
    progress = struct.unpack_from(">qqqq", (tmp_path / "config" / "timercheck").read_bytes())
    assert progress[1:] == (0, 4, 4)


async def test_a_crash_leaves_the_place_of_the_first_that_waits(tmp_path: Path) -> None:
    """A broker continues at this position. With an earlier one, Apache RocketMQ would deliver messages again."""
    clock, file = Clock(), tmp_path / "config" / "timercheck"
    async with running(tmp_path, QUICK, clock=clock) as broker, connected(broker) as peer:
        clock.hold()
        for number, delay in enumerate((100, 100, 9000, 200, 8000)):
            await peer.send("t", b"%d" % number, 0, f"TIMER_DELAY_MS\x01{delay}\x02")
        clock.move(1_000)
        await peer.pull("t", 2, wait_ms=20_000)
        await saved_on_the_way(broker)
        assert struct.unpack_from(">qqqq", file.read_bytes())[1:] == (0, 5, 2)
        clock.move(9_000)
        await peer.pull("t", 4, wait_ms=20_000)
        await saved_on_the_way(broker)
        assert struct.unpack_from(">qqqq", file.read_bytes())[1:] == (0, 5, 5)


async def test_a_stop_keeps_the_place_also_when_all_else_is_saved(tmp_path: Path) -> None:
    """The saved position may be that of an earlier waiting message, because the first one is determined only rarely."""
    clock = Clock()
    async with running(tmp_path, QUICK, clock=clock) as broker, connected(broker) as peer:
        assembly_of(broker).timers._search_at = math.inf
        clock.hold()
        await peer.send("t", b"x", 0, "TIMER_DELAY_MS\x01100\x02")
        clock.move(1_000)
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"x"]
        await saved_on_the_way(broker)
        progress = struct.unpack_from(">qqqq", (tmp_path / "config" / "timercheck").read_bytes())
        assert progress[1:] == (0, 1, 0)
    progress = struct.unpack_from(">qqqq", (tmp_path / "config" / "timercheck").read_bytes())
    assert progress[1:] == (0, 1, 1)


async def saved_on_the_way(broker: Broker) -> None:
    """Wait until the progress is saved, which happens every few seconds."""
    timers, deliveries = assembly_of(broker).timers, assembly_of(broker).deliveries
    timers.arrived([(TIMER_TOPIC, 0, 1, 0)])
    await eventually(lambda: not (timers._due_now() or timers._delivering))
    await deliveries.save()


async def test_what_is_due_in_the_millisecond_that_is_read_next_still_comes(tmp_path: Path) -> None:
    """If Apache RocketMQ ends in the second in which a message is due, it saves this second without delivering the
    message.
    """
    clock = Clock()
    async with running(tmp_path, QUICK, clock=clock) as broker, connected(broker) as peer:
        clock.hold()
        for delay in (3000, 4000):
            await peer.send("t", b"%d" % delay, 0, f"TIMER_DELAY_MS\x01{delay}\x02")
        first, second = messages(await peer.pull(TIMER_TOPIC, 0))
        due = int(decode_properties(second.properties)["TIMER_OUT_MS"])
        assert int(decode_properties(first.properties)["TIMER_OUT_MS"]) < due
    (tmp_path / "config" / "timercheck").write_bytes(struct.pack(">qqqq", due, 200, 2, 2).ljust(4_096, b"\0"))
    clock.move(10_000)
    async with running(tmp_path, QUICK, clock=clock) as broker, connected(broker) as peer:
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"4000"]
        assert (await peer.pull("t", 1)).code == 19


async def test_what_apache_rocketmq_knew_for_less_than_a_second_when_it_was_killed_still_comes(tmp_path: Path) -> None:
    """Apache RocketMQ first saves its position in the timer queue, and then the flushed position of its own index."""
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        await peer.send("t", b"waits", 0, "TIMER_DELAY_MS\x012000\x02")
    progress = struct.pack(">qqqqqqq", now_ms() // 1000 * 1000, 0, 1, 1, 0, now_ms(), 1)
    (tmp_path / "config" / "timercheck").write_bytes(progress.ljust(4_096, b"\0"))
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"waits"]


async def test_the_times_are_found_again_when_the_queue_is_rebuilt(tmp_path: Path) -> None:
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        await peer.send("t", b"waits", 0, "TAGS\x01a\x02TIMER_DELAY_MS\x012000\x02")
        before = await broker._store.tag_codes(TIMER_TOPIC, 0, 0, 9)
    for file in (tmp_path / "consumequeue" / TIMER_TOPIC / "0").iterdir():
        file.unlink()
    (tmp_path / "abort").touch()
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        assert await broker._store.tag_codes(TIMER_TOPIC, 0, 0, 9) == before
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"waits"]


async def test_a_queue_that_another_broker_wrote_is_read_from_the_log(tmp_path: Path) -> None:
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        await peer.send("t", b"waits", 0, "TAGS\x01a\x02TIMER_DELAY_MS\x012000\x02")
    (file,) = (tmp_path / "consumequeue" / TIMER_TOPIC / "0").iterdir()
    content = bytearray(file.read_bytes())
    content[12:20] = struct.pack(">q", tag_hash("a"))
    file.write_bytes(content)
    (tmp_path / "config" / "timercheck").unlink()
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"waits"]


async def test_the_message_of_a_deleted_topic_is_dropped_and_the_next_one_comes(tmp_path: Path) -> None:
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        await peer.send("gone", b"lost", 0, "TIMER_DELAY_MS\x01500\x02")
        await peer.send("t", b"here", 0, "TIMER_DELAY_MS\x01500\x02")
        assert (await peer.call(215, {"topic": "gone"})).code == 0
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"here"]


async def test_what_could_not_be_written_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    async with running(tmp_path, QUICK, clock=clock) as broker, connected(broker) as peer:
        clock.hold()
        await peer.send("t", b"late", 0, "TIMER_DELAY_MS\x01500\x02")
        failed = asyncio.Event()
        append = broker._store.append

        def full(_: object) -> None:
            monkeypatch.setattr(broker._store, "append", append)
            failed.set()
            raise StorageError("no room")

        monkeypatch.setattr(broker._store, "append", full)
        clock.run()
        clock.move(500)
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"late"]
        assert failed.is_set()
        assert (await peer.pull("t", 1)).code == 19


async def test_the_longest_properties_come_too(tmp_path: Path) -> None:
    """The properties that the timer adds at delivery do not fit."""
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        size = 32_767
        while (await peer.send("t", b"x", 0, "TIMER_DELAY_MS\x01200\x02p\x01" + "v" * size + "\x02")).code:
            size -= 1
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"x"]


@pytest.mark.parametrize("queue_id", ["99999999999", "9" * 5000, "x"])
async def test_one_that_was_put_into_the_queue_of_timers_hinders_no_other(tmp_path: Path, queue_id: str) -> None:
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        place = f"TIMER_OUT_MS\x01{now_ms()}\x02REAL_TOPIC\x01t\x02REAL_QID\x01{queue_id}\x02"
        assert (await peer.send(TIMER_TOPIC, b"forged", 0, place)).code == 0
        await peer.send("t", b"late", 0, "TIMER_DELAY_MS\x01300\x02")
        assert bodies(await peer.pull("t", 0, wait_ms=20_000)) == [b"late"]
