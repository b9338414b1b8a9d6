"""Progress of a stream: starts, limits, new and lost queues, restarts, with a small model of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pyspark_raptormq.connection import Connection
from pyspark_raptormq.errors import DataLoss, MissingTopic, OptionError
from pyspark_raptormq.marks import Mark, Stored
from pyspark_raptormq.offsets import QueueOffsets, ReportedEnds, StreamOffset, TopicIds, place_of, stream_offset
from pyspark_raptormq.options import Position, SourceOptions
from pyspark_raptormq.stream_progress import StreamProgress
from raptormq.client import Sql
from raptormq.errors import RequestTimeout
from raptormq.protocol.message import MessageQueue

Q0, Q1, Q2 = (MessageQueue("t", "broker-a", number) for number in range(3))
OPTIONS = SourceOptions(Connection(("127.0.0.1:1",)), topics=("t",))
LATEST = replace(OPTIONS, start=Position(word="latest"))
LENIENT = replace(OPTIONS, fail_on_data_loss=False)


class Topic:
    """The bounds of the queues of one topic."""

    def __init__(self, **bounds: tuple[int, int]) -> None:
        self.topic_id = ""
        self.history: int | None = None
        """Time at which all messages were stored; None for a broker that does not return single messages."""
        self.compared: list[tuple[MessageQueue, int]] = []
        self.sizes: dict[MessageQueue, float] = {}
        self.sampled: list[QueueOffsets] = []
        self.bounds = {MessageQueue("t", "broker-a", int(name[1:])): pair for name, pair in bounds.items()}

    def topics(self) -> list[str]:
        return [*(["t"] if self.bounds else []), "other", "%RETRY%g", "rmq_sys_x"]

    def queues(self, topic: str) -> list[MessageQueue]:
        if topic != "t":
            raise MissingTopic(topic)
        return sorted(self.bounds)

    def brokers(self) -> set[str]:
        return {"broker-a"}

    def lost_queues(self) -> list[MessageQueue]:
        return []

    def topic_ids(self, queues: Sequence[MessageQueue]) -> TopicIds:
        return {place_of(queue): self.topic_id for queue in queues if self.topic_id}

    def min_offsets(self, queues: Sequence[MessageQueue]) -> QueueOffsets:
        return {queue: self.bounds[queue][0] for queue in queues}

    def max_offsets(self, queues: Sequence[MessageQueue]) -> QueueOffsets:
        return {queue: self.bounds[queue][1] for queue in queues}

    def offsets_by_time(self, queues: Sequence[MessageQueue], timestamp_ms: int) -> QueueOffsets:
        return {queue: self.bounds[queue][0] + timestamp_ms for queue in queues}

    def stored_at(self, places: Sequence[tuple[MessageQueue, int]]) -> dict[tuple[MessageQueue, int], Stored]:
        self.compared += places
        if self.history is None:
            return {}
        return {place: Stored(place[1], self.history) for place in places if self._has(*place)}

    def _has(self, queue: MessageQueue, offset: int) -> bool:
        first, end = self.bounds.get(queue, (0, 0))
        return first <= offset < end

    def bytes_per_offset(self, offsets: QueueOffsets, expression: str | Sql) -> dict[MessageQueue, float]:
        self.sampled.append(offsets)
        return {queue: self.sizes.get(queue, 100.0) for queue in offsets}


def at(now_ms: int, topic: Topic, options: SourceOptions = LATEST) -> StreamProgress:
    """A query from "latest" that starts at a time."""
    return StreamProgress(options, topic, now_ms=lambda: now_ms)


def planned(progress: StreamProgress, start: StreamOffset, end: StreamOffset) -> list[str]:
    return [str(each) for each in progress.ranges(start, end)]


def test_a_batch_reads_from_its_start_to_the_latest_offset() -> None:
    progress = StreamProgress(OPTIONS, Topic(q0=(3, 10), q1=(0, 0)))
    start = progress.initial()
    assert start.queues == {Q0: 3, Q1: 0}
    end = progress.advance(start, None)
    assert end.queues == {Q0: 10, Q1: 0}
    assert planned(progress, start, end) == ["t@broker-a:0[3, 10)"]
    assert progress.latest == ReportedEnds({Q0: 10, Q1: 0})


def test_nothing_new_is_the_start_itself() -> None:
    progress = StreamProgress(OPTIONS, Topic(q0=(0, 0)))
    start = progress.initial()
    assert progress.advance(start, None) is start
    assert progress.ranges(start, start) == []


def test_latest_is_fixed_when_first_asked_for() -> None:
    topic = Topic(q0=(0, 10))
    progress = at(5, topic)
    first = progress.initial()
    topic.bounds[Q0] = (0, 15)
    assert progress.initial() == first == StreamOffset({Q0: 10}, {Q0: 10}, {}, 5)


def test_a_first_batch_that_is_repeated_begins_where_it_first_did() -> None:
    """Spark logs the end of batch 0 and is killed. The next run requests the initial offset again, and "latest" has
    moved.
    """
    topic = Topic(q0=(0, 10))
    run = StreamProgress(LATEST, topic)
    start = run.initial()
    topic.bounds[Q0] = (0, 25)
    logged = run.advance(start, None).to_document()
    topic.bounds[Q0] = (0, 90)
    again = StreamProgress(LATEST, topic)
    moved_on = again.initial()
    assert moved_on.queues == {Q0: 90}
    assert planned(again, moved_on, stream_offset(logged)) == ["t@broker-a:0[10, 25)"]
    following = again.advance(stream_offset(logged), None)
    assert following.start is None
    assert planned(again, stream_offset(logged), following) == ["t@broker-a:0[25, 90)"]


def test_an_empty_first_batch_keeps_the_start() -> None:
    topic = Topic(q0=(0, 10))
    run = at(5, topic)
    empty = stream_offset(run.advance(run.initial(), None).to_document())
    topic.bounds[Q0] = (0, 12)
    end = run.advance(empty, None)
    assert end == StreamOffset({Q0: 12}, {Q0: 10}, {}, 5)
    assert planned(run, empty, end) == ["t@broker-a:0[10, 12)"]


def test_the_limit_is_shared_by_the_queues() -> None:
    progress = StreamProgress(OPTIONS, Topic(q0=(0, 900), q1=(0, 100)))
    end = progress.advance(progress.initial(), 100)
    assert sum(end.queues.values()) == 100
    assert end.queues[Q1] == 10
    assert progress.latest == ReportedEnds({Q0: 900, Q1: 100}, {Q0: 0, Q1: 0})


def test_where_a_queue_begins_is_reported_while_it_is_not_read_to_its_end() -> None:
    topic = Topic(q0=(0, 400), q1=(0, 0))
    progress = StreamProgress(LENIENT, topic)
    end = progress.advance(progress.initial(), 100)
    topic.bounds[Q0] = (300, 400)
    end = progress.advance(end, 20)
    assert progress.latest == ReportedEnds({Q0: 400, Q1: 0}, {Q0: 300})
    progress.advance(end, None)
    assert progress.latest == ReportedEnds({Q0: 400, Q1: 0})


def test_a_lag_is_told_though_nobody_says_where_queues_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(q0=(0, 400))
    progress = StreamProgress(LENIENT, topic)
    start = progress.initial()

    def silent(_: Sequence[MessageQueue]) -> QueueOffsets:
        raise RequestTimeout("no response")

    monkeypatch.setattr(topic, "min_offsets", lambda queues: silent(queues) if queues else {})
    assert progress.advance(start, 20).queues == {Q0: 20}
    assert progress.latest == ReportedEnds({Q0: 400})


def test_a_new_queue_begins_at_its_first_message() -> None:
    topic = Topic(q0=(0, 10))
    progress = StreamProgress(OPTIONS, topic)
    start = progress.advance(progress.initial(), None)
    topic.bounds |= {Q1: (4, 6), Q2: (0, 0)}
    end = progress.advance(start, None)
    assert end.queues == {Q0: 10, Q1: 6}
    assert planned(progress, start, end) == ["t@broker-a:1[4, 6)"]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (Position(word="latest"), 27),
        (Position(timestamp_ms=3), 23),
        (Position(offsets={Q0: 10}, since_ms=2), 22),
        (Position(offsets={Q0: 10}), 20),
        (Position(timestamps={Q0: 4}), 20),
        (Position(word="earliest"), 20),
    ],
)
def test_a_queue_that_was_not_available_at_the_start_begins_at_the_time_of_the_start(
    start: Position, first: int
) -> None:
    topic = Topic(q0=(0, 10))
    run = at(7, topic, replace(OPTIONS, start=start))
    begun = run.advance(run.initial(), None)
    topic.bounds[Q1] = (20, 30)
    again = at(1000, topic, replace(OPTIONS, start=start))
    logged = stream_offset(begun.to_document())
    end = again.advance(logged, 1)
    assert (end.queues[Q1], planned(again, logged, end)) == (first + 1, [f"t@broker-a:1[{first}, {first + 1})"])
    last = again.advance(end, None)
    assert planned(again, end, last) == [f"t@broker-a:1[{first + 1}, 30)"]


def test_a_recreated_topic_is_read_from_its_first_message_by_a_query_from_latest() -> None:
    topic = Topic(q0=(0, 10))
    topic.topic_id = "old"
    run = at(7, topic, replace(LENIENT, start=Position(word="latest")))
    begun = run.advance(run.initial(), None)
    topic.topic_id, topic.bounds = "new", {Q0: (0, 9), Q1: (0, 9)}
    end = run.advance(begun, None)
    assert planned(run, begun, end) == ["t@broker-a:0[0, 9)", "t@broker-a:1[0, 9)"]


def test_a_queue_that_is_not_seen_keeps_its_offset() -> None:
    topic = Topic(q0=(0, 10), q1=(0, 10))
    progress = StreamProgress(OPTIONS, topic)
    start = progress.advance(progress.initial(), None)
    hidden = topic.bounds.pop(Q1)
    assert progress.advance(start, None) is start
    topic.bounds |= {Q0: (0, 11), Q1: (hidden[0], 12)}
    assert progress.advance(start, None).queues == {Q0: 11, Q1: 12}


def test_available_now_ends_while_a_producer_keeps_writing() -> None:
    topic = Topic(q0=(0, 10), q1=(0, 3))
    progress = StreamProgress(OPTIONS, topic)
    progress.freeze()
    position = progress.initial()
    read: list[str] = []
    for step in range(100):
        topic.bounds = {queue: (low, high + 50) for queue, (low, high) in topic.bounds.items()} | {Q2: (0, step)}
        end = progress.advance(position, 4)
        if end is position:
            break
        read += planned(progress, position, end)
        position = end
    assert position.queues == {Q0: 10, Q1: 3}
    assert len(read) >= 4


def test_available_now_that_starts_at_latest_reads_nothing() -> None:
    topic = Topic(q0=(0, 10))
    progress = StreamProgress(LATEST, topic)
    progress.freeze()
    topic.bounds[Q0] = (0, 20)
    start = progress.initial()
    assert start.queues == {Q0: 20}
    assert progress.advance(start, None) is start


def test_available_now_ends_when_a_queue_goes_away() -> None:
    topic = Topic(q0=(0, 10), q1=(0, 10))
    progress = StreamProgress(OPTIONS, topic)
    progress.freeze()
    start = progress.initial()
    del topic.bounds[Q1]
    end = progress.advance(start, None)
    assert end.queues == {Q0: 10, Q1: 0}
    assert progress.advance(end, None) is end
    assert progress.latest == ReportedEnds({Q0: 10, Q1: 10}, {}, frozenset({Q1}))


def lag_of(progress: StreamProgress) -> int:
    report = progress.report()
    assert report is not None
    total: int = report["offsetsBehindLatest"]["t"]["total"]
    return total


def test_unread_messages_of_a_queue_that_cannot_be_reached_count_and_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = Topic(q0=(0, 10), q1=(0, 10))
    progress = StreamProgress(OPTIONS, topic)
    end = progress.advance(progress.initial(), 8)
    hidden = topic.bounds.pop(Q1)
    for _ in range(3):
        end = progress.advance(end, None)
    assert (end.queues, lag_of(progress)) == ({Q0: 10, Q1: 4}, 6)
    warning = "1 queues cannot be reached, with at least 6 unread messages: t@broker-a:1"
    assert [each.message for each in caplog.records] == [warning]
    topic.bounds[Q1] = hidden
    end = progress.advance(end, None)
    assert (lag_of(progress), progress.latest) == (0, ReportedEnds({Q0: 10, Q1: 10}))


def test_the_ends_of_queues_beyond_the_number_of_read_queues_are_requested() -> None:
    class Shrunk(Topic):
        def queues(self, topic: str) -> list[MessageQueue]:
            return [queue for queue in super().queues(topic) if queue == Q0]

    progress = StreamProgress(OPTIONS, Shrunk(q0=(0, 10), q1=(0, 10), q2=(0, 9)))
    progress.advance(StreamOffset({Q0: 10, Q1: 4, Q2: 9}), None)
    assert progress.latest == ReportedEnds({Q0: 10, Q1: 10, Q2: 9}, {}, frozenset({Q1, Q2}))


PATTERN = replace(OPTIONS, topics=(), topic_pattern="t")


def test_a_topic_of_a_pattern_that_is_deleted_with_unread_messages_is_a_loss() -> None:
    for options, limit, unread in ((PATTERN, 8, "with at least 2 unread messages"), (PATTERN, 0, "possibly with")):
        topic = Topic(q0=(0, 10))
        run = StreamProgress(options, topic)
        end = run.advance(run.initial(), limit) if limit else StreamOffset({Q0: 8})
        topic.bounds = {}
        run = run if limit else StreamProgress(options, topic)
        with pytest.raises(DataLoss, match=f"topic t was deleted, {unread}"):
            run.advance(end, None)
        lenient = StreamProgress(replace(options, fail_on_data_loss=False), topic)
        assert lenient.advance(end, None).queues == {}


def test_a_topic_of_a_pattern_that_is_deleted_after_it_was_read_loses_its_offsets() -> None:
    topic = Topic(q0=(0, 10))
    run = StreamProgress(PATTERN, topic)
    end = run.advance(run.initial(), None)
    topic.bounds = {}
    following = run.advance(end, None)
    assert following.queues == {}
    assert run.ranges(end, following) == []
    assert run.advance(following, None) is following
    topic.bounds = {Q0: (0, 3)}
    assert run.advance(following, None).queues == {Q0: 3}


@pytest.mark.parametrize("change", ["the broker is down", "the broker registers meanwhile"])
def test_a_topic_of_a_broker_that_is_down_or_starts_is_not_deleted(change: str) -> None:
    class Starting(Topic):
        def brokers(self) -> set[str]:
            if change == "the broker is down":
                return {"broker-b"}
            self.bounds = {Q0: (0, 10)}
            return {"broker-a"}

    topic = Starting(q0=(0, 10))
    run = StreamProgress(PATTERN, topic)
    end = run.advance(run.initial(), 8)
    topic.bounds = {}
    assert run.advance(end, None) is end
    assert lag_of(run) == 2


def test_a_queue_that_shrank_is_a_loss() -> None:
    progress = StreamProgress(OPTIONS, Topic(q0=(0, 4)))
    with pytest.raises(DataLoss, match="t@broker-a:0 was read up to offset 10 but ends at 4"):
        progress.advance(StreamOffset({Q0: 10}), None)
    with pytest.raises(DataLoss, match="read up to offset 10 but ends at 4"):
        progress.ranges(StreamOffset({Q0: 10}), StreamOffset({Q0: 4}))


@pytest.mark.parametrize("limit", [None, 3])
def test_a_topic_made_anew_is_read_from_its_beginning_if_asked(limit: int | None) -> None:
    progress = StreamProgress(LENIENT, Topic(q0=(1, 4)))
    before = StreamOffset({Q0: 10})
    end = progress.advance(before, limit)
    assert end.queues == {Q0: 4}
    assert planned(progress, before, end) == ["t@broker-a:0[1, 4)"]
    assert progress.advance(end, limit) is end


def test_patterns_choose_whole_names_of_application_topics() -> None:
    by_pattern = replace(OPTIONS, topics=(), topic_pattern="t|x.*|.*RETRY.*|rmq.*")
    assert StreamProgress(by_pattern, Topic(q0=(0, 1))).initial().queues == {Q0: 0}


def test_tasks_are_cut_as_the_options_say() -> None:
    progress = StreamProgress(replace(OPTIONS, min_partitions=3), Topic(q0=(0, 9), q1=(0, 9)))
    start = progress.initial()
    assert len(progress.ranges(start, progress.advance(start, None))) == 3


def test_a_topic_that_was_made_again_is_a_loss_or_read_from_its_first_message() -> None:
    topic = Topic(q0=(0, 10), q1=(0, 10))
    topic.topic_id = "old"
    start = StreamProgress(OPTIONS, topic).initial()
    read = StreamProgress(OPTIONS, topic).advance(start, None)
    assert read.topic_ids == {("t", "broker-a"): "old"}
    topic.topic_id, topic.bounds = "new", {Q0: (2, 30)}
    with pytest.raises(DataLoss, match="topic t of broker-a was deleted and created again"):
        StreamProgress(OPTIONS, topic).advance(read, None)
    progress = StreamProgress(LENIENT, topic)
    following = progress.advance(read, 5)
    assert following == StreamOffset({Q0: 7}, None, {("t", "broker-a"): "new"})
    assert planned(progress, read, following) == ["t@broker-a:0[2, 7)"]
    first = progress.advance(start, None)
    assert first == StreamOffset({Q0: 30}, {Q0: 2}, {("t", "broker-a"): "new"})
    assert planned(progress, start, first) == ["t@broker-a:0[2, 30)"]
    topic.topic_id = "newest"
    assert planned(progress, read, following) == []


def test_a_new_topic_without_messages_replaces_what_was_known_of_the_old_one() -> None:
    topic = Topic(q0=(0, 10), q1=(0, 10))
    topic.topic_id = "old"
    progress = StreamProgress(LENIENT, topic)
    read = progress.advance(progress.initial(), None)
    topic.topic_id, topic.bounds = "new", {Q0: (0, 0)}
    empty = progress.advance(read, None)
    assert (empty.queues, empty.topic_ids) == ({Q0: 0}, {("t", "broker-a"): "new"})
    assert progress.advance(empty, None) is empty
    topic.bounds = {Q0: (0, 0), Q1: (0, 30)}
    assert planned(progress, empty, progress.advance(empty, None)) == ["t@broker-a:1[0, 30)"]


def test_an_offset_without_ids_learns_them_and_one_with_ids_keeps_them() -> None:
    topic = Topic(q0=(0, 10))
    progress = StreamProgress(OPTIONS, topic)
    unknown = progress.advance(progress.initial(), None)
    assert unknown.to_document() == {"v": 1, "q": {"t": {"broker-a": {"0": 10}}}, "s": {"t": {"broker-a": {"0": 0}}}}
    topic.topic_id = "id"
    known = progress.advance(unknown, None)
    assert known == StreamOffset({Q0: 10}, None, {("t", "broker-a"): "id"})
    assert progress.ranges(unknown, known) == []
    assert stream_offset(known.to_document()) == known
    assert progress.advance(known, None) is known
    topic.topic_id = ""
    assert progress.advance(known, None) is known
    topic.bounds[Q0] = (0, 12)
    assert progress.advance(known, None).topic_ids == {("t", "broker-a"): "id"}


def test_ends_are_asked_for_again_when_the_topic_is_made_again_meanwhile() -> None:
    class Racing(Topic):
        def max_offsets(self, queues: Sequence[MessageQueue]) -> QueueOffsets:
            found = super().max_offsets(queues)
            if self.topic_id == "old":
                self.topic_id, self.bounds = "new", {Q0: (0, 3)}
            return found

    topic = Racing(q0=(0, 10))
    topic.topic_id = "old"
    following = StreamProgress(LENIENT, topic).advance(StreamOffset({Q0: 1}, None, {("t", "broker-a"): "old"}), None)
    assert following == StreamOffset({Q0: 3}, None, {("t", "broker-a"): "new"})


def test_store_that_was_restored_and_has_grown_past_the_checkpoint_is_a_loss() -> None:
    topic = Topic(q0=(0, 10), q1=(0, 200))
    topic.history = 1
    progress = StreamProgress(OPTIONS, topic)
    read = progress.advance(progress.initial(), None)
    assert read.marks == {"broker-a": Mark(Q1, 199, Stored(199, 1))}
    topic.compared.clear()
    assert progress.advance(read, None) is read
    assert topic.compared == [], "there are no new messages"
    topic.bounds[Q0] = (0, 12)
    more = progress.advance(read, None)
    assert topic.compared == [(Q1, 199), (Q0, 11)]
    assert more.marks == {"broker-a": Mark(Q0, 11, Stored(11, 1))}
    assert planned(StreamProgress(OPTIONS, topic), read, more) == ["t@broker-a:0[10, 12)"]

    topic.bounds, topic.history = {Q0: (0, 15), Q1: (0, 300)}, 2
    reason = "offset 11 of t@broker-a:0 has another message .* was restored from a backup.* --to 2'"
    with pytest.raises(DataLoss, match=reason):
        StreamProgress(OPTIONS, topic).advance(more, None)
    with pytest.raises(DataLoss, match=reason):
        StreamProgress(OPTIONS, topic).ranges(read, more)
    after = StreamProgress(LENIENT, topic).advance(more, None)
    assert after.queues == {Q0: 15, Q1: 300}
    assert after.marks == {"broker-a": Mark(Q1, 299, Stored(299, 2))}
    assert StreamProgress(OPTIONS, topic).advance(after, None) is after


@pytest.mark.parametrize("mark", ["deleted by retention", "of a topic made again", "of a broker without answers"])
def test_mark_that_cannot_be_compared_is_no_loss(mark: str) -> None:
    topic = Topic(q0=(0, 10))
    topic.history, topic.topic_id = 1, "old"
    progress = StreamProgress(LENIENT, topic)
    read = progress.advance(progress.initial(), None)
    assert set(read.marks) == {"broker-a"}
    topic.bounds[Q0] = (11, 20) if mark == "deleted by retention" else (0, 20)
    topic.history = None if mark == "of a broker without answers" else 2
    if mark == "of a topic made again":
        topic.topic_id = "new"
    else:
        progress = StreamProgress(OPTIONS, topic)
    following = progress.advance(read, None)
    assert following.queues == {Q0: 20}
    assert (following.marks == read.marks) is (topic.history is None)


def test_bytes_are_shared_by_what_messages_are_large() -> None:
    topic = Topic(q0=(0, 900), q1=(0, 100), q2=(5, 5))
    topic.sizes = {Q0: 100.0, Q1: 1100.0}
    progress = StreamProgress(OPTIONS, topic)
    start = progress.initial()
    end = progress.advance(start, None, max_bytes=20_000)
    assert topic.sampled == [{Q0: 0, Q1: 0}]
    assert sum(end.queues.values()) - 5 == 100  # a tenth of 200,000 bytes
    assert progress.advance(start, 30, max_bytes=20_000).queues[Q0] == 27
    assert progress.advance(start, 300, max_bytes=20_000).queues == end.queues
    assert progress.advance(start, None, max_bytes=200_000).queues == {Q0: 900, Q1: 100, Q2: 5}
    one = progress.advance(start, None, max_bytes=1)
    assert sum(one.queues.values()) - 5 == 1


def test_a_batch_waits_for_enough_rows_and_not_too_long() -> None:
    now = [0.0]
    topic = Topic(q0=(0, 10), q1=(0, 0))
    progress = StreamProgress(replace(OPTIONS, max_trigger_delay_s=60.0), topic, lambda: now[0])
    first = progress.advance(progress.initial(), None, min_rows=50)
    assert first.queues == {Q0: 10, Q1: 0}  # the first batch of a run does not wait
    topic.bounds = {Q0: (0, 40), Q1: (0, 19)}
    assert progress.advance(first, None, min_rows=50) is first
    assert progress.report() is not None
    assert progress.report()["offsetsBehindLatest"]["t"]["total"] == 49  # type: ignore[index]
    topic.bounds[Q1] = (0, 20)
    second = progress.advance(first, None, min_rows=50)
    assert second.queues == {Q0: 40, Q1: 20}
    topic.bounds[Q1] = (0, 21)
    now[0] += 59
    assert progress.advance(second, None, min_rows=50) is second
    now[0] += 1
    assert progress.advance(second, None, min_rows=50).queues == {Q0: 40, Q1: 21}


def test_a_time_per_queue() -> None:
    topic = Topic(q0=(3, 10), q1=(2, 9), q2=(1, 8))
    by_time = replace(OPTIONS, start=Position(timestamps={Q0: 4, Q1: 5}))
    assert StreamProgress(by_time, topic).initial().queues == {Q0: 7, Q1: 7, Q2: 1}
    wrong = replace(OPTIONS, start=Position(timestamps={MessageQueue("t", "broker-a", 7): 4}))
    with pytest.raises(OptionError, match="offsets are given for t@broker-a:7, which is not one of"):
        StreamProgress(wrong, topic).initial()
