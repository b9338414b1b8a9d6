"""Parser of SQL92 filters, by recursive descent (the grammar of RocketMQ's ``SelectorParser.jj``).

::

    or         = and (OR and)*
    and        = equality (AND equality)*
    equality   = comparison ("=" comparison | "<>" comparison | IS [NOT] NULL)*
    comparison = unary ( ("<" | "<=" | ">" | ">=") unary | [NOT] BETWEEN unary AND unary
                       | [NOT] IN "(" text ("," text)* ")" | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text )*
    unary      = ("+" | "-" | NOT) unary | text | number | TRUE | FALSE | NULL | property | "(" or ")"

As in RocketMQ, parsing stops after a complete expression: what follows (``a = 1 b = 2``, ``a LIKE 'x'``) is ignored.
Size and depth are bounded, so that neither parsing nor evaluation can exhaust the stack or block the broker.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from raptormq.errors import FilterError
from raptormq.protocol.sql92 import nodes, tokens
from raptormq.protocol.sql92.nodes import Kind, Node
from raptormq.protocol.sql92.values import compare, integer

MAX_CHARACTERS = 16_384
MAX_TERMS = 1_024
"""Maximum literals and properties of one filter. The texts of one IN count as one term."""
MAX_DEPTH = 64

_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_ORDERS: dict[str, Callable[[int], bool]] = {
    "<": lambda difference: difference < 0,
    "<=": lambda difference: difference <= 0,
    ">": lambda difference: difference > 0,
    ">=": lambda difference: difference >= 0,
}


def parse(text: str) -> tuple[Node, int]:
    """Return the condition of ``text`` and its number of terms.

    Raises:
        FilterError: the text is invalid, too long or nested too deeply.
    """
    if len(text) > MAX_CHARACTERS:
        raise FilterError(f"the filter has {len(text)} characters, more than {MAX_CHARACTERS}")
    parser = _Parser(text)
    return nodes.truth(parser.disjunction()), parser.terms


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = tokens.TokenReader(text)
        self._depth = 0
        self.terms = 0

    def disjunction(self) -> Node:
        first = self._conjunction()
        if self._tokens.peek().kind != "OR":
            return first
        parts = [nodes.truth(first)]
        while self._accept("OR"):
            parts.append(nodes.truth(self._conjunction()))
        return _shallow(nodes.any_of(parts))

    def _conjunction(self) -> Node:
        first = self._equality()
        if self._tokens.peek().kind != "AND":
            return first
        parts = [nodes.truth(first)]
        while self._accept("AND"):
            parts.append(nodes.truth(self._equality()))
        return _shallow(nodes.all_of(parts))

    def _equality(self) -> Node:
        left = self._comparison()
        while True:
            if self._accept("="):
                left = _shallow(nodes.equal(left, self._comparison()))
            elif self._accept("<>"):
                left = _shallow(nodes.negation(nodes.equal(left, self._comparison())))
            elif self._accept("IS"):
                negative = self._accept("NOT")
                self._expect("NULL")
                left = nodes.is_null(left)
                left = _shallow(nodes.negation(left) if negative else left)
            else:
                return left

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            kind = self._tokens.peek().kind
            if kind in _ORDERS:
                self._tokens.take()
                left = _shallow(nodes.order(left, self._unary(), _ORDERS[kind]))
            elif kind in ("NOT", "BETWEEN", "IN") or kind in _SEARCHES:
                left = _shallow(self._word_comparison(left, positive=not self._accept("NOT")))
            else:
                return left

    def _word_comparison(self, left: Node, *, positive: bool) -> Node:
        token = self._tokens.take()
        if token.kind in _SEARCHES:
            return nodes.text_search(left, _SEARCHES[token.kind], self._text(), wanted=positive)
        if token.kind == "BETWEEN":
            low = self._unary()
            self._expect("AND")
            return _between(left, low, self._unary(), positive=positive)
        if token.kind != "IN":
            raise _unexpected(token)
        self._expect("(")
        texts = {self._text()}
        while self._accept(","):
            texts.add(self._text())
        self._expect(")")
        return nodes.member(left, frozenset(texts), inside=positive)

    def _unary(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FilterError(f"the filter is nested more than {MAX_DEPTH} deep")
        try:
            if self._accept("+"):
                return self._unary()
            if self._accept("-"):
                return nodes.minus(self._unary())
            if self._accept("NOT"):
                return nodes.negation(nodes.truth(self._unary()))
            if self._accept("("):
                inner = self.disjunction()
                self._expect(")")
                return inner
            return self._term()
        finally:
            self._depth -= 1

    def _term(self) -> Node:
        self.terms += 1
        if self.terms > MAX_TERMS:
            raise FilterError(f"the filter has more than {MAX_TERMS} terms")
        token = self._tokens.take()
        if token.kind == tokens.NAME:
            return nodes.named(token.text)
        if token.kind == tokens.STRING:
            return nodes.constant(Kind.TEXT, _unquoted(token.text))
        if token.kind in (tokens.INTEGER, tokens.FLOAT):
            return nodes.constant(Kind.NUMBER, _number(token))
        if token.kind in ("TRUE", "FALSE", "NULL"):
            return nodes.constant(Kind.TRUTH, {"TRUE": True, "FALSE": False, "NULL": None}[token.kind])
        raise _unexpected(token)

    def _accept(self, kind: str) -> bool:
        if self._tokens.peek().kind != kind:
            return False
        self._tokens.take()
        return True

    def _expect(self, kind: str) -> None:
        token = self._tokens.take()
        if token.kind != kind:
            raise _unexpected(token)

    def _text(self) -> str:
        token = self._tokens.take()
        if token.kind != tokens.STRING:
            raise _unexpected(token)
        return _unquoted(token.text)


def _between(value: Node, low: Node, high: Node, *, positive: bool) -> Node:
    if not positive:
        return nodes.any_of([nodes.order(value, low, _ORDERS["<"]), nodes.order(value, high, _ORDERS[">"])])
    both = nodes.all_of([nodes.order(value, low, _ORDERS[">="]), nodes.order(value, high, _ORDERS["<="])])
    constants = low.kind is high.kind is Kind.NUMBER
    if constants and low.value is not None and high.value is not None and compare(high.value, low.value) < 0:
        raise FilterError(f"BETWEEN {low.value} AND {high.value} is never true")
    return both


def _number(token: tokens.Token) -> int | float:
    if token.kind == tokens.INTEGER:
        try:
            return integer(token.text.rstrip("lL"))
        except ValueError as error:
            raise FilterError(f"the number {token.text:.40} does not fit 64 bits") from error
    value = float(token.text)
    if value == 0 or math.isinf(value):
        raise FilterError(f"the number {token.text:.40} is outside the range of 64-bit floating point")
    return value


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _shallow(node: Node) -> Node:
    if node.depth > MAX_DEPTH:
        raise FilterError(f"the filter is nested more than {MAX_DEPTH} deep")
    return node


def _unexpected(token: tokens.Token) -> FilterError:
    if token.kind == tokens.END:
        return FilterError(f"unexpected end of the filter at position {token.at}")
    return FilterError(f"unexpected {token.text:.40} at position {token.at} of the filter")
