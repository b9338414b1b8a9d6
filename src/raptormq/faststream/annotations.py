"""Annotations of handler parameters: the message, the broker and the producer of the call."""

from __future__ import annotations

from typing import Annotated

from faststream import Context

from raptormq.client import Producer as ClientProducer
from raptormq.faststream.broker import RaptorBroker as Broker
from raptormq.faststream.message import StreamRaptorBatch, StreamRaptorMessage

RaptorMessage = Annotated[StreamRaptorMessage, Context("message")]
"""The message of the call, with ``ack``, ``nack`` and ``reject``."""
RaptorBatch = Annotated[StreamRaptorBatch, Context("message")]
"""The batch of the call, for a subscriber with ``batch=True``."""
RaptorBroker = Annotated[Broker, Context("broker")]
"""The broker that calls the handler."""
Producer = Annotated[ClientProducer, Context("broker._connection")]
"""The producer of the broker."""
