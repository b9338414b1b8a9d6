"""The response to INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), decoded like in administration tools
(``GetConsumerStatusBody``).
"""

from __future__ import annotations

from raptormq.protocol.bodies.members import object_at
from raptormq.protocol.bodies.queues import keyed_by_queues
from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.message import MessageQueue


def decode_group_progress(data: bytes) -> dict[str, dict[MessageQueue, int]]:
    """Return the offsets of each member by its client id."""
    members = object_at(loads_object(data), "consumerTable")
    return {client_id: dict(keyed_by_queues(members, client_id)) for client_id in members}
