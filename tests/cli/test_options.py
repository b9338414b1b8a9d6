"""Values of options."""

from __future__ import annotations

import click
import pytest

from raptormq.cli.options import key_and_value, message_tag, positive_seconds, start_position


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("100000000000", 10**11),
        ("1714564800000", 1714564800000),
        ("2024-05-01T12:00:00Z", 1714564800000),
        ("2024-05-01T12:00:00", 1714564800000),
        ("2024-05-01T14:00:00.250+02:00", 1714564800250),
        ("2024-05-01", 1714521600000),
        ("1969-01-01", 0),
    ],
)
def test_start_positions(text: str, expected: str | int) -> None:
    assert start_position(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "12:00", "1e3"])
def test_what_is_no_start_position(text: str) -> None:
    with pytest.raises(click.BadParameter, match="earliest, latest, milliseconds"):
        start_position(text)


@pytest.mark.parametrize("text", ["1", "1714564800", "99999999999"])
def test_a_time_in_seconds_is_not_taken_for_milliseconds(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"{text} seems to be a time in seconds; expected milliseconds"):
        start_position(text)


def test_seconds() -> None:
    assert positive_seconds("2.5") == 2.5
    for text in ("0", "-1", "nan", "inf", "soon"):
        with pytest.raises(click.BadParameter, match="seconds above 0"):
            positive_seconds(text)


def test_key_and_value() -> None:
    assert key_and_value("queue.type=BatchCQ") == ("queue.type", "BatchCQ")
    for text in ("", "k", "k=", "=v"):
        with pytest.raises(click.BadParameter, match="KEY=VALUE"):
            key_and_value(text)


def test_a_message_has_one_tag() -> None:
    assert message_tag("a b") == "a b"
    with pytest.raises(click.BadParameter, match="'a||b' is not a tag: a message has one".replace("|", r"\|")):
        message_tag("a||b")
