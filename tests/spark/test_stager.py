"""Staging of rows, commits at several broker groups, and repeated batches with other rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

from pyspark_raptormq.errors import DifferentReplay, RowError, SendFailed
from pyspark_raptormq.sink.rows import Rows
from pyspark_raptormq.sink.stager import Published, StagedRows, TaskStager, check_replay, publish
from raptormq.client import EncodedBatch, Message, MessageQueue, ProducerConfig, StagedCommit
from raptormq.client.message import check_message, prepare_batch
from raptormq.errors import ServerError
from raptormq.protocol.bodies.staging import Ranges
from raptormq.protocol.message_id import UniqueIdFactory

ROWS = StagedRows("q", 4, {"broker-a": [(3, 5)], "broker-b": [(0, 0)]})
EARLIER: dict[str, Ranges] = {"broker-a": [(0, 1)], "broker-c": [(7, 7)]}


class Groups:
    """Broker groups that have published a batch, or publish it now."""

    def __init__(self, held: dict[str, Ranges] | None) -> None:
        self.held = held
        self.commits: list[str] = []

    def commit(self, broker: str, query: str, batch: int, decision: Mapping[str, Ranges]) -> StagedCommit:
        assert (query, batch) == ("q", 4)
        if self.held is None:
            self.held = dict(decision)
        self.commits.append(broker)
        return StagedCommit(self.held, True, 10 if self.held else 0)


def test_a_first_commit_publishes_its_own_rows() -> None:
    groups = Groups(None)
    assert publish(groups.commit, "broker-a", ROWS, 1.0) == Published(20, False)
    assert groups.commits == ["broker-a", "broker-b"]
    assert publish(groups.commit, "broker-a", ROWS, 1.0) == Published(20, False)


def test_a_repeated_commit_publishes_the_earlier_rows() -> None:
    groups = Groups(EARLIER)
    assert publish(groups.commit, "broker-a", ROWS, 1.0) == Published(20, True)
    assert groups.commits == ["broker-a", "broker-c"]


def test_a_commit_of_a_batch_before_the_last_one_fails() -> None:
    with pytest.raises(DifferentReplay, match="batch 4 of query q are not published, because broker-a reports"):
        publish(Groups({}).commit, "broker-a", ROWS, 1.0)


def test_a_replay_fails_only_if_it_was_published_before_with_another_number_of_rows() -> None:
    check_replay(ROWS, Published(20, True), 20, fail=True)
    check_replay(ROWS, Published(20, False), 21, fail=True)  # a topic was deleted between commit and publication
    for rows in (0, 19, 21):
        check_replay(ROWS, Published(20, True), rows, fail=False)
        with pytest.raises(DifferentReplay, match=f"with 20 messages, but its repetition has {rows} rows"):
            check_replay(ROWS, Published(20, True), rows, fail=True)


class StagedLists:
    """A broker with one queue, and the lists that it has stored."""

    def __init__(self, max_message_bytes: int = 4096) -> None:
        self.lists: list[list[bytes]] = []
        self.refusal: ServerError | None = None
        self._config = ProducerConfig(max_message_bytes=max_message_bytes)
        self._ids = UniqueIdFactory(b"\x7f\0\0\1", 1, 1)

    def check(self, message: Message) -> None:
        check_message(message, self._config)

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, "broker-a", 0)]

    async def stage(self, messages: Sequence[Message], queue: MessageQueue, query: str, batch: int) -> int:
        prepare_batch(messages, self._ids, 0, self._config)
        if self.refusal is not None:
            raise self.refusal
        self.lists.append([bytes(message.body) for message in messages])
        return len(self.lists) - 1

    async def stage_encoded(self, encoded: EncodedBatch, queue: MessageQueue, query: str, batch: int) -> int:
        raise AssertionError("no test stages encoded rows")


async def attempt(call: Callable[[], Awaitable[int]]) -> int:
    """Call once, without retries."""
    return await call()


async def staged(broker: StagedLists, messages: list[Message], list_bytes: int = 100_000) -> StagedRows:
    """Stage the messages of rows from 11 on."""
    stager = TaskStager(broker, attempt, 3, list_bytes=list_bytes, max_in_flight_bytes=100_000)
    stager.begin("q", 4)
    await stager.send(Rows(11, messages, None, sum(len(message.body) for message in messages)))
    return await stager.finish()


@pytest.mark.parametrize("position", [0, 4, 7])
async def test_row_that_cannot_be_staged_is_named(position: int) -> None:
    messages = [Message("t", b"%d" % number) for number in range(8)]
    messages[position].properties["empty"] = ""
    with pytest.raises(RowError) as caught:
        await staged(StagedLists(), messages)
    reason = "the property 'empty' has an empty value"
    assert str(caught.value) == f"row {11 + position} of partition 3 cannot be sent: {reason}"


async def test_rows_that_exceed_the_limit_together_are_staged_in_parts_in_order() -> None:
    messages = [Message("t", b"%d" % number * 1500) for number in range(5)]
    broker = StagedLists()
    rows = await staged(broker, messages)
    assert [body[:1] for listed in broker.lists for body in listed] == [b"0", b"1", b"2", b"3", b"4"]
    assert len(broker.lists) > 1
    assert rows.lists == {"broker-a": [(0, len(broker.lists) - 1)]}


async def test_row_at_the_limit_of_bodies_is_refused_with_the_limit_of_exactly_once() -> None:
    with pytest.raises(
        RowError, match=r"row 12 of partition 3 .* body of 4096 bytes .* exceed the limit of exactlyOnce"
    ):
        await staged(StagedLists(), [Message("t", b"small"), Message("t", b"x" * 4096)])


async def test_rows_of_a_list_that_the_broker_refuses_are_named() -> None:
    broker = StagedLists()
    broker.refusal = ServerError(14, "service not available now", "127.0.0.1:1")
    with pytest.raises(SendFailed, match="rows 11 to 12 of partition 3 could not be staged at broker-a: "):
        await staged(broker, [Message("t", b"a"), Message("t", b"b")])
