"""A full disk and the messages that the broker itself writes: none is lost, and none is delivered twice.

Messages of delay levels and timers become due, transactions are decided and checked, and popped messages return.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path

import pytest

from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message_id import parse_offset_id
from raptormq.storage.store import now_ms
from tests.broker.handlers.test_pop import pop
from tests.broker.harness import Peer, bodies, connected, messages, running
from tests.faults.conftest import SmallVolume

COUNT = 20
FULL = ResponseCode.SERVICE_NOT_AVAILABLE
PAIRS = {
    "mappedFileSizeCommitLog": "4M", "messageDelayLevel": "1s 2s", "timerPrecisionMs": "100",
    "transactionTimeOut": "500", "transactionCheckInterval": "300", "transactionCheckMax": "1000",
}  # fmt: skip


async def taken(peer: Peer, body: str, properties: str) -> RemotingCommand:
    sent = await peer.send("t", body.encode(), properties=properties, g=now_ms())
    assert sent.code == 0, sent
    return sent


async def delivered(peer: Peer) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    while (answer := await peer.pull("t", found.total())).code == 0:
        found.update(bodies(answer))
    return found


async def commit(peer: Peer, place: dict[str, object]) -> int:
    fields: dict[str, object] = {
        "producerGroup": "producers", "commitOrRollback": 8, "fromTransactionCheck": "false", "msgId": "m",
    }  # fmt: skip
    return (await peer.call(RequestCode.END_TRANSACTION, fields | place)).code


async def decide(peer: Peer, count: int) -> None:
    """Commit the checked transactions, until this number is committed."""
    while count:
        notice = await peer.notices.get()
        if notice.code == RequestCode.CHECK_TRANSACTION_STATE:
            place: dict[str, object] = {
                name: notice.ext_fields[name] for name in ("commitLogOffset", "tranStateTableOffset")
            }
            count -= await commit(peer, place) == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_everything_goes_on_when_there_is_room(
    tmp_path: Path, small_volume: SmallVolume, caplog: pytest.LogCaptureFixture
) -> None:
    root = small_volume.root / "store"
    with caplog.at_level(logging.WARNING):
        async with running(root, PAIRS, small_volume.filesystem) as broker, connected(broker) as peer:
            for number in range(COUNT):
                assert (await peer.send("popped", b"popped %d" % number)).code == 0
            await peer.heartbeat("client", "consumers", "t")
            places = []
            for number in range(COUNT):
                await taken(peer, f"delayed {number}", f"DELAY\x01{1 + number % 2}\x02")
                await taken(peer, f"timer {number}", f"TIMER_DELAY_MS\x01{1_000 + 50 * number}\x02")
                half = await taken(peer, f"half {number}", "TRAN_MSG\x01true\x02PGROUP\x01producers\x02")
                place = parse_offset_id(half.ext_fields["msgId"]).physical_offset
                offset = half.ext_fields["queueOffset"]
                places.append({"commitLogOffset": place, "tranStateTableOffset": offset})
            for _ in range(COUNT // 2):
                assert (await pop(peer, topic="popped", maxMsgNums=2, invisibleTime=1_500)).code == 0
            small_volume.fill()
            for size in (60_000, 500, 1):
                while (await peer.send("filler", b"x" * size)).code == 0:
                    pass
            assert {await commit(peer, place) for place in places} <= {FULL, ResponseCode.ILLEGAL_OPERATION}
            assert (await pop(peer, topic="filler", maxMsgNums=2)).code == FULL
            (message,) = messages(await peer.pull("popped", 0, count=1))
            back = {"offset": message.physical_offset, "group": "consumers", "delayLevel": 1}
            assert (await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == FULL
            while sum("retrying" in record.getMessage() for record in caplog.records) < 6:
                await asyncio.sleep(0.05)  # all of it is due now
            small_volume.make_room()
            async with asyncio.timeout(45):
                await decide(peer, COUNT)
                while len(await delivered(peer)) < 3 * COUNT:
                    await asyncio.sleep(0.05)
                back_again: Counter[bytes] = Counter()
                while len(back_again) < COUNT:
                    popped = await pop(peer, topic="popped", queueId=-1, pollTime=1_000)
                    back_again.update(bodies(popped))
            before = await delivered(peer)
    async with running(root, PAIRS, small_volume.filesystem) as broker, connected(broker) as peer:
        assert await delivered(peer) == before
    assert {body: count for body, count in (before + back_again).items() if count > 1} == {}
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
