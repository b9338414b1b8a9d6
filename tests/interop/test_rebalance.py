"""Groups with Java and Python members on Apache RocketMQ: every queue has one reader with every strategy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.client import (
    AllocateStrategy,
    Averagely,
    AveragelyByCircle,
    ConsistentHash,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    MessageQueue,
)
from tests.client.consumer.test_rebalance_calls import Told
from tests.client.eventually import eventually
from tests.interop.allocations import GOLDEN, ask_java, cases
from tests.interop.make_reference import PATIENCE
from tests.interop.rocketmq_java import JavaBuild, Release, RocketMQServers, build, java
from tests.interop.test_python_consumers import create_topic

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

MEMBER = "io.raptormq.interop.rebalance.Member"
QUEUES = 12


@pytest.fixture(scope="module")
def built() -> JavaBuild:
    return build()


@pytest.fixture(scope="module")
def name_servers(built: JavaBuild, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    servers = RocketMQServers(built, tmp_path_factory.mktemp("rocketmq"), settings=PATIENCE, release=Release.NEWEST)
    servers.start()
    yield servers.name_servers
    servers.kill()


def test_the_official_client_divides_as_recorded(built: JavaBuild, tmp_path: Path) -> None:
    recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))
    made = cases()
    assert [case | {"shares": share} for case, share in zip(made, ask_java(built, made, tmp_path), strict=True)] == (
        recorded
    )


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("AVG", Averagely()), ("AVG_BY_CIRCLE", AveragelyByCircle()), ("CONSISTENT_HASH", ConsistentHash())],
)
async def test_java_and_python_share_queues(
    name_servers: str, built: JavaBuild, tmp_path: Path, name: str, strategy: AllocateStrategy
) -> None:
    topic = f"shared-{name}"
    await create_topic(name_servers, topic, QUEUES)
    theirs: list[set[MessageQueue]] = [set(), set()]

    def member(number: int) -> Iterator[None]:
        def changed(line: str) -> None:
            if line.startswith("queues "):
                listed = json.loads(line.removeprefix("queues "))
                theirs[number] = {MessageQueue(topic, broker, queue) for broker, queue in listed}

        process = java(
            MEMBER,
            [name_servers, f"g-{name}", topic, name],
            class_path=built.client_class_path(Release.NEWEST),
            log=tmp_path / f"member-{number}.log",
            options=[f"-Drocketmq.client.name=java-{number}"],
            on_line=changed,
        )
        yield
        process.stop()

    java_members = [member(0), member(1)]
    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, rebalance_interval=1.0, allocate_strategy=strategy)
    everything = {MessageQueue(topic, "broker-a", number) for number in range(QUEUES)}

    def shares(*ours: Consumer) -> list[set[MessageQueue]]:
        return [*({queue for queue in each.assignment if queue.topic == topic} for each in ours), *theirs]

    def is_divided(*ours: Consumer) -> bool:
        now = shares(*ours)
        return set().union(*now) == everything and sum(map(len, now)) == QUEUES

    try:
        for each in java_members:
            next(each)
        consumers = [Consumer(f"g-{name}", name_servers=name_servers, config=replace(config)) for _ in range(2)]
        for consumer in consumers:
            consumer.subscribe(topic)
        async with consumers[0]:
            async with consumers[1]:
                await eventually(lambda: is_divided(*consumers) and all(theirs))
                if name != "CONSISTENT_HASH":
                    await eventually(lambda: [len(share) for share in shares(*consumers)] == [3, 3, 3, 3])
            await eventually(lambda: is_divided(consumers[0]))
    finally:
        for each in java_members:
            next(each, None)


async def test_a_revoked_queue_is_told_before_its_next_owner(name_servers: str) -> None:
    await create_topic(name_servers, "told", 4)
    events: list[str] = []
    first, second = Told("first", events, "told"), Told("second", events, "told")

    def member(told: Told) -> Consumer:
        config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, rebalance_interval=1.0, rebalance_listener=told)
        consumer = Consumer("g-told", name_servers=name_servers, config=config)
        consumer.subscribe("told")
        return consumer

    async with member(first):
        await eventually(lambda: first.queues == {0, 1, 2, 3})
        async with member(second):
            await eventually(lambda: len(second.queues) == 2 and first.queues | second.queues == {0, 1, 2, 3})
            for number in second.queues:
                assert events.index(f"first gives up {number}") < events.index(f"second has {number}")
        await eventually(lambda: first.queues == {0, 1, 2, 3})
