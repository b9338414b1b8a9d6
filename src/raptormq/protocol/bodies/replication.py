"""State of a replicated broker group: body of the response to DESCRIBE_REPLICATION (31011) and of ``GET
/replication``::

    {"group": "RaftNode00", "mode": "dledger", "member": "n1", "role": "leader", "term": 4, "leader": "n1",
     "address": "host:30911", "confirmedOffset": 1200, "lastOffset": 1300,
     "members": [{"id": "n0", "address": "host:40911", "role": "follower", "lagBytes": 100, "lagMillis": 3,
                  "answering": true}, ...],
     "damaged": [{"member": "n1", "offset": 700, "size": 120, "reason": "..."}, ...],
     "lost": {"begin": 0, "end": 700}, "missing": {"begin": 0, "end": 900}, "diverged": "...", "remark": "",
     "restart": {"allowed": true, "reason": "..."}, "renewal": {"allowed": true, "reason": "..."}}

``damaged`` is the damage that the reporting member has found in its commit log and that is not repaired, at most
:data:`MAX_DAMAGED` ranges. ``lost`` is the part of the commit log that the group has lost, absent if none, and
``missing`` the part that the reporting member lacks at the beginning. ``diverged`` is the reason why the member cannot
follow its group, because its store has messages that the group does not have; absent if it can. ``restart`` is present
if the request asked whether a member may be restarted, ``renewal`` if it asked whether one may drop its log
(:mod:`raptormq.broker.replication.renewal`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from raptormq.errors import BodyError
from raptormq.protocol.bodies.members import flag_at, list_at, object_at, parse_integer, text_at
from raptormq.protocol.bodies.tolerant_json import dumps, loads_object

UNREPLICATED = "none"
"""Mode of a broker without replicas."""
MASTER_SLAVE = "masterSlave"
"""Mode of a master with slaves, and of a slave. The ids of the members are their addresses."""

CAUGHT_UP_MEMBER_BYTES = 16 << 20
"""Maximum lag in bytes of a member of a group that counts as caught up. It equals the number of unconfirmed bytes that
the leader sends to a member.
"""
CAUGHT_UP_SLAVE_BYTES = 1 << 20
"""Maximum lag in bytes of a slave that counts as caught up. It covers the bytes in flight under load."""
MAX_DAMAGED = 100
"""Maximum number of damaged ranges that a member reports."""


class Damage(NamedTuple):
    """A range of the commit log of one member without valid records."""

    member: str
    """Id of the member; empty for a broker without replicas."""
    offset: int
    size: int
    reason: str


class LostRange(NamedTuple):
    """The part ``[begin, end)`` of the commit log that a group has lost."""

    begin: int
    end: int


class Verdict(NamedTuple):
    """Whether something is allowed, and the reason."""

    holds: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CopyState:
    """State of one member. Unknown values are None: only the leader knows the progress of other members."""

    id: str
    address: str
    role: str
    """``leader``, ``follower``, ``joining`` (votes once it has caught up with the log), ``learner`` (never votes), or
    ``absent``: configured, but not a member of the group or not yet one."""
    lag_bytes: int | None = None
    lag_millis: int | None = None
    """Time in ms for which the member has lacked the oldest missing byte of the log."""
    answering: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the member as a JSON value."""
        return {
            "id": self.id,
            "address": self.address,
            "role": self.role,
            "lagBytes": self.lag_bytes,
            "lagMillis": self.lag_millis,
            "answering": self.answering,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> CopyState:
        """Return the member in a JSON value. Raises :class:`BodyError`."""
        answering = value.get("answering")
        return cls(
            text_at(value, "id"),
            text_at(value, "address", ""),
            text_at(value, "role"),
            _number_or_none(value.get("lagBytes")),
            _number_or_none(value.get("lagMillis")),
            None if answering is None else flag_at(value, "answering"),
        )


@dataclass(frozen=True, slots=True)
class ReplicationState:
    """State of a broker group as one member sees it."""

    group: str
    mode: str
    """``none``, ``masterSlave`` or ``dledger``."""
    member: str
    """Id of the reporting member."""
    role: str
    """Role of the reporting member: ``leader``, ``follower``, ``joining``, ``learner``, ``candidate`` (it knows no
    leader) or ``stopped``."""
    term: int
    leader: str
    """Id of the leader; empty if it is unknown."""
    confirmed_offset: int
    """Log offset below which all records are confirmed."""
    last_offset: int
    """End of the commit log of this member."""
    address: str = ""
    """Address at which the member serves clients."""
    members: tuple[CopyState, ...] = ()
    remark: str = ""
    """Reason why the member has stopped, or what it refuses; empty if neither applies."""
    restart: Verdict | None = None
    damaged: tuple[Damage, ...] = ()
    """Known damage of the commit log of this member that is not repaired."""
    lost: LostRange | None = None
    """What the group has lost, because a member leads whose log begins after that of the group did."""
    diverged: str = ""
    """Why the store of this member does not fit its group; empty if it does."""
    missing: LostRange | None = None
    """What the log of this member lacks at its beginning and another one may have: consumers would skip it if this
    member led. Of a slave only messages that are younger than ``fileReservedTime`` count."""
    renewal: Verdict | None = None
    """Whether the member of the request may drop its log."""

    def to_json(self) -> bytes:
        """Return the body."""
        value: dict[str, Any] = {
            "group": self.group,
            "mode": self.mode,
            "member": self.member,
            "role": self.role,
            "term": self.term,
            "leader": self.leader,
            "address": self.address,
            "confirmedOffset": self.confirmed_offset,
            "lastOffset": self.last_offset,
            "members": [member.to_dict() for member in self.members],
            "damaged": [each._asdict() for each in self.damaged],
            "remark": self.remark,
        }
        if self.lost is not None:
            value["lost"] = self.lost._asdict()
        if self.diverged:
            value["diverged"] = self.diverged
        if self.missing is not None:
            value["missing"] = self.missing._asdict()
        for name, verdict in (("restart", self.restart), ("renewal", self.renewal)):
            if verdict is not None:
                value[name] = {"allowed": verdict.holds, "reason": verdict.reason}
        return dumps(value)

    @classmethod
    def from_json(cls, data: bytes) -> ReplicationState:
        """Decode the body. Raises :class:`BodyError`."""
        value = loads_object(data)
        members, damaged = _objects_at(value, "members"), _objects_at(value, "damaged")
        return cls(
            text_at(value, "group", ""),
            text_at(value, "mode"),
            text_at(value, "member", ""),
            text_at(value, "role"),
            parse_integer(value.get("term", 0)),
            text_at(value, "leader", ""),
            parse_integer(value.get("confirmedOffset", 0)),
            parse_integer(value.get("lastOffset", 0)),
            text_at(value, "address", ""),
            tuple(map(CopyState.from_dict, members)),
            text_at(value, "remark", ""),
            _verdict_at(value, "restart"),
            tuple(map(_damage, damaged)),
            _range_at(value, "lost"),
            text_at(value, "diverged", ""),
            _range_at(value, "missing"),
            _verdict_at(value, "renewal"),
        )


def _objects_at(value: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = list_at(value, name)
    if not all(isinstance(each, dict) for each in found):
        raise BodyError(f"{name} has an element that is not an object")
    return found


def _damage(value: Mapping[str, Any]) -> Damage:
    return Damage(
        text_at(value, "member", ""),
        parse_integer(value.get("offset")),
        parse_integer(value.get("size")),
        text_at(value, "reason", ""),
    )


def _verdict_at(value: Mapping[str, Any], name: str) -> Verdict | None:
    found = object_at(value, name)
    return Verdict(flag_at(found, "allowed"), text_at(found, "reason", "")) if found else None


def _range_at(value: Mapping[str, Any], name: str) -> LostRange | None:
    found = object_at(value, name)
    return LostRange(parse_integer(found.get("begin")), parse_integer(found.get("end"))) if found else None


def _number_or_none(value: Any) -> int | None:
    return None if value is None else parse_integer(value)
