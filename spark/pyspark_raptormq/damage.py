"""What happens when stored messages or batches are damaged: option `failOnDamage`.

Neighbours: `decode` and `inner_batches` find the damage and ask here whether the task may go on; `scan` keeps the count
of one task. Spark shows no metrics of Python sources, so the count is a line in the executor's log, beside one for each
damage. Like `data_loss`, whose losses are not there at all.
"""

from __future__ import annotations

from raptormq.errors import RecordError
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageQueue

log = get_logger(__name__)

_MAX_LINES = 20
"""Warnings of one task; what is damaged beyond is counted only."""


class Damage:
    """The damaged messages and batches of one task.

    Args:
        queue: what the task reads.
        fail: whether the first one ends the task.
    """

    def __init__(self, queue: MessageQueue, *, fail: bool = True) -> None:
        self.left_out = 0
        """Messages and batches that were left out."""
        self._queue = queue
        self._fail = fail

    def report(self, offset: int, error: RecordError) -> None:
        """Raise, or count, log a warning and let the caller leave out what stands at `offset`.

        Raises:
            RecordError: `fail` is set.
        """
        what = f"offset {offset} of {self._queue} is damaged: {error}"
        if self._fail:
            raise RecordError(f"{what}. Set option failOnDamage to false to go on without it") from error
        self.left_out += 1
        if self.left_out <= _MAX_LINES:
            log.warning("%s; going on without it, as option failOnDamage is false", what)

    def sum_up(self) -> None:
        """Log how much was left out, if anything was."""
        if self.left_out:
            log.warning("%s: %d damaged messages and batches were left out", self._queue, self.left_out)
