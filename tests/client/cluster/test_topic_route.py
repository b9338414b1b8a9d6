"""Evaluation of a route: queues for sending, queues for receiving, and their brokers."""

from __future__ import annotations

from raptormq.client.cluster.topic_route import topic_queues
from raptormq.protocol.bodies.route import BrokerData, QueueData, TopicRoute
from raptormq.protocol.message import MessageQueue


def names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


ROUTE = TopicRoute(
    [QueueData("b", 3, 2, 6), QueueData("a", 1, 2, 6), QueueData("c", 1, 1, 4), QueueData("d", 1, 1, 2)],
    [
        BrokerData("c", "a", {0: "a:1"}),
        BrokerData("c", "b", {0: "b:1", 1: "b:2"}),
        BrokerData("c", "c", {0: "c:1"}),
        BrokerData("c", "d", {0: "d:1"}),
    ],
)


def test_queues_are_ordered_and_obey_permissions() -> None:
    found = topic_queues("t", ROUTE)
    assert names(found.write_queues) == ["a0", "a1", "b0", "b1", "d0"]
    assert names(found.read_queues) == ["a0", "b0", "b1", "b2", "c0"]
    assert {queue.topic for queue in found.write_queues} == {"t"}
    assert found.writable_brokers == {"a", "b", "d"}


def test_a_broker_without_master_is_read_and_not_written() -> None:
    route = TopicRoute([QueueData("a", 1, 1, 6)], [BrokerData("c", "a", {1: "a:2", 2: "a:3"})])
    found = topic_queues("t", route)
    assert names(found.write_queues) == []
    assert names(found.read_queues) == ["a0"]
    assert found.master("a") is None
    assert found.replica("a") == "a:2"
    assert found.replica("a", 2) == "a:3"
    assert found.replica("nobody") is None


def test_queues_of_a_broker_that_is_not_listed_do_not_exist() -> None:
    found = topic_queues("t", TopicRoute([QueueData("gone", 4, 4, 6)], []))
    assert found.write_queues == found.read_queues == ()


def test_a_borrowed_route_is_capped() -> None:
    found = topic_queues("t", TopicRoute([QueueData("a", 8, 8, 7)], [BrokerData("c", "a", {0: "a:1"})]), most_queues=4)
    assert names(found.write_queues) == ["a0", "a1", "a2", "a3"]


def test_an_order_configuration_replaces_the_write_queues() -> None:
    route = TopicRoute(ROUTE.queues, ROUTE.brokers, "b:1; a:2;broken;c:x")
    assert names(topic_queues("t", route).write_queues) == ["b0", "a0", "a1"]


def test_routes_that_mean_the_same_are_equal() -> None:
    assert topic_queues("t", ROUTE) == topic_queues("t", TopicRoute.from_json(ROUTE.to_json()))
    assert topic_queues("t", ROUTE) != topic_queues("u", ROUTE)
