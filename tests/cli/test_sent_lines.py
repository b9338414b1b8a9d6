"""State of lines that are being sent."""

from __future__ import annotations

import pytest

from raptormq.cli.sent_lines import SentLines


def fail(sent: SentLines, first_line: int, messages: int) -> None:
    with pytest.raises(OSError, match="gone"), sent.sending(first_line, messages):
        raise OSError("gone")


def test_without_a_doubt_the_number_is_enough() -> None:
    sent = SentLines()
    for first_line in (1, 11):
        sent.begin(10)
        with sent.sending(first_line, 9):
            pass
    assert (sent.read, sent.known()) == (20, "sent messages: 18")


def test_after_failures_all_before_the_first_of_them_is_known() -> None:
    sent = SentLines()
    fail(sent, 1, 2)
    assert sent.known() == "no line was confirmed, some may have been sent"
    sent = SentLines()
    sent.begin(10)
    with sent.sending(1, 10):
        pass
    sent.begin(10)
    with sent.sending(11, 2), sent.sending(15, 2):
        fail(sent, 17, 2)
        fail(sent, 13, 2)
    with sent.sending(19, 2):
        pass
    known = "all lines before line 13 are sent (12 messages), and 4 messages of later lines; more may be sent"
    assert sent.known() == known
