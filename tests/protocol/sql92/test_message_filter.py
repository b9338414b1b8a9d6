"""SQL92 filters have the results of Apache RocketMQ's filter library, and stay within their limits.

`reference_outcomes.json` contains random expressions with their result in `rocketmq-filter` 5.3.3: true, false, or
refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raptormq.errors import FilterError
from raptormq.protocol.properties import encode_properties
from raptormq.protocol.sql92.message_filter import compile_filter
from raptormq.protocol.sql92.parser import MAX_CHARACTERS, MAX_DEPTH, MAX_TERMS

REFERENCE: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("reference_outcomes.json").read_text(encoding="utf-8")
)


def outcome(expression: str, properties: dict[str, str]) -> str:
    try:
        return str(compile_filter(expression).matches(properties)).lower()
    except FilterError:
        return "refused"


def matches(expression: str, **properties: str) -> bool:
    return compile_filter(expression).matches(properties)


def test_every_random_expression_ends_as_on_the_reference() -> None:
    differing = [case for case in REFERENCE if outcome(case["expression"], case["properties"]) != case["outcome"]]
    assert not differing
    assert {case["outcome"] for case in REFERENCE} == {"true", "false", "refused"}


def test_text_is_compared_as_number_where_the_other_side_is_one() -> None:
    assert matches("a > 5 AND a <= 10", a="7")
    assert not matches("a > 5", a="5")
    assert matches("a BETWEEN 0 AND 3", a="3")
    assert not matches("a BETWEEN 0 AND 3", a="4")


def test_a_number_beyond_32_bits_is_no_number_beside_a_small_constant() -> None:
    assert matches("a > 2147483648", a="3000000000")
    assert not matches("a > 5", a="3000000000")


def test_what_cannot_be_compared_takes_the_whole_message_away() -> None:
    assert not matches("a > 5 OR b = 'x'", a="abc", b="x")
    assert matches("b = 'x' OR a > 5", a="abc", b="x")


def test_unknown_properties_are_neither_equal_nor_different() -> None:
    assert not matches("missing = 'x'")
    assert not matches("missing <> 'x'")
    assert not matches("NOT missing = 'x'")
    assert matches("missing IS NULL")
    assert not matches("missing IS NOT NULL")


def test_the_stored_form_of_properties_is_understood() -> None:
    stored = encode_properties({"TAGS": "red", "price": "12", "größe": "ü"}).encode()
    assert compile_filter("price > 10 AND TAGS IN ('red', 'blue')").wants(stored)
    assert not compile_filter("price > 12").wants(stored)
    assert not compile_filter("price > 10").wants(b"price\x01\xff\xfe\x02")


@pytest.mark.parametrize("expression", ["", "   ", "a >", "(a = 1", "a = 'open", "a ! b", "a > 'text'", "= 1", "5"])
def test_what_is_no_condition_is_refused(expression: str) -> None:
    with pytest.raises(FilterError):
        compile_filter(expression)


def test_a_refusal_is_refused_again_from_the_cache() -> None:
    texts = []
    for _ in range(2):
        with pytest.raises(FilterError) as refusal:
            compile_filter("a = = 1")
        texts.append(str(refusal.value))
    assert texts[0] == texts[1] == "unexpected = at position 4 of the filter"


def test_length_is_bounded() -> None:
    fits = "a = '" + "x" * (MAX_CHARACTERS - 6) + "'"
    assert not matches(fits, a="x")
    with pytest.raises(FilterError, match="characters"):
        compile_filter(fits + " ")


def test_the_number_of_terms_is_bounded() -> None:
    fits = " OR ".join(["a = 1"] * (MAX_TERMS // 2))
    assert matches(fits, a="1")
    with pytest.raises(FilterError, match="terms"):
        compile_filter(fits + " OR b")


@pytest.mark.parametrize(
    ("opening", "middle", "closing"),
    [("(", "a = 1", ")"), ("NOT ", "a = 1", ""), ("", "a", " IS NULL"), ("", "a", " = a")],
)
def test_depth_is_bounded(opening: str, middle: str, closing: str) -> None:
    deepest = MAX_DEPTH - 3
    compile_filter(opening * deepest + middle + closing * deepest)
    with pytest.raises(FilterError, match="deep"):
        compile_filter(opening * (MAX_DEPTH + 3) + middle + closing * (MAX_DEPTH + 3))


def test_a_large_filter_is_applied_to_fewer_messages_at_a_time() -> None:
    small, large = compile_filter("a = 1"), compile_filter(" OR ".join(["a = 1"] * (MAX_TERMS // 2)))
    assert small.max_scanned > 10_000
    assert 50 < large.max_scanned < 200
