"""What attributes of topics are called, and the two types of queues (Apache RocketMQ ``TopicAttributes``, ``CQType``).

Which values an attribute takes, and which may be changed, is for brokers to say.
"""

from __future__ import annotations

QUEUE_TYPE = "queue.type"
SIMPLE_CQ = "SimpleCQ"
"""A queue with one item for each message: what a topic has that says nothing."""
BATCH_CQ = "BatchCQ"
"""A queue with one item for each batch."""
MESSAGE_TYPE = "message.type"
