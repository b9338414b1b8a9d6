"""Producers: queue selection, sending with retries, AutoBatch, transactions, request and reply.

Knows no consumer.
"""

from __future__ import annotations

from raptormq.client.producer.callbacks import Callback
from raptormq.client.producer.message_trace import MessageTrace
from raptormq.client.producer.producer import Producer
from raptormq.client.producer.queue_selector import pick_by_key
from raptormq.client.producer.sender import MessageSender
from raptormq.client.producer.staging import StagedCommit, StagingClient
from raptormq.client.producer.transactions import TransactionProducer, TransactionResult

__all__ = [
    "Callback",
    "MessageSender",
    "MessageTrace",
    "Producer",
    "StagedCommit",
    "StagingClient",
    "TransactionProducer",
    "TransactionResult",
    "pick_by_key",
]
