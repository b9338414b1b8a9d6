"""RocketMQ's message trace: records of each send and consumption, as messages of a topic that `mqadmin
queryMsgTraceById` and RocketMQ's dashboard read.

Free of network access: `producer.message_trace` sends the collected records.
"""

from __future__ import annotations

from raptormq.client.trace.dispatcher import TraceDispatcher
from raptormq.client.trace.interceptor import TraceInterceptor
from raptormq.client.trace.records import TraceData

__all__ = ["TraceData", "TraceDispatcher", "TraceInterceptor"]
