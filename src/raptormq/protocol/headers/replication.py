"""Headers of DESCRIBE_REPLICATION (31011), TRANSFER_LEADERSHIP (31012) and CHANGE_MEMBERS (31014), which are specific
to RaptorMQ."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class DescribeReplicationRequestHeader(Header):
    """31011: get the state of a broker group as one member sees it.

    If ``restarting`` is the id of a member, the leader also reports whether that member may be restarted. ``group`` is
    set in requests between members, and so are ``renewing``, the id of a member that wants to drop its log, and
    ``stored``, the end of that log once the member has left the group (:mod:`raptormq.broker.replication.renewal`).
    """

    restarting: str | None = None
    group: str | None = None
    renewing: str | None = None
    stored: int | None = None


@dataclass(slots=True)
class TransferLeadershipRequestHeader(Header):
    """31012: transfer leadership to the member ``to``, by default to the member with the longest log. Sent to the
    leader."""

    to: str | None = None


@dataclass(slots=True)
class ChangeMembersRequestHeader(Header):
    """31014: change one member of a group. Sent to the leader.

    ``action`` is ``add`` (a member that votes once it has caught up with the log), ``addLearner`` (a member that never
    votes), ``promote`` (make a learner a voter) or ``remove``.
    """

    member: str
    action: str
