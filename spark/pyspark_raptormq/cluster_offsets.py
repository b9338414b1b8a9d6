"""Resolution of source options to queues and offsets, with requests to the brokers.

Uses `options` and `cluster`; used by `reader` and `stream_progress`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from pyspark_raptormq.data_loss import report_beyond_end, report_deleted, report_recreated
from pyspark_raptormq.errors import BrokerUnavailable, MissingTopic, OptionError
from pyspark_raptormq.marks import Stored
from pyspark_raptormq.offsets import EARLIEST as EARLIEST_OFFSET
from pyspark_raptormq.offsets import LATEST as LATEST_OFFSET
from pyspark_raptormq.offsets import QueueOffsets, TopicIds, recreated, without
from pyspark_raptormq.options import EARLIEST, Position, SourceOptions
from raptormq.client import Sql
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

log = get_logger(__name__)

_LOST_PAUSE_S = 0.5
"""Time in seconds between two requests for the brokers that are not available."""

T = TypeVar("T")


class Bounds(Protocol):
    """Requests to the brokers. Implemented by `cluster.Cluster`."""

    def topics(self) -> list[str]: ...
    def queues(self, topic: str) -> list[MessageQueue]: ...
    def brokers(self) -> set[str]: ...
    def lost_queues(self) -> list[MessageQueue]: ...
    def topic_ids(self, queues: Sequence[MessageQueue]) -> TopicIds: ...
    def min_offsets(self, queues: Sequence[MessageQueue]) -> QueueOffsets: ...
    def max_offsets(self, queues: Sequence[MessageQueue]) -> QueueOffsets: ...
    def offsets_by_time(self, queues: Sequence[MessageQueue], timestamp_ms: int) -> QueueOffsets: ...
    def bytes_per_offset(self, offsets: QueueOffsets, expression: str | Sql) -> dict[MessageQueue, float]: ...
    def stored_at(self, places: Sequence[tuple[MessageQueue, int]]) -> dict[tuple[MessageQueue, int], Stored]: ...


def selected_queues(options: SourceOptions, bounds: Bounds) -> list[MessageQueue]:
    """Return the queues to read, sorted.

    Raises:
        MissingTopic: A topic of option subscribe does not exist, and option failOnDataLoss is true.
    """
    if options.queues:
        return list(options.queues)
    topics = options.topics
    if options.topic_pattern is not None:
        pattern = re.compile(options.topic_pattern)
        topics = tuple(topic for topic in bounds.topics() if _is_for_applications(topic) and pattern.fullmatch(topic))
    queues: list[MessageQueue] = []
    for topic in topics:
        try:
            queues += bounds.queues(topic)
        except MissingTopic as error:
            # A topic that matches a pattern may be deleted between the two requests; this is not an error.
            if options.fail_on_data_loss and options.topic_pattern is None:
                raise
            log.warning("%s; the topic is skipped", error)
    return sorted(queues)


def available_queues(
    options: SourceOptions, bounds: Bounds, takes: Callable[[MessageQueue], bool]
) -> list[MessageQueue]:
    """Return the queues of a batch query, sorted. Errors are those of `check_available` and `selected_queues`."""
    while True:
        check_available(options, bounds, takes)
        queues = selected_queues(options, bounds)
        # A broker may have been lost before the routes were requested.
        if not options.fail_on_unavailable_broker or not _missing(options, bounds, takes):
            return queues


def check_available(
    options: SourceOptions,
    bounds: Bounds,
    takes: Callable[[MessageQueue], bool],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the brokers of all selected queues are registered, at most for the retry time. Without option
    failOnUnavailableBroker, log a warning with the number of missing queues.

    A route contains only available brokers, so a batch query would otherwise read a part of a topic.

    Args:
        options: the options of the query.
        bounds: requests to the brokers.
        takes: returns whether filters permit messages of a queue.
        clock: returns the time in seconds.
        pause: waits for a number of seconds.

    Raises:
        BrokerUnavailable: A broker is not registered.
    """
    deadline = clock() + (options.connection.retry_timeout_s if options.fail_on_unavailable_broker else 0.0)
    while missing := _missing(options, bounds, takes):
        topics = ", ".join(sorted({queue.topic for queue in missing}))
        brokers = ", ".join(sorted({queue.broker_name for queue in missing}))
        what = f"{len(missing)} queues of {topics} cannot be read, because {brokers} is not available"
        if not options.fail_on_unavailable_broker:
            log.warning("%s; they are skipped, because option failOnUnavailableBroker is false", what)
            return
        if clock() + _LOST_PAUSE_S > deadline:
            raise BrokerUnavailable(
                f"{what}. Start the broker, or set option failOnUnavailableBroker to false to read the other queues"
            )
        pause(_LOST_PAUSE_S)


def _missing(options: SourceOptions, bounds: Bounds, takes: Callable[[MessageQueue], bool]) -> list[MessageQueue]:
    """Return the selected queues of brokers that are not registered."""
    by_pattern = options.topic_pattern is not None
    return [
        queue
        for queue in bounds.lost_queues()
        if takes(queue) and is_named(options, queue) and not (by_pattern and not _is_for_applications(queue.topic))
    ]


def deleted_topics(options: SourceOptions, bounds: Bounds, known: QueueOffsets, there: Iterable[str]) -> list[str]:
    """Return the topics of a pattern that have offsets in `known` and were deleted, sorted: a topic is not in `there`,
    the topics with queues, although all its brokers are registered."""
    if options.topic_pattern is None:
        return []
    missing = {queue.topic for queue in known} - set(there)
    if not missing:
        return []
    up = bounds.brokers()
    missing -= {queue.topic for queue in known if queue.broker_name not in up}
    # A broker may have registered, with its topics, after `there` was requested.
    return sorted(missing - set(bounds.topics())) if missing else []


def with_topic_ids(bounds: Bounds, queues: Sequence[MessageQueue], ask: Callable[[TopicIds], T]) -> tuple[T, TopicIds]:
    """Return the result of `ask` and the topic ids. `ask` is repeated until the ids before and after it are equal, so
    that the result belongs to the topics with these ids."""
    before = bounds.topic_ids(queues)
    while True:
        answer, after = ask(before), bounds.topic_ids(queues)
        if after == before:
            return answer, after
        before = after


def without_recreated_topics(position: Position, now: TopicIds, *, fail: bool) -> Position:
    """Return a position without the offsets of topics that were recreated since.

    Raises:
        DataLoss: A topic was recreated, and `fail` is set.
    """
    changed = recreated(position.topic_ids, now)
    for place in changed:
        report_recreated(*place, fail=fail)
    return replace(position, offsets=without(position.offsets, changed)) if changed and position.offsets else position


def check_assigned(options: SourceOptions, bounds: Bounds) -> None:
    """Check that the queues of option `assign` exist. Errors are those of `check_queues`."""
    check_queues(options.queues, bounds, "option assign")


def check_queues(queues: Collection[MessageQueue], bounds: Bounds, source: str) -> None:
    """Check that queues exist that `source` names. Queues of unavailable brokers cannot be checked.

    Raises:
        OptionError: An available broker does not have the queue. It would otherwise be read as an empty queue.
        MissingTopic: A topic does not exist, or none of its brokers is available.
    """
    for topic in sorted({queue.topic for queue in queues}):
        readable = bounds.queues(topic)
        for queue in queues:
            there = [each.queue_id for each in readable if each.broker_name == queue.broker_name]
            if queue.topic == topic and there and queue.queue_id not in there:
                raise OptionError(f"{source} names {queue}; {queue.broker_name} has {len(there)} queues of {topic}")


def _is_for_applications(topic: str) -> bool:
    return not is_system_topic(topic) and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def offsets_at(position: Position, queues: Sequence[MessageQueue], bounds: Bounds, *, unnamed: str) -> QueueOffsets:
    """Return the offset of a position in every queue.

    `unnamed` (earliest or latest) applies to queues that a JSON position does not name, such as new queues.

    Raises:
        OptionError: A JSON position names a queue that is not read.
    """
    if position.timestamp_ms is not None:
        return bounds.offsets_by_time(queues, position.timestamp_ms)
    named = position.offsets if position.offsets is not None else position.timestamps
    if named is None:
        word = position.word or unnamed
        return bounds.min_offsets(queues) if word == EARLIEST else bounds.max_offsets(queues)
    for queue in named:
        if queue not in queues:
            raise OptionError(f"offsets are given for {queue}, which is not one of the queues to read")
    if position.offsets is None:
        others = [queue for queue in queues if queue not in named]
        return offsets_at(Position(word=unnamed), others, bounds, unnamed=unnamed) | _by_times(named, bounds)
    fallback = EARLIEST_OFFSET if unnamed == EARLIEST else LATEST_OFFSET
    given = {queue: position.offsets.get(queue, fallback) for queue in queues}
    smallest = bounds.min_offsets([queue for queue in queues if given[queue] == EARLIEST_OFFSET])
    largest = bounds.max_offsets([queue for queue in queues if given[queue] == LATEST_OFFSET])
    return given | smallest | largest


def _by_times(times: QueueOffsets, bounds: Bounds) -> QueueOffsets:
    found: QueueOffsets = {}
    for timestamp_ms in sorted(set(times.values())):
        found |= bounds.offsets_by_time([queue for queue in times if times[queue] == timestamp_ms], timestamp_ms)
    return found


def check_start(start: QueueOffsets, bounds: Bounds, *, fail: bool) -> QueueOffsets:
    """Return the start offsets of a stream, limited to the end offsets. Minimum offsets are checked while reading.

    Raises:
        DataLoss: A start offset is beyond the end of its queue, and `fail` is set.
    """
    largest = bounds.max_offsets(sorted(start))
    for queue, high in largest.items():
        if start[queue] > high:
            report_beyond_end(f"{queue} should be read from offset {start[queue]} but ends at {high}", fail=fail)
    return {queue: min(offset, largest[queue]) for queue, offset in start.items()}


def check_still_read(options: SourceOptions, checkpoint: QueueOffsets) -> None:
    """Check that the options still select all queues of a checkpoint. Queues that are not selected are no longer read.

    Raises:
        OptionError: A queue is not selected, and option failOnDataLoss is true.
    """
    unnamed = [queue for queue in checkpoint if not is_named(options, queue)]
    if not unnamed:
        return
    left_out = ", ".join(sorted({str(queue) if options.queues else queue.topic for queue in unnamed}))
    what = f"the checkpoint has offsets of {left_out}, which {_naming_option(options)} no longer selects"
    if options.fail_on_data_loss:
        raise OptionError(
            f"{what}: add it again, start the query with another checkpoint, or set failOnDataLoss to false to skip "
            "its unread messages"
        )
    log.warning("%s; it is no longer read, because option failOnDataLoss is false", what)


def is_named(options: SourceOptions, queue: MessageQueue) -> bool:
    """Return whether the options select a queue, regardless of whether it exists."""
    if options.queues:
        return queue in options.queues
    if options.topic_pattern is not None:
        return re.fullmatch(options.topic_pattern, queue.topic) is not None
    return queue.topic in options.topics


def _naming_option(options: SourceOptions) -> str:
    if options.queues:
        return "option assign"
    return "option subscribe" if options.topic_pattern is None else "option subscribePattern"


def check_bounds(
    start: QueueOffsets, end: QueueOffsets, bounds: Bounds, *, fail: bool
) -> tuple[QueueOffsets, QueueOffsets]:
    """Return start and end offsets of a batch, limited to the stored range of each queue.

    Raises:
        DataLoss: An offset is outside of the stored range, and `fail` is set.
    """
    queues = sorted(start)
    smallest, largest = bounds.min_offsets(queues), bounds.max_offsets(queues)
    cut_start, cut_end = dict(start), dict(end)
    for queue in queues:
        low, high = smallest[queue], largest[queue]
        if start[queue] < low:
            report_deleted(f"{queue} should be read from offset {start[queue]} but begins at {low}", fail=fail)
        if start[queue] > high:
            report_beyond_end(f"{queue} should be read from offset {start[queue]} but ends at {high}", fail=fail)
        if end[queue] > high:
            report_beyond_end(f"{queue} should be read up to offset {end[queue]} but ends at {high}", fail=fail)
        cut_start[queue] = max(start[queue], low)
        cut_end[queue] = min(end[queue], high)
    reversed_ones = [queue for queue in queues if start[queue] > end[queue]]
    if reversed_ones:
        log.warning("nothing is read from %s, whose start is after the end", ", ".join(map(str, reversed_ones)))
    return cut_start, cut_end
