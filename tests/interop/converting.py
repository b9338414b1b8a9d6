"""Conversion of the queues of a topic of RaptorMQ, for tests of clients and tools afterwards."""

from __future__ import annotations

import asyncio

from raptormq.client import AdminClient, QueueConversionState
from tests.interop.raptormq_dev import RaptorMQDev


async def convert(servers: RaptorMQDev, topic: str, queue_type: str) -> QueueConversionState:
    """Convert the queues of a topic. Return the final state."""
    async with AdminClient(name_servers=servers.name_servers) as admin:
        address = f"127.0.0.1:{servers.broker_port}"
        state = await admin.convert_queue(address, topic, "start", queue_type)
        while state.is_under_way:
            await asyncio.sleep(0.01)
            state = await admin.convert_queue(address, topic, "status")
        return state
