"""The tag code that a consume queue keeps of a record when only the record is at hand, as in a recovery.

Source: Apache RocketMQ ``CommitLog.checkMessageAndReturnSize``: the hash of the TAGS property or, in the topic of
delayed messages, the time at which the message is due.
"""

from __future__ import annotations

import re

from raptormq.errors import ConfigError
from raptormq.protocol.properties import DELAY, TAGS, find_property
from raptormq.protocol.tags import tag_hash
from raptormq.protocol.topic_names import SCHEDULE_TOPIC

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delays in ms of a ``messageDelayLevel`` value such as ``1s 5s 1m``; level 1 is the first.

    Raises:
        ConfigError: a word is not a number and one of ``s m h d``.
    """
    delays = []
    for word in text.split():
        match = re.fullmatch(r"([0-9]+)([smhd])", word)
        if match is None:
            raise ConfigError(f"messageDelayLevel={text!r}: {word!r} is not a time such as 30s, 10m or 2h")
        delays.append(int(match[1]) * _UNIT_MS[match[2]])
    return tuple(delays)


def tag_code_of(topic: str, properties: str, store_timestamp: int, delays_ms: tuple[int, ...]) -> int:
    """Return the tag code of a record."""
    if topic == SCHEDULE_TOPIC and delays_ms:
        level = find_property(properties, DELAY) or ""
        if level.isascii() and level.isdigit() and int(level) > 0:
            return store_timestamp + delays_ms[min(int(level), len(delays_ms)) - 1]
    return tag_hash(find_property(properties, TAGS))
