"""Transactions of a broker with a producer that decides, answers checks, disconnects or sends wrong decisions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.errors import DiskFull
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.message_id import parse_offset_id
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import decode_record
from raptormq.protocol.topic_names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from raptormq.storage.queue.append_batches import AppendResult
from tests.broker.harness import Peer, assembly_of, bodies, connected, messages, running
from tests.broker.transaction.producer import (
    COMMIT,
    NEVER,
    PREPARED,
    QUICK,
    ROLLBACK,
    announce,
    answer,
    end,
    prepare,
    question,
)


async def test_nobody_sees_a_half_and_everybody_the_committed_message(tmp_path: Path) -> None:
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        await peer.send("t", b"before", 0)
        sent = await prepare(peer)
        assert (sent.ext_fields["queueId"], sent.ext_fields["transactionId"]) == ("2", "K1")
        assert (await peer.pull("t", 0, 2)).code == 19
        assert (await end(peer, sent, COMMIT)).code == 0
        (message,) = messages(await peer.pull("t", 0, 2))
        (half,) = messages(await peer.pull(HALF_TOPIC, 0))
        found = decode_properties(message.properties)
        assert (message.body, message.sys_flag, half.sys_flag) == (b"x", COMMIT, 0)
        assert message.prepared_transaction_offset == half.physical_offset
        assert (found["REAL_TOPIC"], found["REAL_QID"], found["__transactionId__"]) == ("t", "2", "K1")
        assert bodies(await peer.pull(OP_HALF_TOPIC, 0)) == [b"0,"]
        assert bodies(await peer.pull("t", 0, 2, subscription="a")) == [b"x"]


async def test_what_is_rolled_back_is_never_seen_and_a_decision_counts_once(tmp_path: Path) -> None:
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        sent = await prepare(peer)
        assert (await end(peer, sent, 0)).code == 0  # "unknown" is not a decision
        assert (await end(peer, sent, ROLLBACK)).code == 0
        for decision in (COMMIT, ROLLBACK):
            again = await end(peer, sent, decision)
            assert (again.code, again.remark) == (604, "the transaction is already decided or discarded")
        assert (await peer.pull("t", 0, 2)).code == 19


@pytest.mark.parametrize(
    ("changes", "code", "part"),
    [
        ({"producerGroup": "others"}, 1, "The producer group wrong"),
        ({"tranStateTableOffset": 7}, 1, "state table offset wrong"),
        ({"commitLogOffset": 1 << 40}, 1, "Find prepared transaction message failed"),
        ({"commitLogOffset": 0}, 1, "Find prepared transaction message failed"),
        ({"commitOrRollback": 4}, 1, "invalid decision 4"),
        ({"commitOrRollback": "yes"}, 1, "commitOrRollback"),
    ],
)
async def test_a_decision_that_does_not_fit_is_refused_and_changes_nothing(
    tmp_path: Path, changes: dict[str, object], code: int, part: str
) -> None:
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        await peer.send("t", b"plain")
        sent = await prepare(peer)
        refused = await end(peer, sent, COMMIT, **changes)
        assert (refused.code, part in str(refused.remark)) == (code, True)
        assert (await peer.pull("t", 0, 2)).code == 19
        assert (await end(peer, sent, COMMIT)).code == 0
        assert bodies(await peer.pull("t", 0, 2)) == [b"x"]


async def test_a_late_decision_on_a_message_with_immunity_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        sent = await prepare(peer, b"x", PREPARED + "CHECK_IMMUNITY_TIME_IN_SECONDS\x015\x02", 5_001)
        assert (await end(peer, sent, COMMIT)).code == 604
        assert (await end(peer, sent, COMMIT, fromTransactionCheck="true")).code == 0


async def test_the_producer_is_asked_and_its_answer_decides(tmp_path: Path) -> None:
    async with running(tmp_path, QUICK | {"transactionCheckMax": "1000"}) as broker, connected(broker) as peer:
        await announce(peer)
        await prepare(peer)
        asked = await question(peer)
        half = decode_record(asked.body)
        assert (half.topic, half.queue_id, half.body) == ("t", 2, b"x")
        assert (asked.ext_fields["transactionId"], asked.is_oneway) == ("K1", True)
        assert asked.ext_fields["topic"] == HALF_TOPIC
        assert (await answer(peer, asked, COMMIT)).code == 0
        assert bodies(await peer.pull("t", 0, 2)) == [b"x"]


async def test_a_decision_counts_once_though_it_comes_after_questions(tmp_path: Path) -> None:
    """Its local transaction has taken long, so it knows only the first offset of the half message."""
    async with running(tmp_path, QUICK | {"transactionCheckMax": "1000"}) as broker, connected(broker) as peer:
        await announce(peer)
        sent = await prepare(peer)
        asked = [await question(peer) for _ in range(3)]
        assert (await end(peer, sent, COMMIT)).code == 0
        assert bodies(await peer.pull("t", 0, 2)) == [b"x"]
        for each in asked:
            assert (await answer(peer, each, COMMIT)).code == 604
        assert (await end(peer, sent, ROLLBACK)).code == 604
        assert (await peer.pull("t", 1, 2)).code == 19


async def test_a_transaction_that_nobody_decides_is_given_up(tmp_path: Path) -> None:
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        await announce(peer)
        await prepare(peer)
        assert int((await question(peer)).ext_fields["tranStateTableOffset"]) == 1
        asked = await question(peer)
        while (lost := await peer.pull(TRANS_CHECK_MAX_TIME_TOPIC, 0, wait_ms=10_000)).code == 17:
            await asyncio.sleep(0.02)  # the first message creates the topic
        (discarded,) = messages(lost)
        assert decode_properties(discarded.properties)["TRANSACTION_CHECK_TIMES"] == "2"
        assert (await answer(peer, asked, COMMIT)).code == 604
        assert (await peer.pull("t", 0, 2)).code == 19


async def test_only_questions_that_somebody_is_asked_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of producers that are disconnected for long are not lost."""
    monkeypatch.setattr("raptormq.broker.transaction.transaction_service._RENEW_INTERVAL_MS", 1)
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        await prepare(peer)
        while not (anew := messages(await peer.pull(HALF_TOPIC, 5, wait_ms=10_000))):
            pass
        assert decode_properties(anew[-1].properties)["TRANSACTION_CHECK_TIMES"] == "0"
        await announce(peer)
        while (await answer(peer, await question(peer), COMMIT)).code == 604:
            pass
        assert bodies(await peer.pull("t", 0, 2)) == [b"x"]


async def test_a_half_that_nobody_can_be_asked_about_is_seldom_written_anew(tmp_path: Path) -> None:
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        await prepare(peer)
        transactions = assembly_of(broker).transactions
        for _ in range(5):
            await transactions._check_all()
        assert [each.queue_offset for each in messages(await peer.pull(HALF_TOPIC, 0))] == [0]
        await announce(peer)
        assert int((await question(peer)).ext_fields["tranStateTableOffset"]) == 1


async def test_a_transaction_older_than_the_log_keeps_is_given_up_without_a_question(tmp_path: Path) -> None:
    async with running(tmp_path, QUICK | {"fileReservedTime": "1"}) as broker, connected(broker) as peer:
        await announce(peer)
        await prepare(peer, age_ms=3_600_001)
        while (lost := await peer.pull(TRANS_CHECK_MAX_TIME_TOPIC, 0, wait_ms=10_000)).code == 17:
            await asyncio.sleep(0.02)
        assert bodies(lost) == [b"x"]


async def test_every_state_survives_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        committed, rolled_back = await prepare(peer, b"committed"), await prepare(peer, b"rolled back")
        open_one = await prepare(peer, b"open")
        assert (await end(peer, committed, COMMIT)).code == (await end(peer, rolled_back, ROLLBACK)).code == 0
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        assert (await end(peer, committed, COMMIT)).code == (await end(peer, rolled_back, COMMIT)).code == 604
        assert (await end(peer, open_one, COMMIT)).code == 0
        assert bodies(await peer.pull("t", 0, 2)) == [b"committed", b"open"]
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        assert (await end(peer, open_one, COMMIT)).code == 604


async def _first_open_then_decided(root: Path) -> int:
    """Store an open half message, two committed ones and another open one. Return the offset of an ordinary message."""
    async with running(root, NEVER) as broker, connected(broker) as peer:
        plain = [await peer.send("t", b"plain") for _ in range(4)]
        await prepare(peer, b"open0", age_ms=60_000)
        decided = [await prepare(peer, body, age_ms=60_000) for body in (b"decided1", b"decided2")]
        await prepare(peer, b"open3", age_ms=60_000)
        for sent in decided:
            assert (await end(peer, sent, COMMIT)).code == 0
    return parse_offset_id(plain[0].ext_fields["msgId"]).physical_offset


async def _asked_bodies(peer: Peer, count: int) -> set[bytes]:
    await announce(peer)
    asked: set[bytes] = set()
    while len(asked) < count:
        asked.add(decode_record((await question(peer)).body).body)
    return asked


async def test_a_damaged_decision_is_asked_for_again_and_hinders_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _first_open_then_decided(tmp_path)
    (log,) = (tmp_path / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    data[data.index(OP_HALF_TOPIC.encode())] ^= 0x80  # invalid UTF-8 in the record of the first decision
    log.write_bytes(data)
    async with running(tmp_path, QUICK | {"transactionCheckMax": "1000"}) as broker, connected(broker) as peer:
        assert await _asked_bodies(peer, 3) == {b"open0", b"decided1", b"open3"}
        assert (await end(peer, await prepare(peer, b"new"), COMMIT)).code == 0
    assert "skipped a damaged transaction decision at op offset 0: the record is damaged" in caplog.text


@pytest.mark.parametrize("damage", ["a bit of the place", "the place of an ordinary message", "the size"])
async def test_a_damaged_item_of_the_queue_of_halves_costs_its_half_only(tmp_path: Path, damage: str) -> None:
    plain = await _first_open_then_decided(tmp_path)
    (queue,) = (tmp_path / "consumequeue" / HALF_TOPIC / "0").iterdir()
    items = bytearray(queue.read_bytes())
    if damage == "a bit of the place":
        items[6] ^= 1
    elif damage == "the size":
        items[8] ^= 0x40
    else:
        items[:8] = plain.to_bytes(8, "big")
    queue.write_bytes(items)
    async with running(tmp_path, QUICK | {"transactionCheckMax": "1000"}) as broker, connected(broker) as peer:
        assert await _asked_bodies(peer, 1) == {b"open3"}
        assert bodies(await peer.pull("t", 0)) == [b"plain"] * 4


async def test_a_full_disk_leaves_the_transaction_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        sent = await prepare(peer)

        def fail(_: object) -> None:
            raise DiskFull("no room")

        with monkeypatch.context() as patched:
            patched.setattr(broker._store, "append", fail)
            assert (await end(peer, sent, COMMIT)).code == 14
        assert (await end(peer, sent, COMMIT)).code == 0
        assert bodies(await peer.pull("t", 0, 2)) == [b"x"]


@pytest.mark.parametrize("before", [0, 1])
async def test_what_is_kept_while_a_decision_is_written_that_then_fails_loses_no_half_and_opens_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """With SYNC_FLUSH each rewrite takes a flush, and decisions meanwhile must be effective after a restart."""
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        for _ in range(before):
            await end(peer, await prepare(peer), ROLLBACK)
        open_one, decided = await prepare(peer, b"open"), await prepare(peer, b"decided")
        assert (await end(peer, decided, COMMIT)).code == 0
        transactions = assembly_of(broker).transactions

        async def fail(_: object) -> AppendResult:
            await transactions._commit_progress()
            raise DiskFull("no room")

        monkeypatch.setattr(transactions._writer, "write_confirmed", fail)
        assert (await end(peer, open_one, COMMIT)).code == 14
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        assert (await end(peer, decided, COMMIT)).code == 604
        assert (await end(peer, open_one, COMMIT)).code == 0
        assert bodies(await peer.pull("t", 0, 2)) == [b"decided", b"open"]


async def test_a_broker_may_reject_transactions(tmp_path: Path) -> None:
    async with running(tmp_path, {"rejectTransactionMessage": "true"}) as broker, connected(broker) as peer:
        assert (await peer.send("t", b"x", 0, PREPARED, f=4)).code == 16
        assert (await peer.send("t", b"x", 0, "", f=4)).code == 13


async def test_questions_begin_again_about_what_was_given_up(tmp_path: Path) -> None:
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        await announce(peer)
        sent = await prepare(peer)
        while not (discarded := messages(await peer.pull(TRANS_CHECK_MAX_TIME_TOPIC, 0))):
            await asyncio.sleep(0.05)
        while not peer.notices.empty():
            peer.notices.get_nowait()
        place = f"7F00000100002A9F{discarded[0].physical_offset:016X}"
        resumed = await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": place, "topic": "t"})
        assert resumed.code == 0
        again = await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": place, "topic": "t"})
        assert (again.code, again.remark) == (604, "the checks of the transaction are already resumed")
        assert (await answer(peer, await question(peer), COMMIT)).code == 0
        assert bodies(await peer.pull("t", 0, 2)) == [b"x"]
        assert (await end(peer, sent, COMMIT)).code == 604


async def test_an_open_transaction_that_is_resumed_is_one_and_its_questions_are_counted_anew(tmp_path: Path) -> None:
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        sent = await prepare(peer)
        fields = {"msgId": sent.ext_fields["msgId"]}
        for place in (1, 2):  # the second time it was rewritten as another half message
            assert (await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)).code == 0
            half = messages(await peer.pull(HALF_TOPIC, place))[0]
            assert decode_properties(half.properties)["TRANSACTION_CHECK_TIMES"] == "0"
            assert assembly_of(broker).transactions.open_count == 1
        assert (await end(peer, sent, COMMIT)).code == 0
        assert (await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)).code == 604


async def test_what_is_no_transaction_cannot_be_resumed(tmp_path: Path) -> None:
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        plain = (await peer.send("t", b"plain")).ext_fields["msgId"]
        for place in (plain, plain[:-1] + "1", "F" * 32, "x", ""):
            refused = await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": place})
            assert (refused.code, HALF_TOPIC in str(refused.remark)) == (1, True)
        assert (await peer.pull(HALF_TOPIC, 0)).code in (17, 19)


@pytest.mark.parametrize("name", ["CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES"])
async def test_a_half_with_an_endless_number_hinders_no_other(tmp_path: Path, name: str) -> None:
    async with running(tmp_path, QUICK) as broker, connected(broker) as peer:
        await announce(peer)
        await prepare(peer, b"endless", PREPARED + f"{name}\x01{'9' * 5000}\x02")
        await prepare(peer, b"good")
        asked: set[bytes] = set()
        while asked != {b"endless", b"good"}:  # one may be checked twice before the other is stored
            asked.add(decode_record((await question(peer)).body).body)
