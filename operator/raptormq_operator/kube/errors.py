"""Errors of the Kubernetes API::

RaptorMQError
`- KubeError             the API server answered with an error, or not at all (status 0)
   |- Conflict           409: someone else changed or made the object first      (retriable)
   |- Gone               410: begin with a new list                              (retriable)
   `- Invalid            400, 403, 422: the request will not get better by itself; nor after a 500 for a field that a
                         built-in kind does not have, which server-side apply answers
"""

from __future__ import annotations

from raptormq.errors import RaptorMQError

_NOT_IN_SCHEMA = "failed to create typed patch object"


class KubeError(RaptorMQError):
    """A request that failed. `status` is the HTTP status, 0 when no answer came."""

    retriable = True

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Conflict(KubeError):
    """Someone else was first."""


class Gone(KubeError):
    """A resourceVersion, or a place in a list, that the API server no longer remembers."""


class Invalid(KubeError):
    """The API server does not take the object, or not from us."""

    retriable = False


def error_for(status: int, text: str) -> KubeError:
    """The error class of an HTTP status."""
    if status == 409:
        return Conflict(status, text)
    if status == 410:
        return Gone(status, text)
    if status in (400, 403, 422) or (status == 500 and _NOT_IN_SCHEMA in text):
        return Invalid(status, text)
    return KubeError(status, text)
