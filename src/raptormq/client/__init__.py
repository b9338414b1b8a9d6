"""The RaptorMQ client: producers, consumers and administration over the RocketMQ remoting protocol, for asyncio.

The public interface consists of the names imported here. Submodules may change without notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raptormq.lazy_names import lazy_names

if TYPE_CHECKING:
    from raptormq.client.admin import AdminClient, FoundMessages, GroupSettings
    from raptormq.client.allocation import (
        AllocateStrategy,
        Averagely,
        AveragelyByCircle,
        ByConfig,
        ByMachineRoom,
        ConsistentHash,
        MachineRoomNearby,
    )
    from raptormq.client.blocking import BlockingAdminClient, BlockingProducer, BlockingPullConsumer
    from raptormq.client.blocking_consumer import (
        BlockingConsumer,
        BlockingLitePullConsumer,
        BlockingPopConsumer,
        BlockingPoppedBatch,
        BlockingPoppedMessage,
        BlockingReceivedBatch,
        BlockingReceivedMessage,
    )
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
        Consumer,
        Listener,
        LitePullConsumer,
        PlainListener,
        PopConsumer,
        PoppedBatch,
        PoppedMessage,
        PullConsumer,
        PullResult,
        PullStatus,
        PushConsumer,
        ReceivedBatch,
        ReceivedMessage,
        Retry,
        RetryKind,
        Sql,
        in_executor,
        in_loop,
        message_key,
    )
    from raptormq.client.description import (
        BrokerDescription,
        ConsumerDescription,
        ProducerDescription,
        QueueDescription,
        ReadState,
        WorkerDescription,
        as_dict,
    )
    from raptormq.client.interceptors import (
        BackpressureContext,
        ConsumeContext,
        ConsumerInterceptor,
        ConsumeStatus,
        DeadLetterContext,
        Described,
        EndTransactionContext,
        ProducerInterceptor,
        QueueChange,
        RebalanceContext,
        SendContext,
    )
    from raptormq.client.message import EncodedBatch, MessageBatch, split_messages
    from raptormq.client.producer import (
        Callback,
        Producer,
        StagedCommit,
        StagingClient,
        TransactionProducer,
        TransactionResult,
        pick_by_key,
    )
    from raptormq.client.rebalance_listener import RebalanceListener
    from raptormq.client.results import (
        ConsumeResult,
        SendResult,
        SendStatus,
        TopicChange,
        TopicConfigs,
        TransactionState,
    )
    from raptormq.client.security import ClientTls, Credentials, EncryptionKeys, EnvironmentKeys, KeyFile, KeyFolder
    from raptormq.protocol.bodies.access import Acl, AclEntry, UserInfo
    from raptormq.protocol.bodies.conversion import QueueConversionState
    from raptormq.protocol.bodies.group_progress import GroupConnections, GroupMember, QueueProgress
    from raptormq.protocol.bodies.queues import TopicOffset
    from raptormq.protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRoute
    from raptormq.protocol.bodies.topic_config import Perm, TopicConfig
    from raptormq.protocol.compression import Compression
    from raptormq.protocol.message import Delay, Message, MessageExt, MessageQueue

__all__ = [
    "Acl",
    "AclEntry",
    "AdminClient",
    "AllocateStrategy",
    "Averagely",
    "AveragelyByCircle",
    "BackpressureContext",
    "BatchListener",
    "BlockingAdminClient",
    "BlockingConsumer",
    "BlockingLitePullConsumer",
    "BlockingPopConsumer",
    "BlockingPoppedBatch",
    "BlockingPoppedMessage",
    "BlockingProducer",
    "BlockingPullConsumer",
    "BlockingReceivedBatch",
    "BlockingReceivedMessage",
    "BrokerData",
    "BrokerDescription",
    "ByConfig",
    "ByMachineRoom",
    "Callback",
    "ClientConfig",
    "ClientTls",
    "ClusterInfo",
    "Compression",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeResult",
    "ConsumeStatus",
    "Consumer",
    "ConsumerConfig",
    "ConsumerDescription",
    "ConsumerInterceptor",
    "Credentials",
    "DeadLetterContext",
    "Delay",
    "Described",
    "EncodedBatch",
    "EncryptionKeys",
    "EndTransactionContext",
    "EnvironmentKeys",
    "FoundMessages",
    "GroupConnections",
    "GroupMember",
    "GroupSettings",
    "KeyFile",
    "KeyFolder",
    "Listener",
    "LitePullConsumer",
    "MachineRoomNearby",
    "Message",
    "MessageBatch",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "OnFailure",
    "Order",
    "Perm",
    "PlainListener",
    "PopConsumer",
    "PoppedBatch",
    "PoppedMessage",
    "Producer",
    "ProducerConfig",
    "ProducerDescription",
    "ProducerInterceptor",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueueChange",
    "QueueConversionState",
    "QueueData",
    "QueueDescription",
    "QueueProgress",
    "ReadState",
    "RebalanceContext",
    "RebalanceListener",
    "ReceivedBatch",
    "ReceivedMessage",
    "Retry",
    "RetryKind",
    "SendContext",
    "SendResult",
    "SendStatus",
    "Sql",
    "StagedCommit",
    "StagingClient",
    "TopicChange",
    "TopicConfig",
    "TopicConfigs",
    "TopicOffset",
    "TopicRoute",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "UserInfo",
    "WhenFull",
    "WorkerDescription",
    "as_dict",
    "in_executor",
    "in_loop",
    "message_key",
    "pick_by_key",
    "split_messages",
]

__getattr__ = lazy_names(
    __name__,
    {
        "raptormq.client.admin": "AdminClient FoundMessages GroupSettings",
        "raptormq.client.allocation": (
            "AllocateStrategy Averagely AveragelyByCircle ByConfig ByMachineRoom ConsistentHash MachineRoomNearby"
        ),
        "raptormq.client.blocking": "BlockingAdminClient BlockingProducer BlockingPullConsumer",
        "raptormq.client.blocking_consumer": (
            "BlockingConsumer BlockingLitePullConsumer BlockingPopConsumer BlockingPoppedBatch "
            "BlockingPoppedMessage BlockingReceivedBatch BlockingReceivedMessage"
        ),
        "raptormq.client.config": (
            "ClientConfig ConsumeFromWhere ConsumerConfig MessageModel OnFailure Order ProducerConfig WhenFull"
        ),
        "raptormq.client.consumer": (
            "BatchListener Consumer Listener LitePullConsumer PlainListener PopConsumer PoppedBatch PoppedMessage "
            "PullConsumer PullResult PullStatus PushConsumer ReceivedBatch ReceivedMessage Retry RetryKind Sql "
            "in_executor in_loop message_key"
        ),
        "raptormq.client.description": (
            "BrokerDescription ConsumerDescription ProducerDescription QueueDescription ReadState WorkerDescription "
            "as_dict"
        ),
        "raptormq.client.interceptors": (
            "BackpressureContext ConsumeContext ConsumerInterceptor ConsumeStatus DeadLetterContext Described "
            "EndTransactionContext ProducerInterceptor QueueChange RebalanceContext SendContext"
        ),
        "raptormq.client.message": "EncodedBatch MessageBatch split_messages",
        "raptormq.client.producer": (
            "Callback Producer StagedCommit StagingClient TransactionProducer TransactionResult pick_by_key"
        ),
        "raptormq.client.rebalance_listener": "RebalanceListener",
        "raptormq.client.results": "ConsumeResult SendResult SendStatus TopicChange TopicConfigs TransactionState",
        "raptormq.client.security": "ClientTls Credentials EncryptionKeys EnvironmentKeys KeyFile KeyFolder",
        "raptormq.protocol.bodies.access": "Acl AclEntry UserInfo",
        "raptormq.protocol.bodies.conversion": "QueueConversionState",
        "raptormq.protocol.bodies.group_progress": "GroupConnections GroupMember QueueProgress",
        "raptormq.protocol.bodies.queues": "TopicOffset",
        "raptormq.protocol.bodies.route": "BrokerData ClusterInfo QueueData TopicRoute",
        "raptormq.protocol.bodies.topic_config": "Perm TopicConfig",
        "raptormq.protocol.compression": "Compression",
        "raptormq.protocol.message": "Delay Message MessageExt MessageQueue",
    },
)
