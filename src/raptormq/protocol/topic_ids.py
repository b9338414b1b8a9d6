"""Topic ids, which distinguish topics that had the same name at different times.

Offsets that are kept outside the broker are meaningless in a topic that was deleted and recreated. A broker group
assigns a unique id to each topic when it is created. Apache RocketMQ has no topic ids. The id travels as an additional
ext field, which brokers and clients that do not know it ignore::

    request    topicId: "?"          asks for the id
    response   topicId: "5f0c..."    absent if the topic has no id
    request    topicId: "5f0c..."    fails with 31002 if the topic has another id, with 17 if it does not exist
    response   (nothing)             the id is the same, or the topic has none

The requests are 11 and 361 (pull), 14, 15 (offsets of a group), 29, 30 and 31 (offsets of a queue). The response to 351
has the id in addition to the members of RocketMQ's ``TopicConfig``. Other responses and registrations keep the form of
``TopicConfig``, so a configuration that a tool copies to another cluster has no id. In ``topics.json`` the id is an
attribute: a broker of Apache RocketMQ that writes the file preserves unknown attributes, but not unknown members.

Source: KIP-516 (Apache Kafka's topic identifiers).
"""

from __future__ import annotations

TOPIC_ID = "topic.id"
"""The attribute in ``topics.json``."""
TOPIC_ID_QUERY = "?"
"""The value in a request that asks for the id."""
