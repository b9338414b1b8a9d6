"""Tag expressions."""

from __future__ import annotations

import pytest

from raptormq.client.subscription import parse_subscription
from raptormq.errors import MessageError


@pytest.mark.parametrize("expression", ["*", "", "  ", " * "])
def test_everything(expression: str) -> None:
    subscription = parse_subscription("t", expression, 1)
    assert subscription.expression == "*"
    assert subscription.codes == []
    assert subscription.wants(None)
    assert subscription.wants("any")


def test_tags() -> None:
    subscription = parse_subscription("t", "A||B || C", 7)
    assert subscription.tags == {"A", "B", "C"}
    assert subscription.codes == [65, 66, 67]
    assert subscription.wants("B")
    assert not subscription.wants("D")
    assert not subscription.wants(None)


def test_tags_with_equal_hashes_are_told_apart() -> None:
    subscription = parse_subscription("t", "Aa", 1)  # "Aa" and "BB" have the same hash
    assert subscription.codes == parse_subscription("t", "BB", 1).codes
    assert not subscription.wants("BB")


def test_separators_alone_are_refused() -> None:
    with pytest.raises(MessageError, match="has no tag"):
        parse_subscription("t", " || ", 1)
