"""Bulk hashes of message keys equal the hashes computed one by one, for any properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.protocol.properties import find_value
from raptormq.storage.index.key_hash import LONGEST, hashes_of_keys, key_hash

WORD = st.text("abé0 \t\u3000", min_size=1, max_size=3)
PAIRS = st.lists(st.tuples(st.sampled_from(["UNIQ_KEY", "KEYS", "A_UNIQ_KEY", "MYKEYS", "x"]), WORD), max_size=4)


def one_by_one(topics: list[str], texts: list[bytes]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for index, (topic, text) in enumerate(zip(topics, texts, strict=True)):
        unique = find_value(text, b"UNIQ_KEY\x01")
        keys = ([unique] if unique else []) + [key for key in find_value(text, b"KEYS\x01").split(b" ") if key]
        found += [(key_hash(topic, key.decode()), index) for key in keys]
    return found


def together(topics: list[str], texts: list[bytes]) -> list[tuple[int, int]]:
    hashes, owners = hashes_of_keys(topics, texts)
    return list(zip(hashes.tolist(), owners.tolist(), strict=True))


@given(st.lists(st.tuples(st.sampled_from(["t", "other"]), PAIRS, st.booleans()), min_size=1, max_size=6))
def test_properties_of_any_shape(messages: list[tuple[str, list[tuple[str, str]], bool]]) -> None:
    topics = [topic for topic, _, _ in messages]
    texts = []
    for _, pairs, ends in messages:
        text = "\x02".join(f"{name}\x01{value}" for name, value in pairs) + ("\x02" if ends else "")
        texts.append(text.encode())
    assert together(topics, texts) == one_by_one(topics, texts)


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"UNIQ_KEY\x01",
        b"UNIQ_KEY\x01\x02",
        b"UNIQ_KEY\x01123",
        b"UNIQ_KEY\x0112345\x02",
        b"UNIQ_KEY\x011\x0234\x02",
        b"AUNIQ_KEY\x011234\x02",
        b"UNIQ_KEY\x01\xc3\xa934\x02",
        b"UNIQ_KEY\x011234\x02UNIQ_KEY\x015678\x02",
        b"UNIQ_KEY\x011234\x02KEYS\x01 a  b \x02",
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_odd_message_among_plain_ones(odd: bytes, place: int) -> None:
    texts = [b"UNIQ_KEY\x01aaaa\x02WAIT\x01true\x02", b"x\x01y\x02UNIQ_KEY\x01bbbb\x02"]
    texts.insert(place, odd)
    topics = ["t1", "t2", "t3"]
    assert together(topics, texts) == one_by_one(topics, texts)


def test_a_message_with_two_unique_keys_does_not_hide_one_without() -> None:
    texts = [b"UNIQ_KEY\x01aaaa\x02UNIQ_KEY\x01bbbb\x02", b"x\x01y\x02"]
    assert together(["t", "t"], texts) == [(key_hash("t", "bbbb"), 0)]


PLAIN = [b"UNIQ_KEY\x01%04d\x02WAIT\x01true\x02" % number for number in range(12)]


@pytest.mark.parametrize(
    "odd",
    [
        b"KEYS\x01\x02UNIQ_KEY\x01batch\x02WAIT\x01true\x02INNER_NUM\x0112\x02",
        b"KEYS\x01a b\x02UNIQ_KEY\x01batch\x02",
        b"WAIT\x01true\x02",
        b"",
    ],
)
@pytest.mark.parametrize("places", [(0,), (12,), (3, 7), (0, 0, 5), tuple(range(13))])
def test_properties_of_batches_among_those_of_their_messages(odd: bytes, places: tuple[int, ...]) -> None:
    texts = list(PLAIN)
    for place in reversed(places):
        texts.insert(place, odd)
    topics = [f"t{index // 5}" for index in range(len(texts))]
    assert together(topics, texts) == one_by_one(topics, texts)


@pytest.mark.parametrize(
    "odd",
    [
        b"UNIQ_KEY\x010012\x02WAIT\x01TRUE\x02",
        b"UNIQ_KEY\x0112\x02yyWAIT\x01true\x02",
        b"UNIQ_KEX\x010012\x02WAIT\x01true\x02",
        b"KEYS\x01 b c d\x02UNIQ_KEY\x01ab\x02",
        b"UNIQ_KEY\x01\xc3\xa9\xc3\xa9\x02WAIT\x01true\x02",
    ],
)
@pytest.mark.parametrize("place", [0, 6, 12])
def test_one_message_of_the_same_length_with_other_properties(odd: bytes, place: int) -> None:
    assert len(odd) == len(PLAIN[0])
    texts = [*PLAIN[:place], odd, *PLAIN[place:]]
    topics = ["t"] * len(texts)
    assert together(topics, texts) == one_by_one(topics, texts)


@pytest.mark.parametrize("rest", [b"KEYS\x01a b\x02", b"KEYS\x01 \x02", b"", b"UNIQ_KEY\x01last\x02"])
def test_messages_that_differ_in_their_unique_key_alone(rest: bytes) -> None:
    texts = [text + rest for text in PLAIN]
    assert together(["t"] * len(texts), texts) == one_by_one(["t"] * len(texts), texts)


@pytest.mark.parametrize("odd", [b"x" * LONGEST, b"x" * (LONGEST + 1), "é".encode(), b"", b"  "])
def test_words_of_many_lengths(odd: bytes) -> None:
    words = [b"%d" % (7**number) for number in range(12)]
    texts = [b"KEYS\x01%b\x02x\x01y\x02" % b" ".join(words[:number]) for number in range(12)]
    texts.insert(5, b"UNIQ_KEY\x01u\x02KEYS\x01a  %b b \x02" % odd)
    topics = [f"t{index // 5}" for index in range(len(texts))]
    assert together(topics, texts) == one_by_one(topics, texts)


def test_no_message_has_no_key() -> None:
    assert together([], []) == []
