"""Messages as applications see them: :class:`Message` to send, :class:`MessageExt` received, :class:`MessageQueue` in
between.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from raptormq.errors import MessageError
from raptormq.protocol import properties as names

DELAY_PROPERTIES = frozenset({names.DELAY, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS})
"""Names of the properties that delay a message."""
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker; the order (topic, broker, queue) is the one that rebalancing relies on."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


@dataclass(frozen=True, slots=True)
class Delay:
    """When a message is to be delivered: made by one of the three methods.

    Raises:
        MessageError: no such property, or its value is no number of 64 bits.
    """

    property_name: str
    value: int

    def __post_init__(self) -> None:
        if self.property_name not in DELAY_PROPERTIES:
            raise MessageError(f"{self.property_name!r} delays no message; use by, by_level or until of Delay")
        value: object = self.value
        if not isinstance(value, int) or value not in _INT64:
            raise MessageError(f"a delay is a whole number of 64 bits, not {value!r}")

    @classmethod
    def by_level(cls, level: int) -> Delay:
        """After the delay of a level of the broker, from 1 (1 s) to 18 (2 h) as brokers are delivered.

        Raises:
            MessageError: no number, or a level below 1.
        """
        delay = cls(names.DELAY, level)
        if level < 1:
            raise MessageError(f"{level} is no delay level, the first one is 1")
        return delay

    @classmethod
    def by(cls, seconds: float) -> Delay:
        """After so many seconds, counted from when the broker has the message; 0 or less is no delay.

        Raises:
            MessageError: no number.
        """
        try:
            milliseconds = round(seconds * 1000)
        except (TypeError, ValueError, OverflowError):  # text, NaN, infinity
            raise MessageError(f"a delay is a number of seconds, not {seconds!r}") from None
        return cls(names.TIMER_DELAY_MS, milliseconds)

    @classmethod
    def until(cls, timestamp_ms: int) -> Delay:
        """At a time, in milliseconds since 1970; a time that has passed is no delay.

        Raises:
            MessageError: no whole number.
        """
        return cls(names.TIMER_DELIVER_MS, timestamp_ms)


@dataclass(slots=True)
class Message:
    """A message to send.

    ``tags`` is the one word brokers filter by, without ``||``; ``keys`` are the words it can be found by, without
    spaces; ``properties`` are the application's own. With ``wait_stored`` false the broker answers before the message
    is flushed or replicated. With ``delay`` consumers get it later.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    wait_stored: bool = True
    delay: Delay | None = None

    def all_properties(self) -> dict[str, str]:
        """Application properties and the system's own, as they travel."""
        merged = dict(self.properties)
        if self.keys:
            merged[names.KEYS] = names.KEY_SEPARATOR.join(self.keys)
        if self.tags:
            merged[names.TAGS] = self.tags
        if self.delay:
            merged[self.delay.property_name] = str(self.delay.value)
        merged[names.WAIT] = "true" if self.wait_stored else "false"
        return merged


@dataclass(slots=True)
class MessageExt:
    """A message as it was stored, with where it is.

    ``message_id`` is the producer's unique key where there is one, else the offset id; times are milliseconds since
    1970; ``body`` is decompressed. ``properties`` are all there are, the system's too, ``user_properties`` the
    application's own.
    """

    topic: str
    body: bytes
    properties: dict[str, str]
    queue: MessageQueue
    queue_offset: int
    physical_offset: int
    message_id: str
    offset_message_id: str
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int = 0
    flag: int = 0
    sys_flag: int = 0

    @property
    def tags(self) -> str | None:
        """The tag, or ``None``."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, possibly none."""
        words = self.properties.get(names.KEYS, "").split(names.KEY_SEPARATOR)
        return tuple(word for word in words if word)

    @property
    def user_properties(self) -> dict[str, str]:
        """The application's own properties alone: what a message that is sent on can take along."""
        return {name: value for name, value in self.properties.items() if name not in names.SYSTEM}
