"""Body of the answer to CONVERT_QUEUE (31001): how far a broker is with the queues of a topic."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from raptormq.errors import BodyError
from raptormq.protocol.bodies.tolerant_json import dumps, loads_object


@dataclass(frozen=True, slots=True)
class QueueConversionState:
    """A topic on one broker."""

    topic: str
    queue_type: str
    """``SimpleCQ`` or ``BatchCQ``: the queues that serve."""
    phase: str
    """``none``: there was no conversion since the broker's start. ``waiting``, ``copying``, ``comparing`` and
    ``switching``: under way. ``stopped``, ``failed``: to be gone on with. ``done``, ``refused``: over.
    """
    remark: str = ""
    """Why it was refused, or has failed."""
    done: int = 0
    """Messages brought over, or compared."""
    total: int = 0
    switch_offset: int = 0
    """Log offset of the switch."""
    checksum_before: str = ""
    """SHA-256 of the old queues, hexadecimal; empty before the comparison is over."""
    checksum_after: str = ""
    """The same of the new ones."""
    target: str = ""
    """The type that the queues were to get in the last conversion; empty before there was one."""

    @property
    def is_under_way(self) -> bool:
        """Whether the broker is at work."""
        return self.phase in ("waiting", "copying", "comparing", "switching")

    def to_json(self) -> bytes:
        """Return the body."""
        return dumps(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> QueueConversionState:
        """Read the body; raises :class:`BodyError`."""
        value = loads_object(data)
        try:
            return cls(
                str(value["topic"]),
                str(value["queue_type"]),
                str(value["phase"]),
                str(value.get("remark") or ""),
                int(value.get("done") or 0),
                int(value.get("total") or 0),
                int(value.get("switch_offset") or 0),
                str(value.get("checksum_before") or ""),
                str(value.get("checksum_after") or ""),
                str(value.get("target") or ""),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BodyError(f"not the state of a conversion: {value!r:.80}") from error
