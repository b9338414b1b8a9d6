"""Body of the response to CONVERT_QUEUE (31001): the progress of a conversion of a topic's queues."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from raptormq.errors import BodyError
from raptormq.protocol.bodies.tolerant_json import dumps, loads_object


@dataclass(frozen=True, slots=True)
class QueueConversionState:
    """State of the conversion of a topic on one broker."""

    topic: str
    queue_type: str
    """``SimpleCQ`` or ``BatchCQ``: the type of the queues in use."""
    phase: str
    """``none``: no conversion since the broker's start. ``waiting``, ``copying``, ``comparing`` and ``switching``: in
    progress. ``stopped``, ``failed``: can be resumed. ``done``, ``refused``: finished.
    """
    remark: str = ""
    """Reason why the conversion was refused or has failed; empty otherwise."""
    done: int = 0
    """Messages copied or compared so far."""
    total: int = 0
    switch_offset: int = 0
    """Log offset of the switch."""
    checksum_before: str = ""
    """SHA-256 of the old queues, hexadecimal; empty until the comparison is finished."""
    checksum_after: str = ""
    """SHA-256 of the new queues, like ``checksum_before``."""
    target: str = ""
    """Target type of the last conversion; empty if there was none."""

    @property
    def is_under_way(self) -> bool:
        """Whether the conversion is in progress."""
        return self.phase in ("waiting", "copying", "comparing", "switching")

    def to_json(self) -> bytes:
        """Return the body."""
        return dumps(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> QueueConversionState:
        """Decode the body. Raises :class:`BodyError`."""
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
