"""Tokens of an SQL92 filter (the token rules of RocketMQ's ``SelectorParser.jj``).

The text is tokenized lazily, because the parser stops after a complete expression and never reads what follows.
Keywords are case-insensitive; ``-- …`` up to the end of a line and ``/* … */`` are comments.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from raptormq.errors import FilterError

KEYWORDS = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)
STRING, INTEGER, FLOAT, NAME, END = "string", "integer", "float", "name", "end"

_SKIPPED = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)*")
_TOKEN = re.compile(
    r"""(?P<string>'(?:''|[^'])*')
    |(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<integer>0|[1-9][0-9]*[lL]?)
    |(?P<name>[a-zA-Z_$][a-zA-Z0-9_$]*)
    |(?P<sign><>|>=|<=|[=<>(),+-])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """One token. ``kind`` is one of the constants above, a keyword, or the sign itself."""

    kind: str
    text: str
    at: int


class TokenReader:
    """Returns the tokens of a text one by one, with lookahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._ahead: list[Token] = []

    def peek(self, steps: int = 0) -> Token:
        """Return the token ``steps`` positions ahead without consuming it.

        Raises:
            FilterError: there is no valid token.
        """
        while len(self._ahead) <= steps:
            self._ahead.append(self._read())
        return self._ahead[steps]

    def take(self) -> Token:
        """Consume the next token and return it.

        Raises:
            FilterError: there is no valid token.
        """
        token = self.peek()
        self._ahead.pop(0)
        return token

    def _read(self) -> Token:
        skipped = _SKIPPED.match(self._text, self._position)
        assert skipped is not None
        start = skipped.end()
        if start == len(self._text):
            return Token(END, "the end", start)
        match = _TOKEN.match(self._text, start)
        if match is None or match.lastgroup is None:
            raise FilterError(f"unexpected character {self._text[start]!r} at position {start} of the filter")
        self._position = match.end()
        text, kind = match[0], match.lastgroup
        if kind == "sign":
            kind = text
        elif kind == NAME and text.upper() in KEYWORDS:
            kind = text.upper()
        return Token(kind, text, start)
