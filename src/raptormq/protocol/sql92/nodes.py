"""Nodes of a compiled SQL92 filter: functions from properties to values, with the facts that the parser needs.

Three-valued logic: ``None`` is "unknown", which is not a match. Source: RocketMQ ``LogicExpression``,
``ComparisonExpression``, ``UnaryExpression``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from raptormq.errors import FilterError
from raptormq.protocol.sql92.values import Value, equals, negated, ordered

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]


class Kind(Enum):
    """Kind of an expression, for the checks of the grammar."""

    NUMBER = auto()
    TEXT = auto()
    TRUTH = auto()
    """The constants TRUE, FALSE and NULL."""
    PROPERTY = auto()
    BOOLEAN = auto()
    """A comparison, or comparisons combined by AND, OR, NOT."""
    NEGATED = auto()
    """A value with a minus sign."""


@dataclass(frozen=True, slots=True)
class Node:
    """An expression. ``value`` is that of a constant, ``depth`` is the nesting of calls in an evaluation."""

    kind: Kind
    evaluate: Evaluate
    depth: int = 1
    value: Value = None


def constant(kind: Kind, value: Value) -> Node:
    """Return the node of a literal."""
    return Node(kind, lambda _: value, 1, value)


def named(name: str) -> Node:
    """Return the node of a property. Its value is unknown if the message does not have it."""
    return Node(Kind.PROPERTY, lambda properties: properties.get(name))


def _boolean(evaluate: Evaluate, *parts: Node) -> Node:
    return Node(Kind.BOOLEAN, evaluate, 1 + max(part.depth for part in parts))


def truth(node: Node) -> Node:
    """Return the node for an operand of AND, OR or NOT, or for the whole expression. A property alone is text and
    therefore never true.

    Raises:
        FilterError: the node is a number or a text.
    """
    if node.kind in (Kind.BOOLEAN, Kind.TRUTH):
        return node
    if node.kind is not Kind.PROPERTY:
        raise FilterError("the filter has a number or a text where a condition is expected")
    value = node.evaluate
    return _boolean(lambda properties: None if value(properties) is None else False, node)


def all_of(nodes: Sequence[Node]) -> Node:
    """AND: false as soon as one operand is false, unknown if one is unknown."""
    parts = [node.evaluate for node in nodes]

    def evaluate(properties: Properties) -> Value:
        outcome: Value = True
        for part in parts:
            value = part(properties)
            if value is None:
                outcome = None
            elif not value:
                return False
        return outcome

    return _boolean(evaluate, *nodes)


def any_of(nodes: Sequence[Node]) -> Node:
    """OR: true as soon as one operand is true, unknown if one is unknown."""
    parts = [node.evaluate for node in nodes]

    def evaluate(properties: Properties) -> Value:
        outcome: Value = False
        for part in parts:
            value = part(properties)
            if value is None:
                outcome = None
            elif value:
                return True
        return outcome

    return _boolean(evaluate, *nodes)


def negation(node: Node) -> Node:
    """Return the node of NOT."""
    operand = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        return None if value is None else not value

    return _boolean(evaluate, node)


def minus(node: Node) -> Node:
    """Return the node of a minus sign. Its value is unknown for text."""
    operand = node.evaluate
    return Node(Kind.NEGATED, lambda properties: negated(operand(properties)), node.depth + 1)


def is_null(node: Node) -> Node:
    """Return the node of IS NULL."""
    operand = node.evaluate
    return _boolean(lambda properties: operand(properties) is None, node)


def equal(left: Node, right: Node) -> Node:
    """Return the node of an ``=`` comparison.

    Raises:
        FilterError: an operand is the constant NULL, or a boolean constant is compared with a number or a string.
    """
    for node in (left, right):
        if node.kind is Kind.TRUTH and node.value is None:
            raise FilterError("NULL cannot be compared; use IS NULL")
    if left.kind is Kind.TRUTH and right.kind in (Kind.NUMBER, Kind.TEXT):
        raise FilterError(f"{left.value!r} cannot be compared with {right.value!r}")
    one, other = left.evaluate, right.evaluate
    return _boolean(lambda properties: equals(one(properties), other(properties)), left, right)


def order(left: Node, right: Node, holds: Callable[[int], bool]) -> Node:
    """``<``, ``<=``, ``>`` or ``>=``. ``holds`` gets a negative number, 0 or a positive number, and returns whether the
    comparison is true.

    Raises:
        FilterError: a side is a condition or a constant that is not a number.
    """
    for node in (left, right):
        if node.kind in (Kind.BOOLEAN, Kind.TRUTH, Kind.TEXT):
            raise FilterError("only numbers and properties can be compared by <, <=, > and >=")
    one, other = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        difference = ordered(one(properties), other(properties))
        return None if difference is None else holds(difference)

    return _boolean(evaluate, left, right)


def member(node: Node, texts: frozenset[str], *, inside: bool) -> Node:
    """IN and NOT IN.

    Raises:
        FilterError: the left side is not a property.
    """
    if node.kind is not Kind.PROPERTY:
        raise FilterError("the left side of IN must be a property")
    operand = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        return None if value is None else (value in texts) is inside

    return _boolean(evaluate, node)


def text_search(node: Node, found: Callable[[str, str], bool], text: str, *, wanted: bool) -> Node:
    """CONTAINS, STARTSWITH and ENDSWITH. False, also with NOT, for an empty ``text`` and for values that
    are not text.
    """
    operand = node.evaluate

    def evaluate(properties: Properties) -> Value:
        value = operand(properties) if text else None
        return isinstance(value, str) and found(value, text) is wanted

    return _boolean(evaluate, node)
