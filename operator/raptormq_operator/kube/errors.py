"""Errors of the Kubernetes API::

RaptorMQError
`- KubeError             the API server returned an error, or did not respond (status 0)
   |- Conflict           409: the object was changed or created by another client   (retriable)
   |- Gone               410: a new list is required                                (retriable)
   `- Invalid            400, 403, 422: a retry does not help. Also 500 for a field that a built-in kind does not have
                         (server-side apply) and for a pod that several disruption budgets select (eviction)
"""

from __future__ import annotations

from raptormq.errors import RaptorMQError

_FOR_EVER = ("failed to create typed patch object", "more than one PodDisruptionBudget")
"""Texts of permanent errors with status 500."""


class KubeError(RaptorMQError):
    """A failed request. `status` is the HTTP status, or 0 without a response."""

    retriable = True

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Conflict(KubeError):
    """The object was changed or created by another client."""


class Gone(KubeError):
    """A resourceVersion or page token has expired."""


class Invalid(KubeError):
    """The API server rejected the object, or denied access."""

    retriable = False


def error_for(status: int, text: str) -> KubeError:
    """Return the exception for an HTTP status."""
    if status == 409:
        return Conflict(status, text)
    if status == 410:
        return Gone(status, text)
    if status in (400, 403, 422) or (status == 500 and any(words in text for words in _FOR_EVER)):
        return Invalid(status, text)
    return KubeError(status, text)
