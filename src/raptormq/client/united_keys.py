"""The keys of a list of messages, as its batch carries them. Pure.

A broker finds the messages of a batch that is compressed or encrypted as a whole by the keys that the batch itself has,
as those of Apache RocketMQ do for every batch. Neighbours: `outgoing` sends lists, `accumulator` unites the keys of
what it merges, within the same bound. Source: RocketMQ `ProduceAccumulator.MessageAccumulation`.
"""

from __future__ import annotations

from collections.abc import Iterable

from raptormq.protocol.message import Message

MAX_KEYS_CHARS = 4096
"""Keys and separators of one batch, in characters: with up to 4 bytes each they fit the properties of a request."""


def united_keys(messages: Iterable[Message]) -> list[str]:
    """Return the keys of all messages, once each and in order, up to the first one that is too much for one batch.

    A list is sent as one batch or not at all, so what does not fit is left out instead of being refused: keys are for
    finding messages, and the message is worth more.
    """
    chars = 0
    united: dict[str, None] = {}
    for message in messages:
        for key in message.keys:
            if key not in united:
                chars += len(key) + 1
                if chars > MAX_KEYS_CHARS:
                    return list(united)
                united[key] = None
    return list(united)
