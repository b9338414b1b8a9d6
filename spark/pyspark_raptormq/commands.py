"""Command group `raptormq spark`, registered by the entry point `raptormq.commands`.

`raptormq spark offsets` shows, compares and rewrites the offsets in checkpoints of streaming queries, in local or
mounted file systems. Uses `checkpoint` for the files and `cluster` for requests to brokers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from pyspark_raptormq.checkpoint import Checkpoint, LoggedBatch
from pyspark_raptormq.cluster import Cluster
from pyspark_raptormq.cluster_offsets import check_queues
from pyspark_raptormq.connection import Connection
from pyspark_raptormq.errors import CheckpointError, OffsetFormatError, OptionError
from pyspark_raptormq.offsets import (
    EARLIEST,
    LATEST,
    QueueOffsets,
    ReportedEnds,
    StreamOffset,
    TopicIds,
    parse_offsets,
    place_of,
)
from raptormq.cli.confirming import confirm
from raptormq.cli.options import output_option, start_position
from raptormq.cli.output import print_json, print_table
from raptormq.client.config import parse_addresses
from raptormq.protocol.message import MessageQueue

_folder = click.Path(exists=True, file_okay=False, path_type=Path)
_name_servers = click.option(
    "-n", "--namesrv", "name_servers", metavar="HOST:PORT[;HOST:PORT]", envvar="NAMESRV_ADDR", help="Name servers."
)


@click.group(
    epilog="""\b
Examples:
  raptormq spark offsets show /checkpoints/flights
  raptormq spark offsets diff /checkpoints/flights -n 127.0.0.1:9876"""
)
def spark() -> None:
    """Manage streaming queries of Spark."""


@spark.group(
    epilog="""\b
Examples:
  raptormq spark offsets show /checkpoints/flights
  raptormq spark offsets diff /checkpoints/flights
  raptormq spark offsets rewrite /checkpoints/flights --to 2026-05-01T12:00:00Z -n 127.0.0.1:9876"""
)
def offsets() -> None:
    """Show, compare and rewrite the offsets in checkpoints."""


@offsets.command(
    epilog="""\b
Examples:
  raptormq spark offsets show /checkpoints/flights
  raptormq spark offsets show /checkpoints/flights --batch 17 -o json"""
)
@click.argument("checkpoint", type=_folder)
@click.option("--batch", type=click.IntRange(0), help="Batch number. Default: the last batch.")
@output_option
def show(checkpoint: Path, batch: int | None, output: str) -> None:
    """Show the end of a batch: the next offset of each queue.

    A batch that is not committed is repeated when the query restarts.
    """
    log = Checkpoint(checkpoint)
    logged = log.read(batch)
    found = _ours(logged)
    if output == "json":
        documents = {str(number): offset.to_document() for number, offset in found.items()}
        print_json({"batch": logged.number, "committed": log.is_committed(logged.number), "sources": documents})
        return
    click.echo(f"batch {logged.number}, {'committed' if log.is_committed(logged.number) else 'not committed'}")
    print_table(
        ["source", "topic", "broker", "queue", "offset"],
        ((number, *_cells(queue), at) for number, each in found.items() for queue, at in sorted(each.queues.items())),
    )


@offsets.command(
    epilog="""\b
Examples:
  raptormq spark offsets diff /checkpoints/flights
  raptormq spark offsets diff /checkpoints/flights /backup/flights -o json
  raptormq spark offsets diff /checkpoints/flights -n 127.0.0.1:9876"""
)
@click.argument("checkpoint", type=_folder)
@click.argument("other", type=_folder, required=False)
@_name_servers
@output_option
def diff(checkpoint: Path, other: Path | None, name_servers: str | None, output: str) -> None:
    """Compare the last batch with the previous batch, with another checkpoint, or with the brokers (-n).

    In a comparison with the brokers, lag counts stored messages that were not read yet, and lost counts messages that
    were deleted before they were read.
    """
    log = Checkpoint(checkpoint)
    last = _ours(log.read())
    if other is None and name_servers:
        with_brokers(last, name_servers, output)
        return
    if other is not None:
        before, what = _ours(Checkpoint(other).read()), str(other)
    else:
        known = log.batches()
        if len(known) < 2:
            raise CheckpointError(f"{checkpoint} has only one batch: give another checkpoint, or name servers with -n")
        before, what = _ours(log.read(known[-2])), f"batch {known[-2]}"
    rows: list[tuple[int, str, str, int, int | None, int | None, int | None]] = []
    for number in sorted({*last, *before}):
        old, new = _queues(before, number), _queues(last, number)
        for queue in sorted({*old, *new}):
            was, now = old.get(queue), new.get(queue)
            if was != now:
                moved = None if was is None or now is None else now - was
                rows.append((number, *_cells(queue), was, now, moved))
    columns = ["source", "topic", "broker", "queue", "before", "after", "difference"]
    if output == "json":
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns, rows)
    else:
        click.echo(f"no difference from {what}")


def with_brokers(last: Mapping[int, StreamOffset], name_servers: str, output: str) -> None:
    """Print the lag of a batch behind the brokers."""
    cluster = _cluster(name_servers)
    try:
        rows = [
            (number, *_cells(queue), each.queues[queue], first[queue], end[queue], lag.waiting, lag.lost)
            for number, each in last.items()
            for first, end in [_bounds(cluster, each.queues)]
            for queue, lag in sorted(ReportedEnds(end, first).behind(each.queues).items())
        ]
    finally:
        cluster.close()
    columns = ["source", "topic", "broker", "queue", "offset", "first", "end", "lag", "lost"]
    if output == "json":
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


@offsets.command(
    epilog="""\b
Examples:
  raptormq spark offsets rewrite /checkpoints/flights --to earliest -n 127.0.0.1:9876
  raptormq spark offsets rewrite /checkpoints/flights --to '{"flights": {"broker-a": {"0": 123}}}' --yes"""
)
@click.argument("checkpoint", type=_folder)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="JSON|earliest|latest|TIME",
    help="Offsets in the format of option startingOffsets, or a position for all queues (requires -n).",
)
@click.option("--source", type=click.IntRange(0), default=0, show_default=True, help="Number of the query's source.")
@_name_servers
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rewrite(checkpoint: Path, target: str, source: int, name_servers: str | None, yes: bool) -> None:
    """Change the offsets from which a stopped query continues.

    The last batch must be committed. Queues that are not in the JSON text keep their offsets. With -n the offsets of
    the JSON text must be in the queues, which may be newer than the checkpoint; without -n only the names of the queues
    are checked. The original file is kept in the checkpoint's folder offsets-before-rewrite. The state of the query
    (aggregations, deduplication) is not changed.
    """
    log = Checkpoint(checkpoint)
    logged = log.read()
    if not log.is_committed(logged.number):
        raise CheckpointError(
            f"batch {logged.number} is not committed, so Spark will repeat it. Start the query, wait until the batch "
            "is committed, then stop the query"
        )
    known = _ours(logged)
    if source not in known:
        raise CheckpointError(f"source {source} of {checkpoint} is not a RaptorMQ source; these are: {_listed(known)}")
    before = known[source]
    wanted, ids = _wanted(target, before, name_servers)
    after = StreamOffset(before.queues | wanted, None, _ids_after(before.topic_ids, wanted, ids), before.since_ms)
    confirm(f"Rewrite {sum(before.queues.get(q) != o for q, o in wanted.items())} offsets of {checkpoint}?", yes=yes)
    lines = list(logged.sources)
    lines[source] = json.dumps(after.to_document())
    backup = log.rewrite(logged, lines)
    click.echo(f"rewrote batch {logged.number}; the original file is {backup}")


def _wanted(target: str, before: StreamOffset, name_servers: str | None) -> tuple[QueueOffsets, TopicIds]:
    """Return the offsets of a target, and the topic ids that it names."""
    ids: TopicIds = {}
    if target.lstrip().startswith("{"):
        try:
            given, ids, _ = parse_offsets(target)
        except OffsetFormatError as error:
            raise click.BadParameter(str(error), param_hint="--to") from error
        _check_named(given, before, queues_too=not name_servers)
        if not name_servers and not any(offset in (EARLIEST, LATEST) for offset in given.values()):
            return given, ids
        place: str | int | None = None
    else:
        given, place = dict.fromkeys(before.queues, EARLIEST), start_position(target)
    if not name_servers:
        raise click.UsageError("this position must be requested from the brokers: give name servers with -n")
    cluster = _cluster(name_servers)
    try:
        if isinstance(place, int):
            return cluster.offsets_by_time(given, place), ids
        if place == "latest":
            given = dict.fromkeys(given, LATEST)
        if place is None:
            _check_stored(given, cluster)
        first = cluster.min_offsets([queue for queue, offset in given.items() if offset == EARLIEST])
        end = cluster.max_offsets([queue for queue, offset in given.items() if offset == LATEST])
        return given | first | end, ids
    finally:
        cluster.close()


def _check_named(given: QueueOffsets, before: StreamOffset, *, queues_too: bool) -> None:
    """Check that the checkpoint has the topics, or the queues, of a JSON text.

    Raises:
        BadParameter: It does not have one of them.
    """
    topics = {queue.topic for queue in before.queues}
    for queue in sorted(given):
        if queue.topic not in topics:
            what = f"the checkpoint has no offsets of topic {queue.topic}; it has those of {_listed(sorted(topics))}"
            raise click.BadParameter(what, param_hint="--to")
        if queues_too and queue not in before.queues:
            what = f"the checkpoint has no offset of {queue}; if the queue is new, give name servers with -n"
            raise click.BadParameter(what, param_hint="--to")


def _check_stored(given: QueueOffsets, cluster: Cluster) -> None:
    """Check that the brokers have the queues and offsets of a JSON text.

    Raises:
        BadParameter: A broker does not have a queue, or an offset is before its first message or beyond its end.
        MissingTopic: A topic does not exist.
    """
    try:
        check_queues(given, cluster, "the JSON text")
    except OptionError as error:
        raise click.BadParameter(str(error), param_hint="--to") from error
    offsets = {queue: offset for queue, offset in given.items() if offset not in (EARLIEST, LATEST)}
    first, end = _bounds(cluster, offsets)
    for queue, offset in sorted(offsets.items()):
        if not first[queue] <= offset <= end[queue]:
            what = f"{queue} has the offsets {first[queue]} to {end[queue]}, not {offset}"
            raise click.BadParameter(what, param_hint="--to")


def _ids_after(before: TopicIds, wanted: QueueOffsets, given: TopicIds) -> TopicIds:
    """Return the topic ids after a rewrite. Rewritten offsets may belong to a recreated topic, so their ids are dropped
    unless the target has ids."""
    rewritten = {place_of(queue) for queue in wanted}
    return {place: topic_id for place, topic_id in before.items() if place not in rewritten} | given


def _ours(logged: LoggedBatch) -> dict[int, StreamOffset]:
    found = logged.offsets()
    if not found:
        raise CheckpointError(f"batch {logged.number} has no offsets of RaptorMQ: the query has only other sources")
    return found


def _queues(found: Mapping[int, StreamOffset], number: int) -> QueueOffsets:
    return found[number].queues if number in found else {}


def _cells(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _listed(numbers: Iterable[Any]) -> str:
    return ", ".join(map(str, numbers))


def _bounds(cluster: Cluster, queues: QueueOffsets) -> tuple[QueueOffsets, QueueOffsets]:
    return cluster.min_offsets(queues), cluster.max_offsets(queues)


def _cluster(name_servers: str) -> Cluster:
    return Cluster(Connection(parse_addresses(name_servers), request_timeout_s=3.0, retry_timeout_s=3.0))
