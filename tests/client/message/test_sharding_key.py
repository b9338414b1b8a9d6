"""The sharding key that `key=` gives to a message."""

from __future__ import annotations

import pytest

from raptormq.client import Message
from raptormq.client.message import with_sharding_key
from raptormq.errors import MessageError


def test_the_message_of_the_application_stays_as_it_is() -> None:
    message = Message("t", b"x", properties={"p": "1"})
    assert with_sharding_key(message, "k").properties == {"p": "1", "__SHARDINGKEY": "k"}
    assert message.properties == {"p": "1"}
    assert with_sharding_key(message, "") is message


def test_another_sharding_key_is_refused() -> None:
    message = Message("t", b"x", properties={"__SHARDINGKEY": "a"})
    assert with_sharding_key(message, "a") == message
    with pytest.raises(MessageError, match=r"has the sharding key 'a', and is sent with key='b'"):
        with_sharding_key(message, "b")
