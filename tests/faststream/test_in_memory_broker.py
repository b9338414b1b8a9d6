"""`TestRaptorBroker`: handlers without servers, and the broker in the AsyncAPI specification."""

from __future__ import annotations

from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import IncorrectState, RejectMessage, SubscriberNotFound
from faststream.message import AckStatus
from faststream.specification.asyncapi import AsyncAPI
from pydantic import BaseModel, ValidationError

from raptormq.client import ConsumerConfig, Order, Sql
from raptormq.errors import ConfigError
from raptormq.faststream import (
    RaptorBroker,
    RaptorMessage,
    RaptorPublisherRoute,
    RaptorResponse,
    RaptorRoute,
    RaptorRouter,
    TestRaptorBroker,
)
from raptormq.faststream.message import OrderedMessage

UNUSED = "127.0.0.1:1"


class Purchase(BaseModel):
    """A type of the application."""

    number: int


async def test_a_message_goes_to_one_subscriber_of_each_group_by_its_tag() -> None:
    broker = RaptorBroker(UNUSED)
    calls: list[str] = []

    def handler(name: str) -> Any:
        async def handle(order: Purchase) -> None:
            calls.append(f"{name} {order.number}")

        return handle

    for name, group, expression in (
        ("first", "a", "*"),
        ("second", "b", "paid || refunded"),
        ("third", "c", "cancelled"),
        ("fourth", "d", Sql("price > 5")),
    ):
        broker.subscriber("orders", group=group, expression=expression)(handler(name))
    async with TestRaptorBroker(broker) as test:
        await test.publish(Purchase(number=1), "orders", tag="paid")
        assert sorted(calls) == ["first 1", "fourth 1", "second 1"]
        await test.publish(Purchase(number=2), "other topic")
        assert len(calls) == 3


async def test_mocks_of_handlers_and_publishers_know_their_calls() -> None:
    broker = RaptorBroker(UNUSED)
    publisher = broker.publisher("invoices", tag="new")

    @broker.subscriber("orders", group="billing", order=Order.BY_KEY)
    @publisher
    async def bill(order: Purchase, message: RaptorMessage) -> RaptorResponse:
        assert message.raw_message.properties["__SHARDINGKEY"] == "customer 7"
        return RaptorResponse({"total": order.number * 2}, key="customer 7")

    async with TestRaptorBroker(broker) as test:
        result = await test.publish({"number": 4}, "orders", key="customer 7")
        assert result.queue.topic == "orders"
        bill.mock.assert_called_once_with({"number": 4})
        publisher.mock.assert_called_once_with({"total": 8})
        with pytest.raises(ValidationError):
            await test.publish({"number": "many"}, "orders")
    with pytest.raises(IncorrectState, match="not connected"):
        await broker.publish("x", "orders")


async def test_what_a_handler_decides_is_in_its_message() -> None:
    broker = RaptorBroker(UNUSED)
    decided: list[Any] = []

    @broker.subscriber("orders", group="deciding", ack_policy=AckPolicy.MANUAL)
    async def decide(body: str, message: RaptorMessage) -> None:
        await {"ack": message.ack, "nack": message.nack, "reject": message.reject}[body]()
        await message.ack()  # a decision is made once
        assert isinstance(message.raw_message, OrderedMessage)
        decided.append((message.committed, message.raw_message.is_acked, message.raw_message.is_rejected))

    @broker.subscriber("others", group="raising")
    async def refuse(body: str) -> None:
        raise RejectMessage

    async with TestRaptorBroker(broker) as test:
        for body in ("ack", "nack", "reject"):
            await test.publish(body, "orders")
        await test.publish("x", "others")
    assert decided == [
        (AckStatus.ACKED, True, False),
        (AckStatus.NACKED, False, False),
        (AckStatus.REJECTED, False, True),
    ]


async def test_a_request_has_the_result_of_its_handler() -> None:
    broker = RaptorBroker(UNUSED)

    @broker.subscriber("numbers", group="doubling")
    async def double(number: int) -> RaptorResponse:
        return RaptorResponse(2 * number, headers={"unit": "pieces"})

    async with TestRaptorBroker(broker) as test:
        reply = await test.request(21, "numbers")
        assert (await reply.decode(), reply.headers["unit"]) == (42, "pieces")
        with pytest.raises(SubscriberNotFound, match="no subscriber receives"):
            await test.request(21, "letters")


async def test_routes_are_declared_as_values() -> None:
    async def shout(body: str) -> str:
        return body.upper()

    route = RaptorRoute(shout, "in", group="shouting", publishers=[RaptorPublisherRoute("out")])
    broker = RaptorBroker(UNUSED, routers=[RaptorRouter("a-", [route])])
    heard: list[str] = []

    @broker.subscriber("a-out", group="hearing")
    async def hear(body: str) -> None:
        heard.append(body)

    async with TestRaptorBroker(broker) as test:
        await test.publish("hello", "a-in")
    assert heard == ["HELLO"]


async def test_two_brokers_publish_to_each_other() -> None:
    one, other = RaptorBroker(UNUSED), RaptorBroker(UNUSED)
    heard: list[str] = []

    for broker in (one, other):

        @broker.subscriber("out", group="hearing")
        async def hear(body: str) -> None:
            heard.append(body)

    @other.subscriber("out", group="listening")
    async def listen(body: str) -> None:
        heard.append(body.upper())

    async with TestRaptorBroker(one, other) as (test, _):
        await test.publish("hello", "out")
    assert sorted(heard) == ["HELLO", "hello"]


def test_the_specification_names_topics_and_payloads() -> None:
    broker = RaptorBroker("ns-0:9876;ns-1:9876", description="Billing")

    @broker.subscriber("orders", group="billing", description="Bills an order")
    @broker.publisher("invoices", title="Invoices")
    async def bill(order: Purchase) -> Purchase:
        return order

    specification = AsyncAPI(broker).to_specification().to_jsonable()
    assert {channel["address"] for channel in specification["channels"].values()} == {"orders", "invoices"}
    assert {server["host"] for server in specification["servers"].values()} == {"ns-0:9876", "ns-1:9876"}
    assert {server["protocol"] for server in specification["servers"].values()} == {"rocketmq"}
    assert "Purchase" in specification["components"]["schemas"]


def test_wrong_settings_are_errors_at_once() -> None:
    broker = RaptorBroker(UNUSED)
    with pytest.raises(ConfigError, match="concurrency"):
        broker.subscriber("orders", group="g", max_workers=0)
    with pytest.raises(ConfigError, match="order_key"):
        broker.subscriber(
            "orders", group="g", order=Order.NONE, config=ConsumerConfig(order=Order.BY_KEY, order_key=lambda _: 1)
        )
    with pytest.raises(ConfigError, match="max_records and batch_timeout_ms need batch=True"):
        broker.subscriber("orders", group="g", max_records=5)
    with pytest.raises(ConfigError, match="max_records must be a whole number above 0"):
        broker.subscriber("orders", group="g", batch=True, max_records=0)
    with pytest.raises(ConfigError, match=r"nowhere"):
        RaptorBroker("nowhere")


async def test_a_message_in_order_has_no_pause_of_its_own() -> None:
    broker = RaptorBroker(UNUSED)

    @broker.subscriber("orders", group="ordered", order=Order.BY_KEY, ack_policy=AckPolicy.MANUAL)
    async def wait(body: str, message: RaptorMessage) -> None:
        await message.nack(after=5.0)

    async with TestRaptorBroker(broker) as test:
        with pytest.raises(ConfigError, match="retry_pause"):
            await test.publish("x", "orders")


async def test_a_batch_has_one_message_in_a_test() -> None:
    broker = RaptorBroker(UNUSED)

    @broker.subscriber("orders", group="g", batch=True)
    @broker.publisher("invoices")
    async def bill(orders: list[Purchase]) -> list[int]:
        return [order.number for order in orders]

    async with TestRaptorBroker(broker) as test:
        await test.publish(Purchase(number=17), "orders")
        bill.mock.assert_called_once_with([{"number": 17}])


async def test_options_of_a_publisher_are_defaults_and_unknown_ones_are_errors() -> None:
    broker = RaptorBroker(UNUSED)
    received: list[tuple[str | None, dict[str, str]]] = []

    @broker.subscriber("orders", group="g")
    async def handle(body: str, message: RaptorMessage) -> str:
        received.append((message.raw_message.tags, message.headers))
        return body.upper()

    publisher = broker.publisher("orders", tag="paid", headers={"a": "1", "b": "1"})
    async with TestRaptorBroker(broker) as test:
        await publisher.publish("x", headers={"b": "2"}, correlation_id="flow")
        assert await (await publisher.request("x", tag="other")).decode() == "X"
        assert await (await test.request("x", "orders", headers={"c": "3"})).decode() == "X"
        for call in (test.request, test.publish, publisher.request, publisher.publish):
            with pytest.raises(TypeError, match="has no argument partition; options are key, tag, headers"):
                await call("x", "orders", partition=1)  # type: ignore[call-arg] # wrong on purpose
        with pytest.raises(TypeError, match="request has no argument delay"):
            await test.request("x", "orders", delay=None)  # type: ignore[call-arg] # wrong on purpose
    names = {"a", "b", "c"}
    assert [(tag, {name: value for name, value in headers.items() if name in names}) for tag, headers in received] == [
        ("paid", {"a": "1", "b": "2"}),
        ("other", {"a": "1", "b": "1"}),
        (None, {"c": "3"}),
    ]
    assert received[0][1]["correlation_id"] == "flow"
