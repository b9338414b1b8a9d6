"""Copies of messages with full properties: at the limit they are complete. One byte above it, the largest property is
removed and the message is delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import response_to
from raptormq.protocol.properties import MAX_PROPERTIES_BYTES, decode_properties
from raptormq.protocol.topic_names import HALF_TOPIC, SCHEDULE_TOPIC, retry_topic
from raptormq.storage.queue.append_batches import PendingRecord
from raptormq.storage.store import now_ms
from tests.broker.handlers import test_replies
from tests.broker.handlers.test_pop import MINUTE, come_back, pop
from tests.broker.handlers.test_send_back import send_back
from tests.broker.harness import Peer, assembly_of, bodies, connected, messages, running
from tests.broker.transaction.producer import COMMIT, NEVER, announce, answer, question
from tests.clock import Clock

SETTINGS = {"messageDelayLevel": "1h 1h 1h 1h", "transactionTimeOut": "1", "transactionCheckInterval": "100"}
LONGEST_POPPED = MAX_PROPERTIES_BYTES - 512
"""Room for the handle of the next pop."""


async def sent(peer: Peer, note: str, topic: str = "t", properties: str = "", **more: object) -> None:
    answered = await peer.send(topic, b"x", 0, f"note\x01{note}\x02short\x01s\x02{properties}", **more)
    assert answered.code == 0, answered.remark


async def retry(broker: Broker, peer: Peer, note: str) -> str:
    await sent(peer, note)
    (message,) = messages(await peer.pull("t", 0))
    assert (await send_back(peer, message.physical_offset, delayLevel=1)).code == 0
    (waiting,) = messages(await peer.pull(SCHEDULE_TOPIC, 0))
    assert waiting.body == b"x"
    return waiting.properties


async def dead_letter(broker: Broker, peer: Peer, note: str) -> str:
    await sent(peer, note)
    assert (await send_back(peer, 0, delayLevel=-1)).code == 0
    (letter,) = messages(await peer.pull("%DLQ%g", 0))
    assert letter.body == b"x"
    return letter.properties


async def retry_of_its_consumer(broker: Broker, peer: Peer, note: str) -> str:
    """Send like the Java client after a refused request 36."""
    await announce_group(peer)
    await sent(peer, note, retry_topic("g"), "DELAY\x012\x02RETRY_TOPIC\x01t\x02", j=1, l=5)
    (waiting,) = messages(await peer.pull(SCHEDULE_TOPIC, 0, queue_id=1))
    return waiting.properties


async def dead_letter_of_its_consumer(broker: Broker, peer: Peer, note: str) -> str:
    await announce_group(peer)
    await sent(peer, note, retry_topic("g"), "RETRY_TOPIC\x01t\x02", j=6, l=5)
    (letter,) = messages(await peer.pull("%DLQ%g", 0))
    return letter.properties


async def popped_again(broker: Broker, peer: Peer, note: str) -> str:
    await sent(peer, note)
    await pop(peer, invisibleTime=0)
    (back,) = await come_back(peer, 1)
    (stored,) = messages(await peer.pull("%RETRY%consumers_t", 0))
    handle = decode_properties(back.properties)
    assert "POP_CK" in handle
    del handle["POP_CK"]
    assert handle == decode_properties(stored.properties)
    return stored.properties


async def asked_about(broker: Broker, peer: Peer, note: str) -> str:
    """Store a half message like Apache RocketMQ, without room for the number of checks."""
    await announce(peer)
    real = "TRAN_MSG\x01true\x02PGROUP\x01producers\x02REAL_TOPIC\x01t\x02REAL_QID\x010\x02UNIQ_KEY\x01K1\x02"
    await peer.send("t", b"makes the topic", 1)
    assert broker._store is not None
    text = f"note\x01{note}\x02short\x01s\x02{real}".encode()
    half = PendingRecord(HALF_TOPIC, 0, b"x", text, 0, born_timestamp=now_ms() - 60_000)
    broker._store.append([half])
    assembly_of(broker).reput.schedule()
    (again,) = messages(asked := await question(peer))
    assert (await answer(peer, asked, COMMIT)).code == 0
    assert bodies(await peer.pull("t", 0)) == [b"x"]
    return again.properties


async def announce_group(peer: Peer) -> None:
    await peer.heartbeat("c", "g", "t")


Copy = Callable[[Broker, Peer, str], Awaitable[str]]
KINDS: dict[Copy, int] = {
    retry: MAX_PROPERTIES_BYTES,
    dead_letter: MAX_PROPERTIES_BYTES,
    retry_of_its_consumer: MAX_PROPERTIES_BYTES,
    dead_letter_of_its_consumer: MAX_PROPERTIES_BYTES,
    popped_again: LONGEST_POPPED,
    asked_about: MAX_PROPERTIES_BYTES,
}


@pytest.mark.parametrize("copy", KINDS, ids=lambda copy: copy.__name__)
async def test_a_copy_is_whole_at_the_limit_and_leaves_out_the_largest_above_it(
    tmp_path: Path, copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    texts: list[str] = []
    length = 1
    for number in range(3):
        async with running(tmp_path / str(number), SETTINGS) as broker, connected(broker) as peer:
            texts.append(await copy(broker, peer, "v" * length))
            shortened = assembly_of(broker).rates.counters.copies_shortened
        length = KINDS[copy] - len(texts[0]) + 1 + number
    _, at_limit, above = texts
    assert (len(at_limit), "__LEFT_OUT" in at_limit, at_limit.count("v" * 1000) > 0) == (KINDS[copy], False, True)
    found = decode_properties(above)
    assert (found["__LEFT_OUT"], found["short"], "note" in found) == ("note", "s", False)
    assert shortened > 0
    assert "exceed the limit: dropped 1 properties; dropped so far: 'note'" in caplog.text


async def test_a_reply_without_room_for_its_time_reaches_who_asked(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as asker, connected(broker) as replier:
        await test_replies.announce(asker)
        size = MAX_PROPERTIES_BYTES

        async def replied() -> int:
            return (
                await test_replies.reply(replier, f"{test_replies.text()}UNIQ_KEY\x01K1\x02note\x01{'v' * size}\x02")
            ).code

        while True:
            call = asyncio.ensure_future(replied())
            notice = asyncio.ensure_future(asker.notices.get())
            await asyncio.wait([call, notice], return_when=asyncio.FIRST_COMPLETED)
            if notice.done():
                break
            assert call.result() == 13
            notice.cancel()
            size -= 1
        asker.connection.send(response_to(notice.result(), 0))
        assert await call == 0
        found = decode_properties(notice.result().ext_fields["properties"])
        assert (len(found["note"]), "PUSH_REPLY_TIME" in found, "__LEFT_OUT" in found) == (size, False, False)


async def test_a_producer_whose_half_has_no_room_for_questions_hears_of_it(tmp_path: Path) -> None:
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        size = MAX_PROPERTIES_BYTES - 300
        own = "TRAN_MSG\x01true\x02PGROUP\x01producers\x02UNIQ_KEY\x01K1\x02"
        while (answered := await peer.send("t", b"x", 0, f"{own}note\x01{'v' * size}\x02", f=4)).code == 0:
            size += 1
        assert (answered.code, "longer than 32767 bytes" in str(answered.remark)) == (13, True)
        taken = await peer.send("t", b"x", 0, f"{own}note\x01{'v' * (size - 1)}\x02", f=4)
        fields = {"msgId": taken.ext_fields["msgId"]}
        assert (await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)).code == 0
        assert assembly_of(broker).rates.counters.copies_shortened == 0


GROUP = "g" * 120
TOPIC = "t" * 127


async def test_the_longest_names_make_copies_too(tmp_path: Path) -> None:
    """Return the retry topic and the dead-letter topic of a group and a topic with the longest names."""
    clock = Clock()
    async with running(tmp_path, {"messageDelayLevel": "1s"}, clock=clock) as broker, connected(broker) as peer:
        await sent(peer, "v" * 32_400, TOPIC)
        for level, topic in ((1, f"%RETRY%{GROUP}"), (-1, f"%DLQ%{GROUP}")):
            back = {"offset": 0, "group": GROUP, "delayLevel": level}
            assert (await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0
            clock.move(1_000)
            (again,) = messages(await peer.pull(topic, 0, wait_ms=20_000))
            assert decode_properties(again.properties)["RETRY_TOPIC"] == TOPIC
        who = {"consumerGroup": GROUP, "topic": TOPIC}
        assert bodies(await pop(peer, **who)) == [b"x"]
        clock.move(2 * MINUTE)
        while not (back_again := messages(await pop(peer, **who, queueId=-1, pollTime=1_000))):
            pass
        assert [each.body for each in back_again] == [b"x"]
        assert (await peer.pull(f"%RETRY%{GROUP}_{TOPIC}", 0)).code == 0
