"""Messages in the client API: :class:`Message` is sent, :class:`MessageExt` is received, :class:`MessageQueue` is a
queue that stores messages.
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
    """One queue of a topic on one broker. Rebalancing relies on the order (topic, broker, queue)."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


@dataclass(frozen=True, slots=True)
class Delay:
    """When a message is delivered. Create it with one of the three class methods.

    Raises:
        MessageError: the property is not a delay, or its value is not a 64-bit integer.
    """

    property_name: str
    value: int

    def __post_init__(self) -> None:
        if self.property_name not in DELAY_PROPERTIES:
            raise MessageError(
                f"{self.property_name!r} is not a delay property; use Delay.by, Delay.by_level or Delay.until"
            )
        value: object = self.value
        if not isinstance(value, int) or value not in _INT64:
            raise MessageError(f"the delay must be a 64-bit integer, not {value!r}")

    @classmethod
    def by_level(cls, level: int) -> Delay:
        """Deliver after the delay of a level of the broker: by default from 1 (1 s) to 18 (2 h).

        Raises:
            MessageError: ``level`` is not an integer or is below 1.
        """
        delay = cls(names.DELAY, level)
        if level < 1:
            raise MessageError(f"{level} is not a delay level; the first level is 1")
        return delay

    @classmethod
    def by(cls, seconds: float) -> Delay:
        """Deliver this many seconds after the broker has received the message. 0 or less means no delay.

        Raises:
            MessageError: ``seconds`` is not a number.
        """
        try:
            milliseconds = round(seconds * 1000)
        except (TypeError, ValueError, OverflowError):  # text, NaN, infinity
            raise MessageError(f"the delay must be a number of seconds, not {seconds!r}") from None
        return cls(names.TIMER_DELAY_MS, milliseconds)

    @classmethod
    def until(cls, timestamp_ms: int) -> Delay:
        """Deliver at a time, in milliseconds since 1970. A time in the past means no delay.

        Raises:
            MessageError: ``timestamp_ms`` is not an integer.
        """
        return cls(names.TIMER_DELIVER_MS, timestamp_ms)


@dataclass(slots=True)
class Message:
    """A message to send.

    ``tags`` is the single tag by which brokers filter, without ``||``. ``keys`` are the words by which the message can
    be found, without spaces. ``properties`` are those of the application. If ``wait_stored`` is false, the broker
    responds before the message is flushed or replicated. ``delay`` defers the delivery to consumers. ``priority``, 0 or
    greater, selects the queue of a topic with ``message.type=PRIORITY``: the highest is popped first (RIP-80). A
    delayed, ordered or transactional message loses its priority.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    wait_stored: bool = True
    delay: Delay | None = None
    priority: int | None = None

    @property
    def is_individual(self) -> bool:
        """Whether the message cannot be part of a batch, because it is delayed or has a priority."""
        properties = self.properties
        return (
            self.delay is not None
            or self.priority is not None
            or bool(properties and not DELAY_PROPERTIES.isdisjoint(properties))
        )

    def all_properties(self) -> dict[str, str]:
        """Return the properties of the application and of the system, as they are sent."""
        merged = dict(self.properties)
        if self.keys:
            merged[names.KEYS] = names.KEY_SEPARATOR.join(self.keys)
        if self.tags:
            merged[names.TAGS] = self.tags
        if self.delay:
            merged[self.delay.property_name] = str(self.delay.value)
        if self.priority is not None:
            merged[names.PRIORITY] = str(self.priority)
        merged[names.WAIT] = "true" if self.wait_stored else "false"
        return merged


@dataclass(slots=True)
class MessageExt:
    """A received message with its position.

    ``message_id`` is the unique key of the producer or, without one, the offset id. Times are milliseconds since 1970.
    ``body`` is decompressed. ``properties`` has all properties, including those of the system; ``user_properties`` has
    those of the application.
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
        """The properties of the application alone: those that a forwarded message can keep."""
        return {name: value for name, value in self.properties.items() if name not in names.SYSTEM}
