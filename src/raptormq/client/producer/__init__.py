"""Producers: queue selection, sending with retries, batches that fill up, transactions, requests and replies.

Knows no consumer.
"""

from __future__ import annotations

from raptormq.client.producer.producer import Producer
from raptormq.client.producer.sender import Delivery
from raptormq.client.producer.transactions import TransactionProducer, TransactionResult, TransactionState

__all__ = [
    "Delivery",
    "Producer",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
]
