"""Rates, sizes and times with units."""

from __future__ import annotations

import click
import pytest

from raptormq.cli.amounts import rate, size, time_span


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500", 500),
        ("20k", 20_000),
        ("20K/s", 20_000),
        ("1.5M", 1_500_000),
        ("100,000", 100_000),
        (" 1,000,000 ", 10**6),
    ],
)
def test_rates(text: str, expected: float) -> None:
    assert rate(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1e5", "10G", "k", "1,00", "20 k k", "20/h", "0.0k"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a rate in messages per second above 0, such as"):
        rate(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000", 1000),
        ("1000B", 1000),
        ("1kB", 1000),
        ("1.5KB", 1500),
        ("1KiB", 1024),
        ("1Ki", 1024),
        ("2 MiB", 2 << 20),
        ("1MB", 10**6),
    ],
)
def test_sizes(text: str, expected: float) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("text", ["1k", "1K", "1.5M", "4 g"])
def test_a_unit_with_two_meanings_is_refused_with_both(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"ambiguous: use .*B \(powers of 1,000\) or .*iB \(powers of"):
        size(text)


@pytest.mark.parametrize("text", ["", "0", "-1kB", "kB", "1 kilo", "1/s"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size in bytes above 0, such as"):
        size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("90min", 5400),
        ("90m", 5400),
        ("72h", 259_200),
        ("3d", 259_200),
        ("1.5 d", 129_600),
        ("2w", 1_209_600),
    ],
)
def test_times(text: str, expected: float) -> None:
    assert time_span(text) == expected


@pytest.mark.parametrize("text", ["", "72", "0h", "-3d", "3 years", "1h30m"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time above 0 with its unit, such as"):
        time_span(text)
