"""The embedded cluster and the pytest plugin, as used in tests of an application."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from raptormq.client import (
    BlockingProducer,
    ConsumeFromWhere,
    ConsumerConfig,
    Delay,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from raptormq.errors import ConfigError, NoRoute
from raptormq.testing import EmbeddedCluster

pytest_plugins = ["pytester"]


async def first_message(servers: str, topic: str, group: str) -> MessageExt:
    """Consume one message as a member of a group."""
    messages: asyncio.Queue[MessageExt] = asyncio.Queue()

    async def listen(some: list[MessageExt]) -> None:
        for message in some:
            messages.put_nowait(message)

    consumer = PushConsumer(group, name_servers=servers, config=ConsumerConfig(consume_from=ConsumeFromWhere.FIRST))
    consumer.subscribe(topic, "*", listen)
    async with asyncio.timeout(30), consumer:
        return await messages.get()


async def test_a_topic_of_the_test_is_written_and_read(raptormq_cluster: EmbeddedCluster, raptormq_topic: str) -> None:
    async with Producer(name_servers=raptormq_cluster.name_servers) as producer:
        for number in range(10):
            await producer.send(Message(raptormq_topic, b"order %d" % number))
    stored = [message.body for message in raptormq_cluster.messages(raptormq_topic)]
    assert stored == [b"order %d" % number for number in range(10)]
    assert raptormq_cluster.lag("readers", raptormq_topic) == 10


def test_each_test_has_a_topic_of_its_own(raptormq_cluster: EmbeddedCluster, raptormq_topic: str) -> None:
    assert raptormq_cluster.messages(raptormq_topic) == []
    with pytest.raises(NoRoute):
        raptormq_cluster.messages("never-created")


def test_a_delayed_message_is_due_when_the_clock_says_so(tmp_path: Path) -> None:
    with EmbeddedCluster(tmp_path) as cluster:
        cluster.create_topic("reminders", queues=1)
        with BlockingProducer(name_servers=cluster.name_servers) as producer:
            producer.send(Message("reminders", b"in an hour", delay=Delay.by(3600)))
            assert cluster.messages("reminders") == []
            cluster.advance(3601)
            message = asyncio.run(first_message(cluster.name_servers, "reminders", "readers"))
        assert message.body == b"in an hour"
        assert message.store_timestamp > time.time() * 1000 + 3_500_000


def test_an_outage_keeps_the_messages_and_the_address(tmp_path: Path) -> None:
    with EmbeddedCluster(tmp_path, autoCreateTopicEnable="true") as cluster:
        with BlockingProducer(name_servers=cluster.name_servers) as producer:
            producer.send(Message("orders", b"before"))
            cluster.stop_broker()
            with pytest.raises(ConfigError, match="not running"):
                cluster.stop_broker()
            cluster.start_broker()
            with pytest.raises(ConfigError, match="is running"):
                cluster.start_broker()
            producer.send(Message("orders", b"after"))
        assert [message.body for message in cluster.messages("orders")] == [b"before", b"after"]


def test_a_temporary_folder_is_removed_and_bad_settings_are_refused(tmp_path: Path) -> None:
    cluster = EmbeddedCluster()
    with cluster:
        folder = cluster._folder
        assert (folder / "store").is_dir()
    assert not folder.exists()
    with pytest.raises(ConfigError, match="flushDiskType"):
        EmbeddedCluster(flushDiskType="SOMETIMES")
    with pytest.raises(ConfigError, match="not started"):
        EmbeddedCluster(tmp_path).create_topic("t")
    with EmbeddedCluster(tmp_path) as other, pytest.raises(ConfigError, match="must move forward"):
        other.advance(-1)


def test_the_plugin_gives_the_fixtures_to_any_project(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from raptormq.client import BlockingProducer, Message

        def test_send(raptormq_cluster, raptormq_topic):
            with BlockingProducer(name_servers=raptormq_cluster.name_servers) as producer:
                producer.send(Message(raptormq_topic, b"x"))
            assert len(raptormq_cluster.messages(raptormq_topic)) == 1
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)
