"""What happens when offsets that should be read are not there: option `failOnDataLoss`.

Neighbours: `cluster_offsets`, `stream_progress` and `scan` find losses and ask here whether the query may go on.
Source: `failOnDataLoss` of Spark's Kafka connector.
"""

from __future__ import annotations

from pyspark_raptormq.errors import DataLoss
from raptormq.logs import get_logger

log = get_logger(__name__)


def report_made_again(topic: str, broker_name: str, *, fail: bool) -> None:
    """Raise, or log a warning and let the caller begin at the first message of the new topic.

    Raises:
        DataLoss: `fail` is set.
    """
    what = f"topic {topic} of {broker_name} was deleted and made again since these offsets were remembered"
    if fail:
        raise DataLoss(
            f"{what}: set option failOnDataLoss to false to go on with the first message of the new topic, "
            "or start the query with another checkpoint"
        )
    log.warning("%s; going on with the first message of the new topic, as option failOnDataLoss is false", what)


def report_deleted(what: str, *, fail: bool) -> None:
    """Raise, or log a warning and let the caller leave out what is missing at the beginning of a queue.

    Raises:
        DataLoss: `fail` is set.
    """
    _report(what, "Messages were deleted by retention before they were read", fail=fail)


def report_beyond_end(what: str, *, fail: bool) -> None:
    """Raise, or log a warning and let the caller leave out what is missing at the end of a queue: nothing that is
    stored is ever taken away there by retention.

    Raises:
        DataLoss: `fail` is set.
    """
    why = "The offsets are of another topic or cluster, or the topic was made again, or its broker has lost messages"
    _report(what, why, fail=fail)


def _report(what: str, why: str, *, fail: bool) -> None:
    if fail:
        raise DataLoss(f"{what}. {why}. Set option failOnDataLoss to false to go on without them")
    log.warning("%s. %s; going on without them, as option failOnDataLoss is false", what, why)
