"""The scan of the open half messages: what it reads, and requests that are served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.transaction.transaction_service import GROUP, TransactionService
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.record import StoredMessage
from raptormq.protocol.topic_names import HALF_TOPIC, OP_HALF_TOPIC
from raptormq.storage import background
from raptormq.storage.queue.append_batches import AppendResult, PendingRecord
from tests.broker.harness import Peer, assembly_of, bodies, connected, messages, running
from tests.broker.transaction.producer import COMMIT, NEVER, PREPARED, announce, answer, end, prepare, question
from tests.clock import Clock
from tests.turns import counted_turns


def transactions_of(broker: Broker) -> TransactionService:
    return assembly_of(broker).transactions


@contextmanager
def counted_reads(transactions: TransactionService, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return the queue offsets of the half messages that are read."""
    found: list[int] = []
    read = transactions._read

    async def counted(offset: int) -> StoredMessage | None:
        found.append(offset)
        return await read(offset)

    with monkeypatch.context() as patched:
        patched.setattr(transactions, "_read", counted)
        yield found


async def test_what_would_tell_nothing_new_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each half message is read once: the first has no producer, and the second has its own check time."""
    clock = Clock()
    clock.hold()
    async with running(tmp_path, NEVER, clock=clock) as broker, connected(broker) as peer:
        await prepare(peer)
        await prepare(peer, properties=PREPARED + "CHECK_IMMUNITY_TIME_IN_SECONDS\x013600\x02")
        transactions = transactions_of(broker)
        with counted_reads(transactions, monkeypatch) as read:
            clock.move(60_000)
            for _ in range(3):
                await transactions._check_all()
            assert read == [0, 1]
            clock.move(600_000)  # the first is rewritten as the third; the second may have been lost
            await transactions._check_all()
            assert read == [0, 1, 0, 1]
            assert len(messages(await peer.pull(HALF_TOPIC, 2, wait_ms=10_000))) == 1  # so it was read
            clock.move(60_000)
            for _ in range(3):
                await transactions._check_all()
            assert read == [0, 1, 0, 1, 2]
            await announce(peer)
            await transactions._check_all()
            assert read == [0, 1, 0, 1, 2, 2]
        assert (await question(peer)).ext_fields["tranStateTableOffset"] == "3"


async def test_others_have_their_turn_while_many_halves_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with running(tmp_path, NEVER, clock=clock) as broker, connected(broker) as peer:
        for _ in range(20):
            await prepare(peer)
        clock.move(60_000)
        monkeypatch.setattr(background, "_SLICE_S", -1.0)  # yield after every one
        with counted_turns() as turns:
            await transactions_of(broker)._check_all()
            assert turns() >= 20


async def test_after_a_start_halves_that_nobody_can_be_asked_about_are_written_anew_a_few_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest half message is first. Meanwhile the producer can decide the others, each once."""
    clock, count, interval_ms = Clock(), 8, 200_000
    clock.hold()
    monkeypatch.setattr("raptormq.broker.transaction.transaction_service._RENEWALS_PER_ROUND", 3)
    settings = {"transactionCheckInterval": str(interval_ms)}
    async with running(tmp_path, settings, clock=clock) as broker, connected(broker) as peer:
        sent = [await prepare(peer, b"%d" % number) for number in range(count)]
    clock.move(60_000)
    async with running(tmp_path, settings, clock=clock) as broker, connected(broker) as peer:
        transactions = transactions_of(broker)
        await transactions.ready()
        written: list[list[bytes]] = []
        with counted_reads(transactions, monkeypatch) as read:
            for _ in range(3):
                end_before = broker._store.queue_end(HALF_TOPIC, 0)
                await transactions._check_all()
                await transactions._check_all()  # immediately, which is too early for further checks
                written.append(bodies(await peer.pull(HALF_TOPIC, end_before)))
                clock.move(interval_ms)
        assert written == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6", b"7"]]
        assert read == [*range(count), 3, 4, 5, 8, 9, 10, 6, 7, 11, 12, 13]  # each once, at its offset
        assert (await end(peer, sent[4], COMMIT)).code == 0
        await announce(peer)
        await transactions._check_all()
        asked = [await question(peer) for _ in range(count - 1)]
        assert [(await answer(peer, each, COMMIT)).code for each in asked] == [0] * (count - 1)
        assert transactions.open_count == 0
        assert sorted(await delivered(peer)) == [b"%d" % number for number in range(count)]


async def test_others_have_their_turn_while_it_is_found_out_what_earlier_runs_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        sent = [await prepare(peer) for _ in range(20)]
        for each in sent[:10]:
            assert (await end(peer, each, COMMIT)).code == 0
        transactions = transactions_of(broker)
        monkeypatch.setattr(background, "_SLICE_S", -1.0)
        monkeypatch.setattr("raptormq.broker.transaction.transaction_service._PAGE", 1)
        with counted_turns() as turns:
            first_op = await transactions._load_halves()
            named = turns()
            assert (first_op, transactions.open_count, named >= 20) == (0, 20, True)
            await transactions._read_ops(first_op)
            read = turns()
            assert (transactions.open_count, read - named >= 10) == (10, True)
            await transactions._commit_progress()
            assert turns() - read >= 10
        offsets = broker._store.consumer_offsets
        assert [offsets.get(topic, GROUP, 0) for topic in (HALF_TOPIC, OP_HALF_TOPIC)] == [10, 10]


async def test_a_half_that_arrives_while_those_before_it_are_named_is_open_and_decided_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, NEVER) as broker, connected(broker) as peer:
        sent = [await prepare(peer, body) for body in (b"0", b"1")]
        assert (await end(peer, sent[0], COMMIT)).code == 0
        transactions = transactions_of(broker)

        async def while_others_come(halves: Iterator[int]) -> AsyncIterator[int]:
            for half in halves:
                yield half
                if half < 3:
                    sent.append(await prepare(peer, b"%d" % len(sent)))

        with monkeypatch.context() as patched:
            patched.setattr("raptormq.broker.transaction.transaction_service.cooperatively", while_others_come)
            first_op = await transactions._load_halves()
        await transactions._read_ops(first_op)
        sent.append(await prepare(peer, b"5"))
        assert transactions.open_count == 5
        assert [(await end(peer, each, COMMIT)).code for each in sent] == [604, 0, 0, 0, 0, 0]
        assert [(await end(peer, each, COMMIT)).code for each in sent] == [604] * 6
        assert await delivered(peer) == [b"%d" % number for number in range(6)]


@asynccontextmanager
async def one_that_is_due(tmp_path: Path) -> AsyncIterator[tuple[TransactionService, Peer, RemotingCommand]]:
    """Store an open half message b"x" whose producer must be checked. Return the response to its send."""
    clock = Clock()
    async with running(tmp_path, NEVER, clock=clock) as broker, connected(broker) as peer:
        await announce(peer)
        sent = await prepare(peer)
        clock.move(60_000)
        yield transactions_of(broker), peer, sent


async def delivered(peer: Peer) -> list[bytes]:
    """Return the messages of transactions that consumers receive."""
    await peer.send("t", b"plain", 2)  # earlier messages are visible, too
    *found, last = bodies(await peer.pull("t", 0, 2))
    assert last == b"plain"
    return found


async def test_a_half_that_is_decided_while_the_disk_is_waited_for_is_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decided transaction must not be open again as another half message, because its message would be delivered
    twice.
    """
    async with one_that_is_due(tmp_path) as (transactions, peer, sent):
        read = transactions._read

        async def decided_meanwhile(offset: int) -> StoredMessage | None:
            assert (await end(peer, sent, COMMIT)).code == 0
            return await read(offset)

        monkeypatch.setattr(transactions, "_read", decided_meanwhile)
        await transactions._check_all()
        assert await delivered(peer) == [b"x"]
        assert len(messages(await peer.pull(HALF_TOPIC, 0))) == 1


async def test_two_decisions_at_the_same_time_on_a_half_that_was_written_anew_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One decision names its first offset. The other decision arrives while its current copy is read."""
    async with one_that_is_due(tmp_path) as (transactions, peer, sent):
        await transactions._check_all()
        asked = await question(peer)
        read = transactions._read

        async def decided_meanwhile(offset: int) -> StoredMessage | None:
            assert (await answer(peer, asked, COMMIT)).code == 0
            return await read(offset)

        monkeypatch.setattr(transactions, "_read", decided_meanwhile)
        assert (await end(peer, sent, COMMIT)).code == 604
        assert await delivered(peer) == [b"x"]


async def test_a_decision_that_comes_while_its_half_is_written_anew_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_that_is_due(tmp_path) as (transactions, peer, sent):
        writer, decided = transactions._writer, list[asyncio.Task[RemotingCommand]]()
        write = writer.write_confirmed

        async def slowly(records: Sequence[PendingRecord]) -> AppendResult:
            monkeypatch.setattr(writer, "write_confirmed", write)
            result = await write(records)
            decided.append(asyncio.create_task(end(peer, sent, COMMIT)))
            await peer.call(RequestCode.GET_BROKER_CONFIG)  # arrives after it, when it already waits
            return result

        monkeypatch.setattr(writer, "write_confirmed", slowly)
        await transactions._check_all()
        assert (await decided[0]).code == 0
        assert await delivered(peer) == [b"x"]


async def test_a_decision_counts_that_reads_a_copy_nobody_was_told_of_while_that_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    clock.hold()
    async with running(tmp_path, NEVER, clock=clock) as broker, connected(broker) as peer:
        sent, transactions = await prepare(peer), transactions_of(broker)
        clock.move(660_000)
        await transactions._check_all()  # no producer is connected
        assert messages(await peer.pull(HALF_TOPIC, 1, wait_ms=10_000))
        clock.move(660_000)
        read = transactions._read

        async def written_anew_meanwhile(offset: int) -> StoredMessage | None:
            monkeypatch.setattr(transactions, "_read", read)
            half = await read(offset)
            await transactions._check_all()
            assert messages(await peer.pull(HALF_TOPIC, 2, wait_ms=10_000))
            return half

        monkeypatch.setattr(transactions, "_read", written_anew_meanwhile)
        assert (await end(peer, sent, COMMIT)).code == 0
        assert await delivered(peer) == [b"x"]


async def test_a_decision_counts_before_the_queue_shows_the_copy_that_was_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delay the dispatch, like a full or busy disk."""
    async with one_that_is_due(tmp_path) as (transactions, peer, sent):
        with monkeypatch.context() as behind:
            behind.setattr(transactions._writer._reput, "schedule", lambda: None)
            await transactions._check_all()
            await question(peer)
            assert transactions._store.queue_end(HALF_TOPIC, 0) == 1
            assert (await end(peer, sent, COMMIT)).code == 0
            assert (await end(peer, sent, COMMIT)).code == 604
        transactions._writer._reput.schedule()
        assert await delivered(peer) == [b"x"]
        assert not transactions.open_count


async def test_an_open_half_that_cannot_be_read_is_not_called_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreadable(_offset: int) -> None:
        return None

    async with one_that_is_due(tmp_path) as (transactions, peer, sent):
        await transactions._check_all()
        await question(peer)
        with monkeypatch.context() as damaged:
            damaged.setattr(transactions, "_read", unreadable)
            refused = await end(peer, sent, COMMIT)
        expected = ResponseCode.SERVICE_NOT_AVAILABLE, "cannot read the open transaction at half offset 1"
        assert (refused.code, refused.remark) == expected
        assert (await end(peer, sent, COMMIT)).code == 0
