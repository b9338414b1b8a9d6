"""Access to the cluster: connections, name servers, routes and heartbeats.

Independent of producers and consumers, which attach their own parts to the `ClientInstance`.
"""

from __future__ import annotations

from raptormq.client.cluster.broker_call import OffsetRequests, QueueOffset, call_broker
from raptormq.client.cluster.client_instance import ClientInstance, InstanceClient
from raptormq.client.cluster.heartbeats import GRACE_S
from raptormq.client.cluster.metadata import (
    fetch_cluster,
    fetch_route,
    fetch_topics,
    parse_route,
    require_success,
    route_request,
)
from raptormq.client.cluster.routes import ROUTE_ERRORS
from raptormq.client.cluster.topic_route import TopicQueues

__all__ = [
    "GRACE_S",
    "ROUTE_ERRORS",
    "ClientInstance",
    "InstanceClient",
    "OffsetRequests",
    "QueueOffset",
    "TopicQueues",
    "call_broker",
    "fetch_cluster",
    "fetch_route",
    "fetch_topics",
    "parse_route",
    "require_success",
    "route_request",
]
