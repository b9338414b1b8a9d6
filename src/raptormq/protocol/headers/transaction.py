"""Headers of transactions: the producer's decision (37), the broker's check (39), and an administrator's request to
resume the checks (323).
"""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header, wire

NOT_DECIDED, COMMIT, ROLLBACK = 0, 8, 12
"""``commit_or_rollback``: the transaction bits of sysFlag."""


@dataclass(slots=True)
class EndTransactionRequestHeader(Header):
    """37: commit or roll back. ``tran_state_table_offset`` is the queue offset of the half message,
    ``commit_log_offset`` its log offset.
    """

    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int
    from_transaction_check: bool = False
    msg_id: str = ""
    transaction_id: str | None = None
    topic: str | None = None
    broker_name: str | None = wire("bname", None)


@dataclass(slots=True)
class CheckTransactionStateRequestHeader(Header):
    """39: the body is the half message as a stored record, with its original topic and queue. The producer responds
    with a request END_TRANSACTION (37).
    """

    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = wire("bname", None)


@dataclass(slots=True)
class ResumeCheckRequestHeader(Header):
    """323: resume the checks of the half message with the offset id ``msg_id``, even if its checks had ended without a
    decision."""

    msg_id: str
    topic: str | None = None
