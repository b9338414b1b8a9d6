"""The error tree of RaptorMQ.

Everything the project raises on purpose derives from :class:`RaptorMQError`; the command line turns any of it into one
line and exit code 2. ``retriable`` says whether the same call may succeed when it is simply made again (perhaps on
another broker)::

    RaptorMQError
    |- ConfigError              a setting or an option is unusable
    |- ProtocolError            the peer's bytes are not what the protocol allows
    |  |- FrameError            length prefix or header length out of bounds
    |  |- CommandError          header bytes are neither JSON nor ROCKETMQ binary
    |  |  `- TextError          but for text that UTF-8 cannot hold they are
    |  |- HeaderError           a header field is missing or of the wrong type
    |  |- BodyError             a JSON body does not have the expected shape
    |  `- RecordError           a stored or batched message is cut, damaged or lies about its size
    |- MessageError             a message breaks a rule before anything is sent (topic, size, properties)
    |- FilterError              an SQL92 filter cannot be understood or is too large
    |- StorageError
    |  |- StoreLocked           another process uses the directory
    |  |- StoreReadOnly         writes are refused: volume read-only, or a flush has failed
    |  |- OutOfResources        writes are refused for now: no descriptor or memory left
    |  |  `- DiskFull           no space for the next segment or above the configured ratio
    |  |- ConversionRefused     the queues of a topic cannot become those of the other type
    |  |- BatchEncrypted       a batch is to be taken apart that only consumers with its key can
    |  |- NotLeader             the member follows another one of its group and takes no messages
    |  `- StoreDamaged          a file is not what its format says, and repair would lose records
    |- TransportError
    |  |- ConnectError          nobody answers at the address              (retriable)
    |  |- ConnectionClosed      the peer went away during the call         (retriable)
    |  |- RequestTimeout        no answer in time                          (retriable)
    |  `- BufferFull            the peer does not read what it is owed
    |- ServerError              the peer answered with an error code       (retriable by code)
    `- ClientError
       |- NoRoute               no broker serves the topic                 (retriable)
       |- Backpressure            too many messages are in flight           (retriable)
       |- KeyMissing            a message is encrypted with a key that is not there
       |- ConsumptionStopped    a consumer has stopped at a message that it could not consume
       `- ClientClosed          the producer, consumer or pool was closed
"""

from __future__ import annotations

from typing import ClassVar, Self


class RaptorMQError(Exception):
    """Root of all errors raised on purpose; ``str()`` is one line a user understands."""

    retriable: ClassVar[bool] = False


class ConfigError(RaptorMQError):
    """A setting, file or option is unusable; the text names it and says what is expected."""


class ProtocolError(RaptorMQError):
    """The peer's bytes break the protocol."""


class FrameError(ProtocolError):
    """A frame's length or header length is out of bounds; the connection cannot be used any more."""


class CommandError(ProtocolError):
    """A frame's header cannot be decoded."""


class TextError(CommandError):
    """A header has text that UTF-8 cannot hold; ``code``, ``opaque`` and ``flag`` are those of its command."""

    def __init__(self, cause: ValueError, code: int, opaque: int, flag: int) -> None:
        super().__init__(f"the header has text that UTF-8 cannot hold: {cause}")
        self.code, self.opaque, self.flag = code, opaque, flag


class HeaderError(ProtocolError):
    """A header field is missing or does not have the declared type."""


class BodyError(ProtocolError):
    """A body does not have the expected shape."""


class RecordError(ProtocolError):
    """A message record is cut, damaged or of an unknown format."""


class ChecksumError(RecordError):
    """The body of a record, all lengths of which are right, does not have the CRC that the record names."""


class WrongKey(RecordError):
    """An encrypted body is damaged, or was encrypted with another key."""


class BodyTooLarge(RecordError):
    """A compressed body grows beyond what the caller allows."""


class MessageError(RaptorMQError):
    """A message breaks a rule of the broker and was not sent."""


class FilterError(RaptorMQError):
    """An SQL92 filter cannot be understood, or is larger or deeper than allowed."""


class StorageError(RaptorMQError):
    """Root of the storage errors."""


class NotLeader(StorageError):
    """This member of a replicated group follows another one: it takes no messages, and what it had taken and not
    confirmed may be lost. Send it to the leader.
    """


class StoreLocked(StorageError):
    """Another process holds the store's lock file."""


class StoreReadOnly(StorageError):
    """The store takes no writes: the volume is read-only or an earlier flush failed."""


class OutOfResources(StorageError):
    """What a write needs is used up for now, and nothing was written: descriptors or memory, of the process or of the
    machine.
    """


class DiskFull(OutOfResources):
    """There is no room for the next record."""


class BatchEncrypted(StorageError):
    """A batch would have to be taken apart for its reader, and is encrypted."""


class ConversionRefused(StorageError):
    """Queues cannot be converted to the other type; the text says what stands against it."""


class StoreDamaged(StorageError):
    """A file is damaged in a way that repair would lose acknowledged records."""


class TransportError(RaptorMQError):
    """Root of the network errors."""


class ConnectError(TransportError):
    """No connection to the address could be made."""

    retriable = True


class ConnectionClosed(TransportError):
    """The connection ended before the answer came."""

    retriable = True


class RequestTimeout(TransportError):
    """No answer came within the time-out."""

    retriable = True


class BufferFull(TransportError):
    """The peer does not read what it is owed; nothing more is queued for it."""


class ServerError(RaptorMQError):
    """The peer answered with an error.

    ``code`` is the response code (:class:`raptormq.protocol.codes.ResponseCode` where known), ``remark`` the peer's
    text.
    """

    def __init__(self, code: int, remark: str | None, peer: str = "") -> None:
        where = f" from {peer}" if peer else ""
        super().__init__(f"code {code}{where}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark or ""


class ClientError(RaptorMQError):
    """Root of the errors that our own client raises about its own state."""


class ConsumptionStopped(ClientError):
    """A consumer has stopped, because a message could not be consumed and its configuration says so."""


class NoRoute(ClientError):
    """No name server knows a broker for the topic."""

    retriable = True

    @classmethod
    def to(cls, topic: str) -> Self:
        """Return the error for a topic of which name servers know no route."""
        return cls(f"no route for topic {topic}: it does not exist or no broker that has it is up")


class Backpressure(ClientError):
    """The producer has as many messages in flight as it may have; nothing was sent. Send again after others have their
    outcomes.
    """

    retriable = True


class KeyMissing(ClientError):
    """A message is encrypted with a key that this client does not have, or there are no keys to encrypt with."""


class ClientClosed(ClientError):
    """The object was closed."""
