"""Progress of a streaming query, committed as that of a consumer group for monitoring (option `consumerGroup`).

The offsets of a group decide where its members continue. A group that an application uses is therefore refused: the
application would not receive the messages that the query has read. It is in use if it has members, or if it has offsets
before a new query has committed any. A query commits nothing before it has read messages, so a query that starts again
without a checkpoint finds no offsets of its own.

Used by `stream_reader`; `cluster` sends the requests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from pyspark_raptormq.cluster import GroupUse
from pyspark_raptormq.errors import OptionError
from pyspark_raptormq.offsets import QueueOffsets, StreamOffset
from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageQueue

log = get_logger(__name__)

_SHOWN_MEMBERS = 3


class GroupRequests(Protocol):
    """Requests about a group. Implemented by `cluster.Cluster`."""

    def report(self, group: str, offsets: Mapping[MessageQueue, int]) -> list[str]: ...
    def group_use(self, group: str, queues: Collection[MessageQueue]) -> GroupUse: ...


class GroupProgress:
    """Commits of one run of a query."""

    def __init__(self, group: str, requests: GroupRequests) -> None:
        self._group = group
        self._requests = requests
        self._is_checked = False
        self._committed: QueueOffsets | None = None
        """Offsets last committed by this run."""
        self._members: list[str] = []

    def commit(self, read: StreamOffset) -> None:
        """Commit the offsets of a position. Errors of a commit are logged, also members that join later.

        Raises:
            OptionError: The group is in use when the run begins.
            TransportError, ServerError, NoRoute: A new query cannot find out whether it is.
        """
        if read.at_start:
            self._check_unused(read)
            return
        if read.queues == self._committed:
            return
        try:
            members = self._requests.report(self._group, read.queues)
        except RaptorMQError as error:
            log.warning("the progress was not committed for consumer group %s: %s", self._group, error)
            return
        if members and not self._is_checked:
            raise self._in_use(members)
        self._is_checked = True
        if members != self._members:
            if members:
                log.warning("no progress is committed for consumer group %s, which has members now", self._group)
            self._members = members
        if not members:
            self._committed = dict(read.queues)

    def _check_unused(self, start: StreamOffset) -> None:
        """Check the group of a new query."""
        if self._is_checked:
            return
        use = self._requests.group_use(self._group, start.queues)
        if use.members:
            raise self._in_use(use.members)
        if use.offsets:
            queue, offset = min(use.offsets.items())
            raise OptionError(
                f"option consumerGroup: group {self._group} has offsets that this query has not committed, such as "
                f"{offset} in {queue}. Name a group of the query's own; or, if only earlier queries have used the "
                f"group, delete it: raptormq group delete {self._group}"
            )
        self._is_checked = True

    def _in_use(self, members: list[str]) -> OptionError:
        shown = ", ".join(members[:_SHOWN_MEMBERS]) + (", …" if len(members) > _SHOWN_MEMBERS else "")
        return OptionError(
            f"option consumerGroup: group {self._group} has members ({shown}), which would not receive the messages "
            "that this query has read. Name a group of the query's own"
        )
