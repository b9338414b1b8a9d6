"""Delay levels (Apache RocketMQ ``messageDelayLevel``, ``ScheduleMessageService``).

Level ``n`` is queue ``n - 1`` of the topic SCHEDULE_TOPIC_XXXX. The tag codes of these queues are delivery times in ms:
store time plus the delay of the level.
"""

from __future__ import annotations

import re

from raptormq.errors import ConfigError

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
FIRST_RETRY_LEVEL = 3
"""Delay level of the first redelivery of a message (10 s by default). Each further one uses the next level."""
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delays in ms of a ``messageDelayLevel`` value such as ``1s 5s 1m``; level 1 is the first.

    Raises:
        ConfigError: a word is not a number followed by one of ``s m h d``, or there are no words.
    """
    delays = []
    for word in text.split():
        match = re.fullmatch(r"([0-9]+)([smhd])", word)
        if match is None:
            raise ConfigError(f"messageDelayLevel={text!r}: {word!r} is not a time such as 30s, 10m or 2h")
        delays.append(int(match[1]) * _UNIT_MS[match[2]])
    if not delays:
        raise ConfigError("messageDelayLevel is empty, expected times such as 1s 5s 1m")
    return tuple(delays)
