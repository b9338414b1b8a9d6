"""Pytest plugin: an embedded cluster for the tests of an application.

    def test_orders_are_stored(raptormq_cluster, raptormq_topic):
        with BlockingProducer(name_servers=raptormq_cluster.name_servers) as producer:
            producer.send(Message(raptormq_topic, b"order 17"))
        assert [message.body for message in raptormq_cluster.messages(raptormq_topic)] == [b"order 17"]

``raptormq_cluster`` starts once per session. A test that stops the broker or moves its clock without affecting other
tests uses its own :class:`~raptormq.testing.EmbeddedCluster` in a with block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from raptormq.testing.embedded_cluster import EmbeddedCluster

_NAME_CHARS = 100
_numbers = count(1)


@pytest.fixture(scope="session")
def raptormq_cluster() -> Iterator[EmbeddedCluster]:
    """A name server and a broker in a temporary directory."""
    from raptormq.testing.embedded_cluster import EmbeddedCluster  # only when a test needs it

    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def raptormq_topic(raptormq_cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with four queues, which no other test uses."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:_NAME_CHARS]
    topic = f"{name}-{next(_numbers)}"
    raptormq_cluster.create_topic(topic)
    return topic
