"""Headers of STAGE_BATCH (31031) and COMMIT_STAGED (31032), which are specific to RaptorMQ."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header, wire


@dataclass(slots=True)
class StageBatchRequestHeader(Header):
    """31031: store a list of messages (320) without delivering them. The other fields are those of 320 in V2."""

    query: str
    """Id of the writer, such as a streaming query: at most 128 letters, digits and ``_.:-``."""
    batch: int
    """Number of the batch, from 0. The batches of a query are committed in ascending order."""
    topic: str = wire("b")


@dataclass(slots=True)
class StageBatchResponseHeader(Header):
    """31031: the offset that identifies the staged list at this broker."""

    staged_offset: int


@dataclass(slots=True)
class CommitStagedRequestHeader(Header):
    """31032: publish the lists in the body (:mod:`raptormq.protocol.bodies.staging`)."""

    query: str
    batch: int
    topic: str | None = None
    """The topic to which the query writes, empty if its rows name their topics. The first commit of a batch stores it,
    and a repeated commit for another topic is refused. Older clients do not send it.
    """


@dataclass(slots=True)
class CommitStagedResponseHeader(Header):
    """31032. The body is the decision in effect, possibly that of an earlier request. It is empty if a later batch of
    the query is published; the lists of the request are then not published.
    """

    is_published: bool
    """False while the broker is still publishing; repeat the request."""
    message_count: int
    """Number of messages published so far."""
