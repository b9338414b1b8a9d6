"""The RaptorMQ client: producers, consumers and administration over the RocketMQ remoting protocol, for asyncio.

What is imported here is the public interface; the modules behind it may change.
"""

from raptormq.client.admin import AdminClient, FoundMessages
from raptormq.client.blocking import BlockingAdminClient, BlockingProducer, BlockingPullConsumer
from raptormq.client.config import (
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    MessageModel,
    OnFailure,
    Order,
    ProducerConfig,
    WhenFull,
)
from raptormq.client.consumer import (
    BatchListener,
    Listener,
    PlainListener,
    PullConsumer,
    PullResult,
    PullStatus,
    PushConsumer,
    Sql,
    in_executor,
    in_loop,
    message_key,
)
from raptormq.client.message import MessageBatch, split_messages
from raptormq.client.producer import (
    Callback,
    Producer,
    TransactionProducer,
    TransactionResult,
    TransactionState,
    pick_by_key,
)
from raptormq.client.results import ConsumeResult, SendResult, SendStatus, TopicChange, TopicConfigs
from raptormq.client.security import ClientTls, Credentials, EncryptionKeys, EnvironmentKeys, KeyFile, KeyFolder
from raptormq.protocol.bodies.conversion import QueueConversionState
from raptormq.protocol.bodies.group_progress import GroupConnections, GroupMember, QueueProgress
from raptormq.protocol.bodies.queues import TopicOffset
from raptormq.protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRoute
from raptormq.protocol.bodies.topic_config import Perm, TopicConfig
from raptormq.protocol.compression import Compression
from raptormq.protocol.message import Delay, Message, MessageExt, MessageQueue

__all__ = [
    "AdminClient",
    "BatchListener",
    "BlockingAdminClient",
    "BlockingProducer",
    "BlockingPullConsumer",
    "BrokerData",
    "Callback",
    "ClientConfig",
    "ClientTls",
    "ClusterInfo",
    "Compression",
    "ConsumeFromWhere",
    "ConsumeResult",
    "ConsumerConfig",
    "Credentials",
    "Delay",
    "EncryptionKeys",
    "EnvironmentKeys",
    "FoundMessages",
    "GroupConnections",
    "GroupMember",
    "KeyFile",
    "KeyFolder",
    "Listener",
    "Message",
    "MessageBatch",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "OnFailure",
    "Order",
    "Perm",
    "PlainListener",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueueConversionState",
    "QueueData",
    "QueueProgress",
    "SendResult",
    "SendStatus",
    "Sql",
    "TopicChange",
    "TopicConfig",
    "TopicConfigs",
    "TopicOffset",
    "TopicRoute",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "WhenFull",
    "in_executor",
    "in_loop",
    "message_key",
    "pick_by_key",
    "split_messages",
]
