"""Properties, tags, topic names and ids."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import MessageError
from raptormq.protocol import message_id, properties, tags, topic_names
from raptormq.protocol.message import MessageExt, MessageQueue

texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(st.dictionaries(texts, texts))
def test_properties_round_trip(original: dict[str, str]) -> None:
    text = properties.encode_properties(original)
    assert properties.decode_properties(text) == original
    for name, value in original.items():
        assert properties.find_property(text, name) == value
    assert properties.find_property(text, "absent\x01") is None


@given(st.text(st.sampled_from("ab\x01\x02"), max_size=30))
def test_find_property_agrees_with_the_full_parse(text: str) -> None:
    parsed = properties.decode_properties(text)
    for name in ("a", "b", "ab"):
        found = properties.find_property(text, name)
        if found is not None and "\x01" not in text.replace(f"{name}\x01", "", 1):
            assert parsed.get(name) == found
        if name not in parsed:
            assert found is None or "\x01" in text


def test_the_last_separator_may_be_absent_and_the_last_value_counts() -> None:
    assert properties.decode_properties("a\x01b\x02c\x01d") == {"a": "b", "c": "d"}
    assert properties.find_property("a\x01b\x02c\x01d", "c") == "d"
    assert properties.find_property("k\x01one\x02k\x01two\x02", "k") == "two"
    assert properties.decode_properties("\x02\x01x\x02y\x01\x02z") == {}


@pytest.mark.parametrize("bad", [{"": "v"}, {"n": ""}, {"n": "a\x01"}, {"n\x02": "v"}, {"n": "v" * 32_767}])
def test_unusable_properties_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(MessageError):
        properties.encode_properties(bad)


def test_what_was_sent_is_written_again_as_it_is() -> None:
    text = "a\x01b\x01c\x02d\x01e\x02"
    assert properties.reencode_properties(properties.decode_properties(text)) == text
    assert len(properties.reencode_properties({"n": "v" * 32_764})) == 32_767
    with pytest.raises(MessageError):
        properties.reencode_properties({"n": "v" * 32_765})


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("", 0),
        (None, 0),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -2147483648),
        ("ü", 252),
    ],
)
def test_tag_hash_is_javas(tag: str | None, code: int) -> None:
    assert tags.tag_hash(tag) == code


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_tag_hash_is_a_signed_32_bit_integer(text: str) -> None:
    assert -(1 << 31) <= tags.java_hash(text) < 1 << 31


def test_subscriptions() -> None:
    assert tags.parse_expression(" A || B||A") == {"A", "B"}
    assert tags.parse_expression("*") == tags.parse_expression("") == tags.parse_expression("A||*") == frozenset()
    with pytest.raises(MessageError, match=r"\|\|"):
        tags.parse_expression("||")


@pytest.mark.parametrize("topic", ["t", "%RETRY%group", "a|b-c_9", "x" * 127, "%DLQ%" + "g" * 250])
def test_usable_topics(topic: str) -> None:
    topic_names.check_topic(topic)


@pytest.mark.parametrize("topic", ["", "  ", "a b", "ä", "x" * 128, "%RETRY%" + "g" * 249, "a\n", "a.b"])
def test_unusable_topics(topic: str) -> None:
    with pytest.raises(MessageError, match="topic"):
        topic_names.check_topic(topic)


def test_groups_are_shorter_than_topics() -> None:
    topic_names.check_group("g" * 120)
    with pytest.raises(MessageError, match="120"):
        topic_names.check_group("g" * 121)


@given(st.ip_addresses(), st.integers(0, 65535), st.integers(0, (1 << 63) - 1))
def test_offset_ids_round_trip(address: object, port: int, physical_offset: int) -> None:
    host = message_id.encode_host(str(address), port)
    assert message_id.decode_host(host) == (str(address), port)
    text = message_id.offset_id(host, physical_offset)
    assert message_id.parse_offset_id(text) == message_id.OffsetId(str(address), port, physical_offset)
    assert set(text) <= set(string.hexdigits.upper())


@pytest.mark.parametrize("text", ["", "xyz", "0" * 31, "g" * 32, "0" * 57, "00 " * 10 + "00", "\u0660" * 32])
def test_damaged_offset_ids_are_refused(text: str) -> None:
    with pytest.raises(MessageError):
        message_id.parse_offset_id(text)


def test_a_host_name_is_not_an_address() -> None:
    with pytest.raises(MessageError, match="localhost"):
        message_id.encode_host("localhost", 1)


def test_unique_ids_are_unique_and_hold_the_time() -> None:
    factory = message_id.UniqueIdFactory(b"\x7f\0\0\1", 4711, 99)
    january_2nd_1970 = 86_400_000
    ids = [factory.next_id(january_2nd_1970) for _ in range(65_536)]
    assert len(set(ids)) == 65_536
    assert {len(text) for text in ids} == {32}
    assert int(ids[0][20:28], 16) == 86_400_000
    assert int(factory.next_id(31 * 86_400_000 + 5)[20:28], 16) == 5  # the first minute of February


def test_several_ids_at_once_are_those_that_one_by_one_would_have_been() -> None:
    one_by_one, run_steps = (message_id.UniqueIdFactory(bytes(4), 1, 2) for _ in range(2))
    expected = [one_by_one.next_id(1000 + (n >= 40_000)) for n in range(70_000)]
    assert run_steps.next_ids(1000, 40_000) + run_steps.next_ids(1001, 30_000) == expected
    assert {len(each) for each in expected} == {run_steps.id_length}
    assert run_steps.next_ids(1001, 0) == []


def test_keys_are_parted_by_spaces_alone_as_brokers_part_them() -> None:
    queue = MessageQueue("t", "b", 0)
    message = MessageExt("t", b"", {"KEYS": "  one\ttwo  three\u00a0four "}, queue, 0, 0, "id", "id", 0, 0)
    assert message.keys == ("one\ttwo", "three\u00a0four")
