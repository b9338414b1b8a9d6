"""Invalid handles of popped messages."""

from __future__ import annotations

import pytest

from raptormq.errors import MessageError
from raptormq.protocol.pop_handle import parse_handle


@pytest.mark.parametrize("text", ["", "x", "0 x 0 0 0 broker-a 0 0", "1 2 3 4 5", "1 2 3 4.5 0 broker-a 0 0"])
def test_what_is_no_handle_is_named(text: str) -> None:
    with pytest.raises(MessageError, match="handle of a popped message") as caught:
        parse_handle(text)
    assert repr(text) in str(caught.value)


def test_only_the_beginning_of_a_long_text_is_shown() -> None:
    with pytest.raises(MessageError) as caught:
        parse_handle("x" * 1000)
    assert len(str(caught.value)) < 160
