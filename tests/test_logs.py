"""Texts of peers cannot end a log line, control a terminal, or fill the disk by one line."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.logs import MAX_CHARACTERS, configure_logging, get_logger, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("broker-a", "broker-a"),
        ("a\nb\r\n", r"a\nb\r\n"),
        ("\x1b[2J\x9b1m\x07", r"\x1b[2J\x9b1m\x07"),
        ("\x1c\x1d\x1e\x1f\x85\u2028\u2029\x0b\x0c", r"\x1c\x1d\x1e\x1f\x85\u2028\u2029\x0b\x0c"),
        ("user\u202etxt.exe\u2066", r"user\u202etxt.exe\u2066"),
        ("\udc80\x00", r"\udc80\x00"),
        ("Ünïcode 日本 a\u00a0b\tc", "Ünïcode 日本 a\u00a0b\tc"),
    ],
)
def test_what_ends_lines_or_steers_terminals_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_printable_text_is_one_line_and_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert len(f"{shown}.".splitlines()) == 1
    assert printable(shown) == shown
    shown.encode()


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Write with a handler without any escaping, like that of an application."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logger = get_logger("raptormq.tests.logs")
    monkeypatch.setattr(logger, "propagate", False)
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


def test_a_module_logs_what_peers_have_sent_on_one_line(stream: io.StringIO) -> None:
    get_logger("raptormq.tests.logs").warning("broker %s came", "a\n2026-01-01 INFO all is well\x1b[2K")
    assert stream.getvalue() == "broker a\\n2026-01-01 INFO all is well\\x1b[2K came\n"


def test_a_harmless_record_keeps_its_template(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("raptormq.tests.logs").warning("broker %s came", "a")
    assert (caplog.records[-1].msg, caplog.records[-1].args) == ("broker %s came", ("a",))


def test_a_text_without_end_is_cut(stream: io.StringIO) -> None:
    get_logger("raptormq.tests.logs").warning("%s", "x" * (MAX_CHARACTERS + 7))
    assert stream.getvalue() == "x" * MAX_CHARACTERS + "… (7 more characters)\n"


def test_no_line_of_a_traceback_looks_like_a_record(stream: io.StringIO) -> None:
    try:
        raise ValueError("bad\n2026-01-01 INFO all is well\r\x1b[2K")
    except ValueError:
        get_logger("raptormq.tests.logs").exception("request failed")
    first, *others = stream.getvalue().removesuffix("\n").split("\n")
    assert first == "request failed"
    assert all(line.startswith("  | ") for line in others)
    assert others[-2:] == ["  | ValueError: bad", r"  | 2026-01-01 INFO all is well\r\x1b[2K"]


def test_libraries_in_our_programs_log_printably_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    configure_logging("info")
    logging.getLogger("library").info("connected to %s", "a\nb")
    assert capsys.readouterr().err.endswith("INFO library: connected to a\\nb\n")


def test_json_is_one_object_for_each_record(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    configure_logging("info", "json")
    fields = {"namespace": "shop", "reason": "Created"}
    get_logger("raptormq.tests.logs").info("made %s\nnow", "a", extra={"fields": fields})
    try:
        raise ValueError("b\nc")
    except ValueError:
        get_logger("raptormq.tests.logs").exception("it failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert datetime.fromisoformat(first.pop("time")).tzinfo is UTC
    assert first == {"level": "INFO", "logger": "raptormq.tests.logs", "message": "made a\\nnow", **fields}
    assert (second["level"], second["message"]) == ("ERROR", "it failed")
    assert "ValueError: b" in second["error"]
