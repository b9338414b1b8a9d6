"""Handling of missing offsets according to option `failOnDataLoss`.

`cluster_offsets`, `stream_progress` and `scan` report losses here. Source: `failOnDataLoss` of Spark's Kafka connector.
"""

from __future__ import annotations

from pyspark_raptormq.errors import DataLoss
from pyspark_raptormq.marks import Mark
from raptormq.logs import get_logger

log = get_logger(__name__)


def report_recreated(topic: str, broker_name: str, *, fail: bool) -> None:
    """Log that a topic was recreated; the caller then starts at the first message of the new topic.

    Raises:
        DataLoss: `fail` is set.
    """
    what = f"topic {topic} of {broker_name} was deleted and created again since these offsets were stored"
    if fail:
        raise DataLoss(
            f"{what}: set option failOnDataLoss to false to continue with the first message of the new topic, "
            "or start the query with another checkpoint"
        )
    log.warning("%s; continuing with the first message of the new topic, because failOnDataLoss is false", what)


def report_restored(mark: Mark, *, fail: bool) -> None:
    """Log that a broker has another message at an offset than the query has read; the caller then continues at the
    stored offsets.

    Raises:
        DataLoss: `fail` is set.
    """
    what = (
        f"offset {mark.offset} of {mark.queue} has another message than these offsets were stored for: the store of"
        f" {mark.queue.broker_name} was restored from a backup, or has lost messages, and offsets were assigned again"
    )
    if fail:
        raise DataLoss(
            f"{what}. To read what was stored since, stop the query and set the offsets of its checkpoint with"
            f" 'raptormq spark offsets rewrite CHECKPOINT --to {mark.stored.time_ms + 1}', or set option failOnDataLoss"
            " to false to continue at the stored offsets, which skips messages"
        )
    log.warning("%s; continuing at the stored offsets, because failOnDataLoss is false", what)


def report_deleted(what: str, *, fail: bool) -> None:
    """Log that messages at the beginning of a queue are missing; the caller then skips them.

    Raises:
        DataLoss: `fail` is set.
    """
    _report(what, "Messages were deleted by retention before they were read", fail=fail)


def report_topic_deleted(topic: str, unread: int | None, *, fail: bool) -> None:
    """Log that a topic was deleted; the caller then removes its offsets. `unread` is the known number of messages that
    were not read, None if it is unknown.

    Raises:
        DataLoss: `fail` is set, and messages may be unread.
    """
    if unread == 0:
        log.info("topic %s was deleted; all its known messages were read", topic)
        return
    lost = "possibly with unread messages" if unread is None else f"with at least {unread} unread messages"
    what = f"topic {topic} was deleted, {lost}"
    if fail:
        raise DataLoss(f"{what}. Set option failOnDataLoss to false to continue without it")
    log.warning("%s; continuing without it, because failOnDataLoss is false", what)


def report_beyond_end(what: str, *, fail: bool) -> None:
    """Log that messages at the end of a queue are missing; the caller then skips them. Retention is not a possible
    cause, because it deletes only from the beginning.

    Raises:
        DataLoss: `fail` is set.
    """
    why = "The offsets belong to another topic or cluster, the topic was recreated, or its broker lost messages"
    _report(what, why, fail=fail)


def _report(what: str, why: str, *, fail: bool) -> None:
    if fail:
        raise DataLoss(f"{what}. {why}. Set option failOnDataLoss to false to skip them")
    log.warning("%s. %s; skipping them, because option failOnDataLoss is false", what, why)
