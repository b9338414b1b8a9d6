"""Administration of real brokers: topics, routes, figures, and missing objects."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Message, MessageQueue, Perm, Producer, TopicChange, TopicConfig, TopicOffset
from raptormq.errors import ClientClosed, ConfigError, ConnectError, MessageError, NoRoute, ServerError, TransportError
from raptormq.protocol.bodies.topic_config import TopicConfigTable
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import request
from raptormq.protocol.headers.topic import CreateTopicRequestHeader
from raptormq.transport.pool import ConnectionPool
from tests.client.embedded_cluster import Cluster
from tests.client.scripted_peer import ScriptedPeer, answer, refuse


async def test_a_topic_from_creation_to_deletion(tmp_path: Path) -> None:
    async with (
        Cluster(tmp_path, brokers=2, name_servers=2) as cluster,
        AdminClient(name_servers=cluster.name_servers) as admin,
    ):
        await admin.create_topic("t", 3, 2, attributes={"message.type": "NORMAL"})
        assert "t" in await admin.topics()
        for server in cluster.servers:
            route = await admin.route("t", server.address)
            assert route is not None
            assert sorted((q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm) for q in route.queues) == [
                ("broker-0", 3, 2, 6),
                ("broker-1", 3, 2, 6),
            ]
        config = await admin.topic_config(cluster.broker(1).address, "t")
        assert config is not None
        assert (config.topic_name, config.read_queue_nums, config.write_queue_nums) == ("t", 3, 2)
        assert config.attributes == {"message.type": "NORMAL"}
        await admin.create_topic("t", 5, 5, perm=Perm.READ)
        changed = await admin.topic_config(cluster.broker(0).address, "t")
        assert changed is not None
        assert (changed.read_queue_nums, changed.perm, changed.attributes) == (5, 4, {"message.type": "NORMAL"})
        await admin.delete_topic("t")
        assert await admin.route("t") is None
        assert await admin.topic_config(cluster.broker(0).address, "t") is None
        assert "t" not in await admin.topics()


async def test_many_topics_at_once(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=1) as cluster, AdminClient(name_servers=cluster.name_servers) as admin:
        address = cluster.broker(0).address
        before = await admin.topic_configs(address)
        assert "t0" not in before.topics
        assert (await admin.topic_configs(address)).digest == before.digest
        await admin.create_topic("t0", attributes={"message.type": "NORMAL"}, brokers=[address])
        await admin.put_topics(
            address, [TopicConfig("t0", 3, 2), TopicConfig("t1", attributes={"queue.type": "BatchCQ"})]
        )
        after = await admin.topic_configs(address)
        assert after.digest != before.digest
        assert (after.topics["t0"].read_queue_nums, after.topics["t0"].write_queue_nums) == (3, 2)
        assert [after.topics[name].attributes for name in ("t0", "t1")] == [
            {"message.type": "NORMAL"},
            {"queue.type": "BatchCQ"},
        ]
        with pytest.raises(ServerError):
            await admin.put_topics(address, [TopicConfig("t2"), TopicConfig("t1", attributes={"no.such": "attribute"})])
        assert "t2" not in (await admin.topic_configs(address)).topics, "no topic is changed unless all can be changed"
        with pytest.raises(ConfigError):
            await admin.put_topics(address, [TopicConfig("t3", read_queue_nums=-1)])


async def test_a_topic_on_one_broker_only(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster, AdminClient(name_servers=cluster.name_servers) as admin:
        await admin.create_topic("t", brokers=[cluster.broker(1).address])
        route = await admin.route("t")
        assert route is not None
        assert [queue.broker_name for queue in route.queues] == ["broker-1"]
        await admin.delete_topic("t", brokers=[cluster.broker(1).address])
        assert await admin.topic_config(cluster.broker(1).address, "t") is None


async def test_a_name_server_that_is_away_keeps_no_other_from_learning_of_a_deletion(
    tmp_path: Path, free_port: int
) -> None:
    async with Cluster(tmp_path) as cluster, ScriptedPeer() as other:
        await cluster.create_topic("t")
        servers = [cluster.name_servers, f"127.0.0.1:{free_port}", other.address]
        async with AdminClient(name_servers=servers) as admin:
            with pytest.raises(ConnectError, match=str(free_port)):
                await admin.delete_topic("t")
            assert await admin.topic_config(cluster.broker().address, "t") is None
        assert len(other.received[RequestCode.DELETE_TOPIC_IN_NAMESRV]) == 1


async def test_what_is_not_given_stays_or_has_its_default(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster, AdminClient(name_servers=cluster.name_servers) as admin:
        first, second = cluster.broker(0).address, cluster.broker(1).address
        assert await admin.create_topic("t", brokers=[first]) == {first: TopicChange.CREATED}
        assert await admin.topic_config(first, "t") == TopicConfig("t", 8, 8, 6)
        attributes = {"message.type": "FIFO"}
        await admin.create_topic("t", 5, 4, perm=Perm.WRITE, order=True, attributes=attributes, brokers=[first])
        kept = TopicConfig("t", 5, 4, 2, order=True, attributes=attributes)
        assert await admin.create_topic("t") == {first: TopicChange.UNCHANGED, second: TopicChange.CREATED}
        assert await admin.topic_config(first, "t") == kept
        changed = {first: TopicChange.CHANGED, second: TopicChange.CHANGED}
        assert await admin.create_topic("t", attributes={"message.type": "DELAY"}, write_queues=1) == changed
        attributes["message.type"] = "DELAY"
        assert await admin.topic_config(first, "t") == replace(kept, write_queue_nums=1)
        assert await admin.topic_config(second, "t") == TopicConfig("t", 8, 1, 6, attributes=attributes)


async def test_a_filter_type_and_flags_that_others_have_set_stay(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, AdminClient(name_servers=cluster.name_servers) as admin:
        address = cluster.broker().address
        header = CreateTopicRequestHeader("t", "TBW102", 2, 2, 6, "MULTI_TAG", order=False, topic_sys_flag=1)
        pool = ConnectionPool()
        assert (await pool.request(address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), 10.0)).code == 0
        await pool.close()
        await admin.create_topic("t", 3)
        kept = TopicConfig("t", 3, 2, topic_filter_type="MULTI_TAG", topic_sys_flag=1)
        assert await admin.topic_config(address, "t") == kept


async def test_brokers_that_cannot_be_asked_for_one_topic_are_asked_for_all() -> None:
    kept = TopicConfig("t", 3, 3, perm=4)
    async with ScriptedPeer() as peer, AdminClient(name_servers=peer.address) as admin:
        peer.on(RequestCode.GET_TOPIC_CONFIG, refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
        peer.on(RequestCode.GET_ALL_TOPIC_CONFIG, answer(body=TopicConfigTable({"t": kept}).to_json()))
        assert await admin.create_topic("t", 5, brokers=[peer.address]) == {peer.address: TopicChange.CHANGED}
        assert await admin.create_topic("u", brokers=[peer.address]) == {peer.address: TopicChange.CREATED}
        changed, created = peer.received[RequestCode.UPDATE_AND_CREATE_TOPIC]
        names = ("readQueueNums", "writeQueueNums", "perm")
        assert [changed.ext_fields[name] for name in names] == ["5", "3", "4"]
        assert [created.ext_fields[name] for name in names] == ["8", "8", "6"]


async def test_brokers_and_their_figures(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster, AdminClient(name_servers=cluster.name_servers) as admin:
        info = await admin.cluster_info()
        assert info.clusters == {"DefaultCluster": ["broker-0", "broker-1"]}
        assert info.brokers["broker-1"].broker_addrs == {0: cluster.broker(1).address}
        assert await admin.cluster_info(cluster.servers[0].address) == info
        figures = await admin.runtime_info(cluster.broker(0).address)
        assert figures["brokerVersionDesc"] == "V5_3_3"


async def test_bounds_of_every_queue(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster, AdminClient(name_servers=cluster.name_servers) as admin:
        await admin.create_topic("t", 2, 2)
        queue = MessageQueue("t", "broker-1", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for _ in range(3):
                await producer.send(Message("t", b"x"), queue=queue)
        stats = await admin.topic_stats("t")
        assert len(stats) == 4
        assert (stats[queue].min_offset, stats[queue].max_offset) == (0, 3)
        assert stats[queue].last_update_timestamp > 0
        assert stats[MessageQueue("t", "broker-0", 0)] == TopicOffset(0, 0, 0)


async def test_what_is_not_there_and_what_is_refused(tmp_path: Path, free_port: int) -> None:
    async with Cluster(tmp_path) as cluster:
        admin = AdminClient(name_servers=cluster.name_servers)
        with pytest.raises(ClientClosed):
            await admin.topics()
        async with admin:
            with pytest.raises(NoRoute, match="nope"):
                await admin.topic_stats("nope")
            with pytest.raises(MessageError, match="no topic"):
                await admin.create_topic("no topic")
            with pytest.raises(ServerError):
                await admin.create_topic("SCHEDULE_TOPIC_XXXX")
            with pytest.raises(ConfigError, match="read_queues must be"):
                await admin.create_topic("t", 0, 0)
            with pytest.raises(TransportError):
                await admin.runtime_info(f"127.0.0.1:{free_port}")
        await admin.close()
    async with Cluster(tmp_path / "empty", brokers=0) as empty, AdminClient(name_servers=empty.name_servers) as admin:
        with pytest.raises(NoRoute, match="no broker"):
            await admin.create_topic("t")


async def test_queues_are_converted(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, AdminClient(name_servers=cluster.name_servers) as admin:
        address = cluster.broker().address
        await admin.create_topic("t", 1, 1)
        assert (await admin.convert_queue(address, "t", "start", "BatchCQ")).is_under_way
        while (state := await admin.convert_queue(address, "t", "status")).is_under_way:
            await asyncio.sleep(0.001)
        assert (state.phase, state.queue_type) == ("done", "BatchCQ")
        with pytest.raises(ServerError, match="not exist") as refused:
            await admin.convert_queue(address, "missing", "status")
        assert refused.value.code == 17
