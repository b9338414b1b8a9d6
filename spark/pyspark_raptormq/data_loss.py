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


def report_data_loss(what: str, *, fail: bool) -> None:
    """Raise, or log a warning and let the caller leave the lost offsets out.

    Raises:
        DataLoss: `fail` is set.
    """
    if fail:
        raise DataLoss(
            f"{what}. Messages were deleted by retention, or the topic was deleted, before they were read. "
            "Set option failOnDataLoss to false to go on without them"
        )
    log.warning("%s; going on without them, as option failOnDataLoss is false", what)
