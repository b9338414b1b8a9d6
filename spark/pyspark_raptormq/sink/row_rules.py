"""Rules for the contents of rows to write, beyond those of the producer: names of topics, tags and properties. No I/O.

`options` checks option topic, `rows` the columns, `encoder` leaves rows that break a rule to `rows`. Each function
returns what is wrong, or None.
"""

from __future__ import annotations

from collections.abc import Iterable

from raptormq.client.message import REFUSED_PROPERTIES
from raptormq.errors import MessageError
from raptormq.protocol.tags import SUBSCRIBE_ALL
from raptormq.protocol.topic_names import BENCHMARK_TOPIC, check_topic, is_derived_topic, is_system_topic


def topic_fault(topic: str) -> str | None:
    """Check the name of a topic. Rows for a retry topic would be delivered to the members of its group."""
    try:
        check_topic(topic)
    except MessageError as error:
        return str(error)
    if is_derived_topic(topic):
        return f"topic {topic} belongs to a consumer group, for messages that it has not consumed: use another topic"
    if is_system_topic(topic) and topic != BENCHMARK_TOPIC:
        return f"topic {topic} belongs to the brokers: use another topic"
    return None


def tag_fault(tag: str) -> str | None:
    """Check a tag that is not empty. Filters have no blanks around tags, and `*` means all messages."""
    if tag == SUBSCRIBE_ALL or tag != tag.strip():
        return f"no filter can select the tag {tag!r:.40}; a row without a tag has null"
    return None


def keys_fault(keys: Iterable[str]) -> str | None:
    """Check the keys of a row, of an array column."""
    if any(not key or " " in key for key in keys):
        return f"a key must have at least one character and no space, unlike one of {list(keys)!r:.80}"
    return None


def properties_fault(names: Iterable[str]) -> str | None:
    """Check the names in column properties."""
    reserved = sorted(REFUSED_PROPERTIES.intersection(names))
    if not reserved:
        return None
    return (
        f"column properties has the reserved names {', '.join(reserved)}. Read the source with "
        "includeProperties=user, which leaves them out, and write the columns tags and keys"
    )
