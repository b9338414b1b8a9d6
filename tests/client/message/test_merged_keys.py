"""The keys of a batch: those of all its messages, or the first that fit."""

from __future__ import annotations

from raptormq.client import Message
from raptormq.client.message.send_request import MAX_KEYS_CHARS, merge_keys


def keyed(*keys: str) -> Message:
    return Message("t", b"", keys=keys)


def test_every_key_is_there_once_in_the_order_of_the_messages() -> None:
    assert merge_keys([keyed("b", "a"), keyed(), keyed("a"), keyed("c")]) == ["b", "a", "c"]


def test_keys_fit_up_to_the_last_character_and_no_further() -> None:
    long, short = "x" * (MAX_KEYS_CHARS - 3), "y"
    assert merge_keys([keyed(long), keyed(short)]) == [long, short]
    assert merge_keys([keyed(long), keyed(short + short), keyed("z")]) == [long]
    assert merge_keys([keyed("x" * MAX_KEYS_CHARS)]) == []


def test_a_key_that_comes_again_takes_no_room() -> None:
    long = "x" * (MAX_KEYS_CHARS // 2 - 1)
    assert merge_keys([keyed(long), keyed(long), keyed(long), keyed("y" * (MAX_KEYS_CHARS // 2 - 1))])[1][0] == "y"
