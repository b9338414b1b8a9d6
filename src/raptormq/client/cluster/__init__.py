"""The cluster as a client sees it: connections, name servers, routes, heartbeats.

Knows no producer and no consumer; they attach their parts to the `ClientInstance`.
"""

from __future__ import annotations

from raptormq.client.cluster.broker_call import OffsetRequests, QueueOffset, at_broker
from raptormq.client.cluster.client_instance import ClientInstance
from raptormq.client.cluster.heartbeats import PATIENCE_S
from raptormq.client.cluster.metadata import cluster_of, require_success, route_in, route_of, route_request, topics_of
from raptormq.client.cluster.routes import ROUTE_ERRORS
from raptormq.client.cluster.topic_route import TopicQueues

__all__ = [
    "PATIENCE_S",
    "ROUTE_ERRORS",
    "ClientInstance",
    "OffsetRequests",
    "QueueOffset",
    "TopicQueues",
    "at_broker",
    "cluster_of",
    "require_success",
    "route_in",
    "route_of",
    "route_request",
    "topics_of",
]
