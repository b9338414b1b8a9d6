"""The error tree of RaptorMQ.

All errors that the project raises deliberately derive from :class:`RaptorMQError`. The command line prints such an
error as one line (exit codes: ``raptormq.cli.exit_codes``). ``retriable`` is true if the same call may succeed when it
is repeated, possibly on another broker::

    RaptorMQError
    |- ConfigError              a setting or an option is unusable
    |- ProtocolError            the peer's bytes violate the protocol
    |  |- FrameError            length prefix or header length out of bounds
    |  |- CommandError          header bytes are neither JSON nor ROCKETMQ binary
    |  |  `- TextError          text in the header is not UTF-8
    |  |- HeaderError           a header field is missing or of the wrong type
    |  |- BodyError             a JSON body does not have the expected shape
    |  `- RecordError           a stored or batched message is truncated, damaged or has a wrong size
    |- MessageError             a message violates a rule and was not sent (topic, size, properties)
    |- FilterError              an SQL92 filter has a syntax error or is too large
    |- StorageError
    |  |- StoreLocked           another process uses the directory
    |  |- StoreReadOnly         writes are refused: volume read-only, or a flush has failed
    |  |- OutOfResources        writes are refused temporarily: no descriptors or memory
    |  |  `- DiskFull           no space for the next segment or above the configured ratio
    |  |- ConversionRefused     the queues of a topic cannot be converted to the other type
    |  |- BatchEncrypted        an encrypted batch cannot be unpacked without its key
    |  |- NotLeader             the member is a follower and accepts no messages
    |  |- SlaveNotAvailable     stored on the master, but too few slaves are in sync
    |  `- StoreDamaged          a file is damaged, and a repair would lose records
    |- TransportError
    |  |- ConnectError          the connection cannot be opened            (retriable)
    |  |- ConnectionClosed      the connection ended during the call       (retriable)
    |  |- RequestTimeout        no response within the timeout             (retriable)
    |  `- BufferFull            the peer does not read the data sent to it
    |- ServerError              the peer responded with an error code      (retriable by code)
    `- ClientError
       |- NoRoute               no broker serves the topic                 (retriable)
       |- Backpressure          too many messages are in flight             (retriable)
       |- KeyMissing            the key of an encrypted message is not available
       |- ConsumptionStopped    a consumer has stopped because it could not consume a message
       `- ClientClosed          the producer, consumer or pool was closed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

E = TypeVar("E", bound=Exception)

_SHOWN_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class SendAttempt:
    """A failed attempt to send a message."""

    broker: str | None
    """Name of the broker; None if no queue was chosen, because the topic has no route."""
    address: str | None
    """Address of the broker; None if no address of the broker is known."""
    seconds: float
    """Duration of the attempt in seconds."""
    error: str
    """Reason of the failure."""
    may_be_stored: bool
    """False if the message certainly was not stored: it was not sent, or the broker has refused it."""

    def __str__(self) -> str:
        place = " ".join(filter(None, (self.broker, self.address))) or "no broker"
        return f"{place} ({self.error}, {self.seconds:.2g} s)"


def _rebuilt(error_type: type[E], args: tuple[object, ...]) -> E:
    """Return an error with the given ``args``, without a call of ``__init__``, whose parameters may be others."""
    return error_type.__new__(error_type, *args)


class RaptorMQError(Exception):
    """Base class of all errors of the project; ``str()`` is one line for the user."""

    retriable: ClassVar[bool] = False
    attempts: tuple[SendAttempt, ...] = ()
    """The attempts of a failed send in chronological order; empty for other errors, or if no attempt was made."""

    @property
    def may_be_stored(self) -> bool:
        """Whether a message may have been stored although its send has failed: sending it again may store it twice."""
        return any(attempt.may_be_stored for attempt in self.attempts)

    def with_attempts(self, attempts: Sequence[SendAttempt]) -> Self:
        """Return a copy whose text lists the attempts and says whether a retry is safe.

        Sends that waited for the same connection or batch share one error object but made different attempts.
        """
        own = _rebuilt(type(self), self.args)
        own.__dict__.update(self.__dict__)
        own.attempts = tuple(attempts)
        own.__cause__ = self.__cause__
        return own.with_traceback(self.__traceback__)

    def after(self, earlier: Sequence[SendAttempt]) -> Self:
        """Return a copy whose attempts follow `earlier` ones: the message was sent in another form before. Without
        `earlier` attempts, return this error.
        """
        return self.with_attempts((*earlier, *self.attempts)) if earlier else self

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how ``pickle`` rebuilds the error, because ``Exception`` would call ``__init__`` with ``args``."""
        return _rebuilt, (type(self), self.args), self.__dict__

    def __str__(self) -> str:
        text, attempts = super().__str__(), self.attempts
        if not attempts:
            return text
        shown = ", ".join(map(str, attempts[-_SHOWN_ATTEMPTS:]))
        if len(attempts) > _SHOWN_ATTEMPTS:
            shown = f"the last ones {shown}"
        tried = f"{len(attempts)} attempts: {shown}" if len(attempts) > 1 else f"1 attempt: {shown}"
        retry = (
            "it may have been stored, so a retry may store it twice"
            if self.may_be_stored
            else "it was not stored, so a retry is safe"
        )
        return f"{text}; {tried}; {retry}"


class ConfigError(RaptorMQError):
    """A setting, file or option is invalid. The message contains its name and the expected value."""


class ProtocolError(RaptorMQError):
    """The peer's bytes violate the protocol."""


class FrameError(ProtocolError):
    """A frame's length or header length is out of bounds; the connection must be closed."""


class CommandError(ProtocolError):
    """A frame's header cannot be decoded."""


class TextError(CommandError):
    """A header contains text that is not UTF-8; ``code``, ``opaque`` and ``flag`` are those of its command."""

    def __init__(self, cause: ValueError, code: int, opaque: int, flag: int) -> None:
        super().__init__(f"the header has text that UTF-8 cannot hold: {cause}")
        self.code, self.opaque, self.flag = code, opaque, flag


class HeaderError(ProtocolError):
    """A header field is missing or does not have the declared type."""


class BodyError(ProtocolError):
    """A body does not have the expected shape."""


class RecordError(ProtocolError):
    """A message record is truncated, damaged or of an unknown format."""


class ChecksumError(RecordError):
    """The CRC of a record's body is wrong, although all lengths of the record are consistent."""


class WrongKey(RecordError):
    """An encrypted body is damaged, or was encrypted with another key."""


class BodyTooLarge(RecordError):
    """A decompressed body would exceed the caller's limit."""


class MessageError(RaptorMQError):
    """A message violates a rule of the broker and was not sent."""


class FilterError(RaptorMQError):
    """An SQL92 filter has a syntax error, or exceeds the limits of size or depth."""


class StorageError(RaptorMQError):
    """Base class of the storage errors."""


class NotLeader(StorageError):
    """This member of a broker group is a follower and accepts no messages. Messages that it accepted as leader and did
    not confirm may be lost; they have to be sent to the leader again.
    """


class SlaveNotAvailable(StorageError):
    """A message is stored on the master, but too few slaves are in sync: they are not connected or lag too far."""


class StoreLocked(StorageError):
    """Another process holds the store's lock file."""


class StoreReadOnly(StorageError):
    """The store accepts no writes: the volume is read-only, or an earlier write or flush failed."""


class OutOfResources(StorageError):
    """The process or the machine lacks descriptors or memory for a write, and nothing was written. The call may be
    repeated.
    """


class DiskFull(OutOfResources):
    """The volume has no space for the next record."""


class BatchEncrypted(StorageError):
    """A batch must be unpacked for its reader, but is encrypted."""


class ConversionRefused(StorageError):
    """The queues of a topic cannot be converted to the other queue type. The message contains the reason."""


class StoreDamaged(StorageError):
    """A file is damaged, and a repair would lose acknowledged records."""


class NoValidCopy(StorageError):
    """A copy of the log does not have valid records for a range, or no copy has them."""


class RecordsDamaged(StorageError):
    """The records of a read are damaged, and may be repaired from another copy of the log. The read may be retried."""


class TransportError(RaptorMQError):
    """Base class of the network errors."""


class ConnectError(TransportError):
    """No connection to the address could be opened."""

    retriable = True


class ConnectionClosed(TransportError):
    """The connection ended before the response arrived."""

    retriable = True


class RequestTimeout(TransportError):
    """No response arrived within the timeout."""

    retriable = True


class BufferFull(TransportError):
    """The peer does not read the data sent to it; no more data is queued."""


class ServerError(RaptorMQError):
    """The peer responded with an error.

    ``code`` is the response code (:class:`raptormq.protocol.codes.ResponseCode` where known), ``remark`` the peer's
    text.
    """

    def __init__(self, code: int, remark: str | None, peer: str = "") -> None:
        where = f" from {peer}" if peer else ""
        super().__init__(f"code {code}{where}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark or ""


class ClientError(RaptorMQError):
    """Base class of the errors about the state of the client."""


class ConsumptionStopped(ClientError):
    """A consumer has stopped because a message could not be consumed, as configured."""


class NoRoute(ClientError):
    """No name server knows a broker for the topic."""

    retriable = True

    @classmethod
    def to(cls, topic: str) -> Self:
        """Return the error for a topic without a route."""
        return cls(f"no route for topic {topic}: it does not exist or no broker that has it is up")


class Backpressure(ClientError):
    """The producer has reached its limit of messages in flight, and the message was not sent. Send it again when other
    sends have completed.
    """

    retriable = True


class KeyMissing(ClientError):
    """A message is encrypted with a key that this client does not have, or there are no keys to encrypt with."""


class ClientClosed(ClientError):
    """The producer, consumer or pool was closed."""
