"""Exit codes of ``raptormq``, so that scripts can decide without reading the error line."""

from __future__ import annotations

from enum import IntEnum

from raptormq.errors import NoRoute, RaptorMQError, ServerError, TransportError
from raptormq.protocol.codes import ResponseCode


class ExitCode(IntEnum):
    """The exit codes. :attr:`FAILED` covers every error without a code of its own."""

    SUCCESS = 0
    FAILED = 2
    """The command line, a setting or a message is invalid, a server refuses the request, or a file cannot be used."""
    UNAVAILABLE = 3
    """No connection or no response in time. The same command may succeed later."""
    NOT_FOUND = 4
    """The topic, consumer group, message, user or broker does not exist."""
    NOT_PERMITTED = 5
    """The user or the topic lacks the permission."""
    INTERRUPTED = 130
    """The user interrupted the command or declined the confirmation."""
    BROKEN_PIPE = 141
    """The reader of the output closed the pipe."""


class CommandFailed(RaptorMQError):
    """A command failed. The message contains the cause and a hint. The exit code is ``code`` or that of the cause."""

    def __init__(self, text: str, code: ExitCode | None = None) -> None:
        super().__init__(text)
        self.code = code


_NOT_FOUND = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.NO_MESSAGE,
    }
)


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code of the first error in the chain of causes of ``error`` that has one."""
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, CommandFailed) and each.code is not None:
            return each.code
        if isinstance(each, TransportError):
            return ExitCode.UNAVAILABLE
        if isinstance(each, NoRoute):
            return ExitCode.NOT_FOUND
        if isinstance(each, ServerError):
            if each.code in _NOT_FOUND:
                return ExitCode.NOT_FOUND
            return ExitCode.NOT_PERMITTED if each.code == ResponseCode.NO_PERMISSION else ExitCode.FAILED
        each = each.__cause__
    return ExitCode.FAILED
