"""A compiled SQL92 filter, applied to messages (RocketMQ ``ExpressionMessageFilter``).

Compiled filters are shared by everyone who uses the same text; the cache is bounded.
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
"""Terms evaluated by one read of a queue at most: a few milliseconds."""
_MAX_BYTES_PER_READ = 2 << 20
"""Properties that one read takes apart at most: 60 ms."""
_MAX_TERM_BYTES_PER_READ = 32 << 20
"""The same times the terms, since each may search through the longest of them: 150 ms at worst, mostly nothing."""


class MessageFilter:
    """Tells which messages an expression wants."""

    __slots__ = ("_evaluate", "max_scanned", "max_scanned_bytes")

    def __init__(self, evaluate: Evaluate, terms: int) -> None:
        self._evaluate = evaluate
        self.max_scanned = _MAX_TERMS_PER_READ // terms
        """How many messages one read may apply it to."""
        self.max_scanned_bytes = min(_MAX_BYTES_PER_READ, _MAX_TERM_BYTES_PER_READ // terms)
        """How long their properties may be together."""

    def matches(self, properties: Mapping[str, str]) -> bool:
        """True for a message that is wanted; one whose values cannot be compared is not."""
        try:
            return self._evaluate(properties) is True
        except ValueError:
            return False

    def wants(self, properties: bytes) -> bool:
        """The same for the text form that is stored."""
        return self.matches(decode_properties(str(properties, "utf-8", "replace")))


def compile_filter(expression: str) -> MessageFilter:
    """Return the filter of an SQL92 expression.

    Raises:
        FilterError: it cannot be understood, or is too large.
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
