"""Consumers: rebalancing, reading queues, calling listeners, committing offsets, sending messages back.

Uses the message sender of the producers for copies of messages that a broker does not accept back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raptormq.lazy_names import lazy_names

if TYPE_CHECKING:
    from raptormq.client.consumer.consumer import Consumer
    from raptormq.client.consumer.delayed_retry import Retry, RetryKind
    from raptormq.client.consumer.delivery import (
        MessageSequence,
        MessagesToSettle,
        ReceivedBatch,
        ReceivedMessage,
        held_by,
    )
    from raptormq.client.consumer.lanes import message_key
    from raptormq.client.consumer.listener_call import BatchListener, Listener
    from raptormq.client.consumer.lite_pull_consumer import LitePullConsumer
    from raptormq.client.consumer.plain_listeners import PlainListener, in_executor, in_loop
    from raptormq.client.consumer.pop_consumer import MAX_POPPED, PopConsumer
    from raptormq.client.consumer.popped_message import PoppedBatch, PoppedMessage
    from raptormq.client.consumer.pull import PullResult, PullStatus
    from raptormq.client.consumer.pull_consumer import PullConsumer
    from raptormq.client.consumer.push_consumer import PushConsumer
    from raptormq.client.consumer.send_back import is_lasting
    from raptormq.client.consumer.subscription import Sql

__all__ = [
    "MAX_POPPED",
    "BatchListener",
    "Consumer",
    "Listener",
    "LitePullConsumer",
    "MessageSequence",
    "MessagesToSettle",
    "PlainListener",
    "PopConsumer",
    "PoppedBatch",
    "PoppedMessage",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedBatch",
    "ReceivedMessage",
    "Retry",
    "RetryKind",
    "Sql",
    "held_by",
    "in_executor",
    "in_loop",
    "is_lasting",
    "message_key",
]

__getattr__ = lazy_names(
    __name__,
    {
        "raptormq.client.consumer.consumer": "Consumer",
        "raptormq.client.consumer.delayed_retry": "Retry RetryKind",
        "raptormq.client.consumer.delivery": ("MessageSequence MessagesToSettle ReceivedBatch ReceivedMessage held_by"),
        "raptormq.client.consumer.lanes": "message_key",
        "raptormq.client.consumer.listener_call": "BatchListener Listener",
        "raptormq.client.consumer.lite_pull_consumer": "LitePullConsumer",
        "raptormq.client.consumer.plain_listeners": "PlainListener in_executor in_loop",
        "raptormq.client.consumer.pop_consumer": "MAX_POPPED PopConsumer",
        "raptormq.client.consumer.popped_message": "PoppedBatch PoppedMessage",
        "raptormq.client.consumer.pull": "PullResult PullStatus",
        "raptormq.client.consumer.pull_consumer": "PullConsumer",
        "raptormq.client.consumer.push_consumer": "PushConsumer",
        "raptormq.client.consumer.send_back": "is_lasting",
        "raptormq.client.consumer.subscription": "Sql",
    },
)
