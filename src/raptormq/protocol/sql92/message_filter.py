"""A compiled SQL92 filter, applied to messages (RocketMQ ``ExpressionMessageFilter``).

Compiled filters are shared by all users of the same text, in a bounded cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from raptormq.errors import FilterError
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.sql92.nodes import Evaluate
from raptormq.protocol.sql92.parser import parse

_CACHED_FILTERS = 512
_MAX_TERMS_PER_READ = 100_000
"""Maximum number of terms that one read of a queue evaluates, which takes a few milliseconds."""
_MAX_BYTES_PER_READ = 2 << 20
"""Maximum bytes of properties that one read decodes, which takes 60 ms."""
_MAX_TERM_BYTES_PER_READ = 32 << 20
"""Maximum product of the bytes of properties that one read decodes and the number of terms, because each term may
search the longest property. Such a read takes at most 150 ms, and normally almost no time.
"""


class MessageFilter:
    """Selects the messages that match an expression."""

    __slots__ = ("_evaluate", "max_scanned", "max_scanned_bytes")

    def __init__(self, evaluate: Evaluate, terms: int) -> None:
        self._evaluate = evaluate
        self.max_scanned = _MAX_TERMS_PER_READ // terms
        """Maximum number of messages to which one read applies the filter."""
        self.max_scanned_bytes = min(_MAX_BYTES_PER_READ, _MAX_TERM_BYTES_PER_READ // terms)
        """Maximum total bytes of the properties of these messages."""

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message matches. A message whose values cannot be compared does not match."""
        try:
            return self._evaluate(properties) is True
        except ValueError:
            return False

    def wants(self, properties: bytes) -> bool:
        """Return whether a message with this stored text form of properties matches."""
        return self.matches(decode_properties(str(properties, "utf-8", "replace")))


def compile_filter(expression: str) -> MessageFilter:
    """Return the filter of an SQL92 expression.

    Raises:
        FilterError: the expression is invalid or too large.
    """
    compiled = _compiled(expression)
    if isinstance(compiled, FilterError):
        raise FilterError(str(compiled))
    return compiled


@lru_cache(_CACHED_FILTERS)
def _compiled(expression: str) -> MessageFilter | FilterError:
    try:
        node, terms = parse(expression)
    except FilterError as error:
        return error.with_traceback(None)
    return MessageFilter(node.evaluate, terms)
