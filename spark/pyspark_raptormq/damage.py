"""Handling of damaged messages and batches according to option `failOnDamage`.

`decode` and `inner_batches` report damage here. Each damage is logged on the executor, and so is the total of a task,
because Spark shows no metrics of Python sources. Missing messages are handled in `data_loss`.
"""

from __future__ import annotations

from raptormq.errors import RecordError
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageQueue

log = get_logger(__name__)

_MAX_LINES = 20
"""Maximum number of warnings per task. Further damage is only counted."""


class Damage:
    """Damaged messages and batches of one task.

    Args:
        queue: the queue that the task reads.
        fail: whether the first damage ends the task.
    """

    def __init__(self, queue: MessageQueue, *, fail: bool = True) -> None:
        self.left_out = 0
        """Number of skipped messages and batches."""
        self._queue = queue
        self._fail = fail

    def report(self, offset: int, error: RecordError) -> None:
        """Count and log damage at `offset`; the caller then skips the message or batch.

        Raises:
            RecordError: `fail` is set.
        """
        what = f"offset {offset} of {self._queue} is damaged: {error}"
        if self._fail:
            raise RecordError(f"{what}. Set option failOnDamage to false to skip it") from error
        self.left_out += 1
        if self.left_out <= _MAX_LINES:
            log.warning("%s; skipped, because option failOnDamage is false", what)

    def sum_up(self) -> None:
        """Log the number of skipped messages and batches, if any."""
        if self.left_out:
            log.warning("%s: skipped %d damaged messages and batches", self._queue, self.left_out)
