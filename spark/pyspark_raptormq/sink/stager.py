"""Exactly-once writes: tasks stage their rows, and the driver's commit publishes them.

    task      rows --> lists per queue --> staged at the broker of the queue --> offsets, in `StagedRows`
    driver    offsets of all tasks --> commit at the coordinator --> decision --> commit at the other broker groups

A list that was staged twice after a lost response has two offsets, of which the task reports one. Lists of failed task
attempts are not in any commit. The coordinator commits each batch once; the other broker groups publish the decision
that it returns. A query whose checkpoint was restored from an older copy, or copied, repeats a batch that is published
with other rows: `check_replay` finds this. See also: `rows` creates the messages, `writer` implements Spark's
interface. Source: `docs/adr/0051-staged-lists-and-one-commit-record.md`.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from pyspark_raptormq.errors import DifferentReplay, RowError, SendFailed
from pyspark_raptormq.sink.encoder import EncodedPortion
from pyspark_raptormq.sink.rows import Rows
from pyspark_raptormq.sink.sender import Queues
from raptormq.client import EncodedBatch, Message, MessageQueue, StagedCommit
from raptormq.errors import MessageError, RaptorMQError, ServerError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.staging import Decision, Ranges, offsets_in, to_ranges
from raptormq.protocol.codes import ResponseCode

log = get_logger(__name__)

_T = TypeVar("_T")
_MESSAGE_OVERHEAD_BYTES = 200
"""Estimated size in bytes of a message without its body, in memory and on the wire."""
_MAX_MESSAGES = 16_384
"""Maximum number of messages in a list. The limit of brokers is 32,767."""


@dataclass(frozen=True)
class StagedRows:
    """The lists that one task has staged, as ranges of offsets by broker name."""

    query: str
    batch: int
    lists: dict[str, Ranges]


@dataclass(frozen=True)
class _List:
    """Messages for one queue that are staged together."""

    messages: Sequence[Message] | EncodedBatch
    rows: Sequence[int]
    """The number of the row of each message."""

    def halves(self) -> tuple[_List, _List] | None:
        """Return the list in two parts; None for an encoded batch and for a single message."""
        if isinstance(self.messages, EncodedBatch) or len(self.rows) < 2:
            return None
        middle = len(self.rows) // 2
        first, second = slice(middle), slice(middle, None)
        return _List(self.messages[first], self.rows[first]), _List(self.messages[second], self.rows[second])


@dataclass
class _OpenList:
    """A list that still grows."""

    messages: list[Message] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    size: int = 0
    """Approximate size in bytes."""


class Staging(Protocol):
    """Stages lists. Implemented by `raptormq.client.StagingClient`."""

    def check(self, message: Message) -> None: ...
    async def queues(self, topic: str) -> list[MessageQueue]: ...
    async def stage(self, messages: Sequence[Message], queue: MessageQueue, query: str, batch: int) -> int: ...
    async def stage_encoded(self, encoded: EncodedBatch, queue: MessageQueue, query: str, batch: int) -> int: ...


Commit = Callable[[str, str, int, Mapping[str, Ranges]], StagedCommit]
"""Commits with retries. Arguments: broker, query, batch and decision."""
Patience = Callable[[Callable[[], Awaitable[_T]]], Awaitable[_T]]
"""Calls a function and retries it after temporary errors."""


class TaskStager:
    """Stages the rows of one task. Must be used on the event loop of the client.

    Rows for the same queue stay in order: a list is staged after the previous list of its queue is acknowledged.

    Args:
        staging: client that stages lists.
        patience: retries after temporary errors.
        partition: number of the task's partition, for error messages.
        list_bytes: size in bytes at which a list is staged.
        max_in_flight_bytes: maximum bytes of unacknowledged messages.
    """

    def __init__(
        self,
        staging: Staging,
        patience: Patience[int],
        partition: int,
        *,
        list_bytes: int,
        max_in_flight_bytes: int,
    ) -> None:
        self._staging = staging
        self._patience = patience
        self._partition = partition
        self._list_bytes = list_bytes
        self._limit = max_in_flight_bytes
        self._name = "", 0
        self._open: dict[tuple[str, MessageQueue | None], _OpenList] = defaultdict(_OpenList)
        self._last: dict[MessageQueue, asyncio.Task[None]] = {}
        self._next_index: dict[str, int] = {}
        self._staged: dict[str, list[int]] = defaultdict(list)
        self._pending: set[asyncio.Task[None]] = set()
        self._in_flight = 0

    def begin(self, query: str, batch: int) -> None:
        """Set the query and the batch to which the rows belong."""
        self._name = query, batch

    async def send(self, rows: Rows | EncodedPortion) -> None:
        """Add rows to lists and stage full lists.

        Raises:
            RowError: a row cannot be sent.
            SendFailed: earlier rows could not be staged.
            NoRoute, TransportError: a topic has no queues, or no name server responds.
        """
        if isinstance(rows, EncodedPortion):
            for encoded in rows.batches:
                batch = encoded.batch
                listed = _List(batch, range(encoded.first, encoded.last + 1))
                await self._submit(listed, batch.topic, None, len(batch.body))
            return
        queues = {
            topic: Queues(topic, await self._staging.queues(topic))
            for topic in ({message.topic for message in rows.messages} if rows.places is not None else ())
        }
        for index, message in enumerate(rows.messages):
            try:
                queue = None if rows.places is None else queues[message.topic].choose(rows.places[index])
            except RowError as error:
                raise RowError(f"{self._place([rows.first + index])} cannot be sent: {error}") from error
            target = message.topic, queue
            growing = self._open[target]
            growing.messages.append(message)
            growing.rows.append(rows.first + index)
            growing.size += len(message.body) + _MESSAGE_OVERHEAD_BYTES
            if growing.size >= self._list_bytes or len(growing.messages) >= _MAX_MESSAGES:
                await self._submit_open(target)

    async def finish(self) -> StagedRows:
        """Stage the remaining lists and wait for all acknowledgements.

        Raises:
            SendFailed: rows could not be staged.
            RowError: a row cannot be sent.
        """
        for target in list(self._open):
            await self._submit_open(target)
        while self._pending:
            await self._wait_for_one()
        query, batch = self._name
        return StagedRows(query, batch, {broker: to_ranges(offsets) for broker, offsets in self._staged.items()})

    async def _submit_open(self, target: tuple[str, MessageQueue | None]) -> None:
        full = self._open.pop(target)
        await self._submit(_List(full.messages, full.rows), *target, full.size)

    async def _submit(self, listed: _List, topic: str, queue: MessageQueue | None, size: int) -> None:
        while self._pending and self._in_flight + size > self._limit:
            await self._wait_for_one()
        if queue is None:
            queue = await self._next_queue(topic)
        self._in_flight += size
        task = asyncio.create_task(self._stage_after(self._last.get(queue), listed, queue, size))
        self._last[queue] = task
        self._pending.add(task)

    async def _next_queue(self, topic: str) -> MessageQueue:
        queues = await self._staging.queues(topic)
        index = self._next_index.get(topic, self._partition)
        self._next_index[topic] = index + 1
        return queues[index % len(queues)]

    async def _stage_after(
        self, before: asyncio.Task[None] | None, listed: _List, queue: MessageQueue, size: int
    ) -> None:
        """Stage a list after the previous list of its queue."""
        if before is not None:
            await asyncio.wait([before])
            before.result()
        try:
            await self._stage(listed, queue)
        except RowError:
            raise
        except RaptorMQError as error:
            raise SendFailed(
                f"{self._place(listed.rows)} could not be staged at {queue.broker_name}: {error_text(error)}"
            ) from error
        finally:
            self._in_flight -= size

    async def _stage(self, listed: _List, queue: MessageQueue) -> None:
        """Stage a list. If a rule of messages forbids it, stage its halves: the list was too large, or the row that
        breaks the rule is found."""
        query, batch = self._name
        rows = listed.messages
        try:
            if isinstance(rows, EncodedBatch):
                offset = await self._patience(lambda: self._staging.stage_encoded(rows, queue, query, batch))
            else:
                offset = await self._patience(lambda: self._staging.stage(rows, queue, query, batch))
        except MessageError as error:
            halves = listed.halves()
            if halves is None:
                raise RowError(f"{self._place(listed.rows)} cannot be sent: {self._fault(listed, error)}") from error
            for half in halves:
                await self._stage(half, queue)
        else:
            self._staged[queue.broker_name].append(offset)

    def _fault(self, listed: _List, error: MessageError) -> str:
        """Return the error of a message that cannot be staged alone."""
        if isinstance(listed.messages, EncodedBatch) or listed.messages[0].is_individual:
            return str(error)
        (message,) = listed.messages
        try:
            self._staging.check(message)
        except MessageError as own:
            return str(own)
        return (
            f"its body of {len(message.body)} bytes and its properties exceed the limit of exactlyOnce for both"
            " (option maxMessageBytes, and maxMessageSize of the brokers)"
        )

    def _place(self, rows: Sequence[int]) -> str:
        """Return the description of rows for error messages."""
        first, last = rows[0], rows[-1]
        return f"{f'row {first}' if first == last else f'rows {first} to {last}'} of partition {self._partition}"

    async def _wait_for_one(self) -> None:
        done, self._pending = await asyncio.wait(self._pending, return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in done if task.exception() is not None]
        if failed:
            for task in self._pending:
                task.cancel()
            failed[0].result()


def error_text(error: RaptorMQError) -> str:
    """Return the text of an error, with a remedy if the broker does not support staging."""
    if isinstance(error, ServerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return "the broker does not support exactly-once writes: set stagedMessagesEnable = true, or remove exactlyOnce"
    return str(error)


def merged(parts: Iterable[StagedRows]) -> StagedRows | None:
    """Return the lists of all tasks of a batch; None if there are none.

    Raises:
        SendFailed: the tasks belong to different batches.
    """
    found: dict[str, list[int]] = defaultdict(list)
    names = set()
    for part in parts:
        names.add((part.query, part.batch))
        for broker, ranges in part.lists.items():
            found[broker] += offsets_in(ranges)
    if len(names) > 1:
        raise SendFailed(f"tasks have staged rows of several batches: {sorted(names)}")
    if not any(found.values()):
        return None
    ((query, batch),) = names
    return StagedRows(query, batch, {broker: to_ranges(offsets) for broker, offsets in found.items()})


class Published(NamedTuple):
    """The result of a commit."""

    messages: int
    """Number of published messages of the batch."""
    is_repeated: bool
    """Whether an earlier attempt with other lists was published instead of this one."""


def publish(commit: Commit, coordinator: str, rows: StagedRows, patience_s: float) -> Published:
    """Commit a batch at the coordinator, then its decision at all other groups.

    Raises:
        SendFailed: a broker refuses, does not respond, or makes no progress within the retry time. The batch may be
            partly published; a repeated commit publishes the rest.
        DifferentReplay: a later batch of the query is published. The rows are not published.
    """
    decided = _commit(commit, coordinator, rows, rows.lists, patience_s)
    count = decided.message_count
    for broker in sorted(decided.decision.keys() - {coordinator}):
        count += _commit(commit, broker, rows, decided.decision, patience_s).message_count
    return Published(count, decided.decision != rows.lists)


def check_replay(rows: StagedRows, found: Published, staged: int, *, fail: bool) -> None:
    """Check that a batch of `staged` rows has as many messages as the attempt that was published before it, if any.

    Raises:
        DifferentReplay: the numbers differ, and `fail` is set.
    """
    if not found.is_repeated or found.messages == staged:
        return
    what = (
        f"batch {rows.batch} of query {rows.query} was published before, with {found.messages} messages, but its"
        f" repetition has {staged} rows, which are not in the topic"
    )
    if fail:
        raise DifferentReplay(
            f"{what}. {_OTHER_CHECKPOINT}. If the query's rows differ from run to run, set option"
            " failOnDifferentReplay to false to accept the published ones"
        )
    log.warning("%s; continuing, because option failOnDifferentReplay is false", what)


_OTHER_CHECKPOINT = (
    "The checkpoint was restored from an older copy, or another query has a copy of it: start the query with a new"
    " checkpoint, and set startingOffsets to where it continues"
)


def _commit(commit: Commit, broker: str, rows: StagedRows, decision: Decision, patience_s: float) -> StagedCommit:
    """Repeat a commit until the batch is published. Fails if the number of published messages stops growing."""
    most, deadline = -1, 0.0
    while True:
        try:
            answer = commit(broker, rows.query, rows.batch, decision)
        except RaptorMQError as error:
            raise SendFailed(
                f"batch {rows.batch} of query {rows.query} could not be committed at {broker}: {error_text(error)}"
            ) from error
        if answer.is_published and not answer.decision:
            raise DifferentReplay(
                f"the rows of batch {rows.batch} of query {rows.query} are not published, because {broker} reports that"
                f" a later batch of the query is published. {_OTHER_CHECKPOINT}"
            )
        if answer.is_published:
            return answer
        if answer.message_count > most:
            most, deadline = answer.message_count, time.monotonic() + patience_s
        elif time.monotonic() > deadline:
            raise SendFailed(
                f"{broker} makes no progress with batch {rows.batch} of query {rows.query}: {most} messages are"
                " published; it continues when its store is writable (its log has the reason)"
            )
