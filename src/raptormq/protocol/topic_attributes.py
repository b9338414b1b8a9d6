"""Names of topic attributes, and the two types of queues (Apache RocketMQ ``TopicAttributes``, ``CQType``).

Brokers decide which values are valid and which attributes may be changed.
"""

from __future__ import annotations

QUEUE_TYPE = "queue.type"
SIMPLE_CQ = "SimpleCQ"
"""A queue with one item per message; the default."""
BATCH_CQ = "BatchCQ"
"""A queue with one item per batch."""
MESSAGE_TYPE = "message.type"
MIXED = "MIXED"
"""``message.type`` of a topic for messages of all types."""
PRIORITY = "PRIORITY"
"""``message.type`` of a topic whose messages have priorities (RIP-80)."""
LITE = "LITE"
"""``message.type`` of a parent of lite topics (RIP-83)."""
