"""The outcomes of a pull, each caused by one request to a real broker.

Only members of a group wait until they have caught up; see :mod:`tests.broker.replication.test_brokers`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.broker.pull import answer_batching
from raptormq.broker.pull.request import Attempt, PullRequest
from raptormq.broker.pull.service import Outcome, PullService
from raptormq.protocol.codes import ResponseCode
from raptormq.storage import MessageStore
from raptormq.storage.read.options import GetResult, ReadOptions
from raptormq.transport.connection import Connection
from tests.broker.harness import assembly_of, bodies, connected, held, running

LONG = 20_000
Seen = list[tuple[Attempt, Outcome]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The attempts of all pulls, and their outcomes."""
    attempts: Seen = []
    serve = PullService.serve

    def recorded(service: PullService, pull: PullRequest, attempt: Attempt) -> Outcome:
        outcome = serve(service, pull, attempt)
        attempts.append((attempt, outcome))
        return outcome

    monkeypatch.setattr(PullService, "serve", recorded)
    return attempts


async def test_found_and_empty(tmp_path: Path, seen: Seen) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        assert bodies(await peer.pull("t", 0)) == [b"0"]
        assert (await peer.pull("t", 1)).code == ResponseCode.PULL_NOT_FOUND
    assert seen == [(Attempt.FIRST, Outcome.FOUND), (Attempt.FIRST, Outcome.EMPTY)]


async def test_held_until_a_message_matches(tmp_path: Path, seen: Seen) -> None:
    pairs = {"enablePropertyFilter": "true"}
    async with running(tmp_path, pairs) as broker, connected(broker) as peer, connected(broker) as producer:
        await producer.send("t", b"0")
        pulling = peer.pull("t", 1, wait_ms=LONG, subscription="a = '1'", expressionType="SQL92")
        waiting = asyncio.ensure_future(pulling)
        await held(peer, 1)
        await producer.send("t", b"no", 0, "a\x012\x02")
        await producer.send("t", b"yes", 0, "a\x011\x02")
        assert bodies(await waiting) == [b"yes"]
    assert seen == [(Attempt.FIRST, Outcome.HELD), (Attempt.ARRIVAL, Outcome.HELD), (Attempt.ARRIVAL, Outcome.FOUND)]


async def test_held_until_the_topic_is_changed(tmp_path: Path, seen: Seen) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        waiting = asyncio.ensure_future(peer.pull("t", 1, wait_ms=LONG))
        await held(peer, 1)
        assembly_of(broker).pulls.topic_changed("t")
        assert (await waiting).code == ResponseCode.PULL_NOT_FOUND
    assert seen == [(Attempt.FIRST, Outcome.HELD), (Attempt.LAST, Outcome.EMPTY)]


async def test_coalesced_while_the_log_grows_fast(tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_batching, "BUSY_BYTES_PER_MS", 0)
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        assembly_of(broker).pulls._coalescer.flush()
        assert bodies(await peer.pull("t", 0, wait_ms=LONG)) == [b"0"]
    assert seen == [(Attempt.FIRST, Outcome.COALESCED), (Attempt.LAST, Outcome.FOUND)]


async def test_reset_by_an_administrator(tmp_path: Path, seen: Seen) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        await peer.pull("t", 0)
        assembly_of(broker).pulls._resets.assign("t", "consumers", 0, 7)
        answer = await peer.pull("t", 0)
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "7")
    assert seen == [(Attempt.FIRST, Outcome.FOUND), (Attempt.FIRST, Outcome.RESET)]


async def test_cold_pages_are_read_by_a_thread(tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    def cold(store: MessageStore, topic: str, queue_id: int, offset: int, options: ReadOptions) -> GetResult:
        return get_messages(store, topic, queue_id, offset, options)._replace(buffers=[], non_resident=True)

    get_messages = MessageStore.get_messages
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        monkeypatch.setattr(MessageStore, "get_messages", cold)
        assert bodies(await peer.pull("t", 0)) == [b"0"]
        assert assembly_of(broker).rates.counters.pulls_cold == 1
    assert seen == [(Attempt.FIRST, Outcome.COLD)]


async def test_encrypted_answers_wait_for_memory(tmp_path: Path, seen: Seen) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        assert broker._server is not None
        (connection,) = broker._server._connections
        assert connection.answers is not None
        connection.is_encrypted = connection.answers.is_short = True
        assert bodies(await peer.pull("t", 0)) == [b"0"]
    assert seen == [(Attempt.FIRST, Outcome.NO_MEMORY)]


async def test_clogged_connections_are_served_when_the_peer_has_read(
    tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        monkeypatch.setattr(Connection, "is_clogged", property(lambda _: not seen))
        assert bodies(await peer.pull("t", 0)) == [b"0"]
    assert seen == [(Attempt.FIRST, Outcome.CLOGGED), (Attempt.LAST, Outcome.FOUND)]
