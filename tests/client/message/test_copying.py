"""Copies of messages that applications cannot change."""

from __future__ import annotations

from collections import UserDict, deque
from dataclasses import astuple, dataclass, fields
from typing import Any, cast

import pytest

from raptormq.client import Delay, Message
from raptormq.client.message import snapshot


@dataclass(slots=True)
class Order(Message):
    """A message with a field and a value of the application."""

    number: int = 0


def full(kind: type[Message]) -> Message:
    return kind("t", b"body", "tag", ("k1", "k2"), {"colour": "red"}, -7, False, Delay.by(1.0), 3)


@pytest.mark.parametrize("kind", [Message, Order])
def test_a_copy_has_every_field(kind: type[Message]) -> None:
    message = full(kind)
    assert all(getattr(message, each.name) != each.default for each in fields(Message))
    copied = snapshot(message)
    assert type(copied) is kind
    assert copied is not message
    assert astuple(copied) == astuple(message)
    assert copied.body is message.body


@pytest.mark.parametrize("kind", [Message, Order])
@pytest.mark.parametrize(
    ("name", "make", "change"),
    [
        ("body", lambda: bytearray(b"old"), lambda body: body.__setitem__(0, 0)),
        ("body", lambda: memoryview(bytearray(b"old")), lambda body: body.__setitem__(0, 0)),
        ("keys", lambda: ["old"], lambda keys: keys.append("new")),
        ("keys", lambda: {"old"}, lambda keys: keys.add("new")),
        ("keys", lambda: deque(["old"]), lambda keys: keys.append("new")),
        ("properties", dict, lambda properties: properties.update(new="1")),
        ("properties", lambda: UserDict(old="1"), lambda properties: properties.update(new="1")),
    ],
)
def test_a_changed_value_does_not_change_the_copy(kind: type[Message], name: str, make: Any, change: Any) -> None:
    message, given = full(kind), make()
    setattr(message, name, given)
    copied = snapshot(message)
    before = list(getattr(copied, name))
    change(given)
    assert list(given) != before
    assert list(getattr(copied, name)) == before


@pytest.mark.parametrize("value", [None, 7, "text", b"bytes", [b"a list"]])
def test_what_is_no_message_stays_as_it_is(value: object) -> None:
    assert snapshot(cast("Message", value)) is value


@pytest.mark.parametrize("value", [None, 7, "text"])
def test_invalid_values_stay_as_they_are(value: Any) -> None:
    message = Message("t", value, keys=value, properties=value)
    assert snapshot(message) == message
