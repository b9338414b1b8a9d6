"""The id of a topic: which of the topics that have had a name, one after the other, somebody means.

Offsets that are remembered outside the broker say nothing in a topic that was deleted and made again. A broker group
gives each topic an id when it is made, and no other topic ever gets it; Apache RocketMQ has none. It travels as one
more ext field, which brokers and clients that do not know it leave unread::

    request    topicId: "?"          tell me the id
    answer     topicId: "5f0c..."    absent where the topic has none
    request    topicId: "5f0c..."    I mean this topic: 31002 if it is another one, 17 if it is gone
    answer     (nothing)             it is that one, or has no id

in 11 and 361 (pull), 14, 15 (progress of a group), 29, 30 and 31 (offsets of a queue). The answer to 351 has it beside
the members of RocketMQ's ``TopicConfig``, in whose form other answers and registrations stay: what a tool copies from
one cluster to another has no id. In ``topics.json`` it is an attribute: a broker of Apache RocketMQ that writes the
file keeps attributes that it does not know, but no members.

Source: KIP-516 (Apache Kafka's topic identifiers).
"""

from __future__ import annotations

TOPIC_ID = "topic.id"
"""The attribute in ``topics.json``."""
TOPIC_ID_QUERY = "?"
"""What a request says that wants to know."""
