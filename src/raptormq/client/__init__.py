"""The RaptorMQ client: producers, consumers and administration over the RocketMQ remoting protocol, for asyncio.

What is imported here is the public interface; the modules behind it may change.
"""

from raptormq.client.config import ClientConfig, ConsumeFromWhere, ConsumerConfig, ProducerConfig
from raptormq.client.results import ConsumeResult, SendResult, SendStatus
from raptormq.protocol.message import Message, MessageExt, MessageQueue

__all__ = [
    "ClientConfig",
    "ConsumeFromWhere",
    "ConsumeResult",
    "ConsumerConfig",
    "Message",
    "MessageExt",
    "MessageQueue",
    "ProducerConfig",
    "SendResult",
    "SendStatus",
]
