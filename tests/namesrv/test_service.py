"""The name server over real sockets: every request code, invalid input, and the effect of a closed connection."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.errors import ConfigError
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from raptormq.protocol.bodies.queues import decode_kv_table
from raptormq.protocol.bodies.route import (
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRoute,
    encode_registration,
)
from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.bodies.topic_config import DataVersion, TopicConfig, TopicConfigTable
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, encode
from raptormq.protocol.frame import FrameDecoder
from raptormq.transport.pool import ConnectionPool

TIMEOUT_S = 10.0
ADDRESS = "10.0.0.1:10911"


class Peer:
    """A client of the name server that sends requests by code."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.pool = ConnectionPool()

    async def ask(self, code: int, body: bytes = b"", /, **ext_fields: str) -> RemotingCommand:
        return await self.pool.request(self.address, RemotingCommand(code, ext_fields, body), TIMEOUT_S)

    async def register(
        self, topics: Sequence[str] = ("t", "u"), *, body: bytes | None = None, **ext_fields: str
    ) -> RemotingCommand:
        fields = {
            "brokerName": "broker-a",
            "brokerAddr": ADDRESS,
            "clusterName": "c",
            "haServerAddr": "10.0.0.1:10912",
            "brokerId": "0",
        }
        return await self.ask(
            RequestCode.REGISTER_BROKER, registration_body(topics) if body is None else body, **fields | ext_fields
        )

    async def route(self, topic: str) -> TopicRoute | None:
        answer = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        return TopicRoute.from_json(answer.body) if answer.code == 0 else None


def registration_body(topics: Sequence[str], version: int = 1) -> bytes:
    configs = {name: TopicConfig(name) for name in topics}
    return encode_registration(TopicConfigTable(configs, DataVersion(0, 1, version)))


def config_for(folder: Path, **settings: str) -> NameServerConfig:
    pairs = {
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "kvConfigPath": str(folder / "kvConfig.json"),
        "configStorePath": str(folder / "namesrv.properties"),
    }
    return NameServerConfig.from_pairs(pairs | settings)


@asynccontextmanager
async def serving(folder: Path, **settings: str) -> AsyncIterator[Peer]:
    server = NameServer(config_for(folder, **settings))
    await server.start()
    peer = Peer(f"127.0.0.1:{server.port}")
    try:
        yield peer
    finally:
        await peer.pool.close()
        await server.stop()


async def test_a_registered_broker_is_in_routes_lists_and_clusters(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        answer = await peer.register()
        assert (answer.code, answer.ext_fields, answer.body) == (0, {}, b"")
        route = await peer.route("t")
        assert route is not None
        assert route.queues == [QueueData("broker-a", 8, 8, 6)]
        assert route.brokers[0].broker_addrs == {0: ADDRESS}
        info = ClusterInfo.from_json((await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
        assert info.clusters == {"c": ["broker-a"]}
        topics = TopicList.from_json((await peer.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body)
        assert topics.topics == ["t", "u"]
        topics = TopicList.from_json((await peer.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c")).body)
        assert topics.topics == ["t", "u"]
        topics = TopicList.from_json((await peer.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)).body)
        assert (topics.topics, topics.broker_addr) == (["c", "broker-a"], ADDRESS)
        group = await peer.ask(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="c", brokerName="broker-a")
        assert loads_object(group.body) == {
            "brokerMemberGroup": {"brokerAddrs": {"0": ADDRESS}, "brokerName": "broker-a", "cluster": "c"}
        }


async def test_route_json_has_quoted_keys_whatever_the_client_says(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        await peer.register()
        request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}, version=121)
        answer = await peer.pool.request(peer.address, request, TIMEOUT_S)
        assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in answer.body


async def test_a_slave_is_told_its_master(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        await peer.register()
        answer = await peer.register(brokerId="1", brokerAddr="10.0.0.2:10911", haServerAddr="10.0.0.2:10912")
        assert answer.ext_fields == {"haServerAddr": "10.0.0.1:10912", "masterAddr": ADDRESS}


def compressed_registration(topics: Sequence[str]) -> bytes:
    """Encode like the reference: counted texts, then an empty filter list and no mappings, compressed."""
    version = b'{"counter":3,"stateVersion":0,"timestamp":1}'
    texts = [f'{name} 4 4 6 SINGLE_TAG {{"+queue.type":"BatchCQ"}}'.encode() for name in topics]
    parts = [struct.pack(">i", len(version)), version, struct.pack(">i", len(texts))]
    for text in (*texts, b"[]"):
        parts += [struct.pack(">i", len(text)), text]
    return zlib.compress(b"".join(parts) + struct.pack(">i", 0), 9)


@pytest.mark.parametrize("flag", ["true", "false"])
async def test_a_compressed_body_is_recognised_whatever_the_header_says(tmp_path: Path, flag: str) -> None:
    async with serving(tmp_path) as peer:
        body = compressed_registration(["t", "u"])
        crc = str(zlib.crc32(body) & 0x7FFFFFFF)
        answer = await peer.register(body=body, compressed=flag, bodyCrc32=crc)
        assert answer.code == 0
        route = await peer.route("u")
        assert route is not None
        assert route.queues == [QueueData("broker-a", 4, 4, 6)]


async def test_registrations_that_are_refused_change_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        answer = await peer.register(bodyCrc32="1")
        assert (answer.code, answer.remark) == (1, "crc32 not match")
        answer = await peer.register(["t"])
        assert (answer.code, answer.remark) == (1, "register broker failed")
        assert (await peer.register(body=b"\x78garbage")).code == 1
        assert (await peer.register(body=b"[]")).code == 1
        assert await peer.route("t") is None


async def test_data_version_tells_whether_to_register_again(tmp_path: Path) -> None:
    fields = {"brokerName": "broker-a", "brokerAddr": ADDRESS, "clusterName": "c", "brokerId": "0"}
    async with serving(tmp_path) as peer:
        body = b'{"counter":1,"stateVersion":0,"timestamp":1}'
        unknown = await peer.ask(RequestCode.QUERY_DATA_VERSION, body, **fields)
        assert (unknown.ext_fields, unknown.body) == ({"changed": "true"}, b"")
        await peer.register()
        same = await peer.ask(RequestCode.QUERY_DATA_VERSION, body, **fields)
        assert same.ext_fields == {"changed": "false"}
        assert loads_object(same.body) == {"counter": 1, "stateVersion": 0, "timestamp": 1}
        other = await peer.ask(RequestCode.QUERY_DATA_VERSION, body.replace(b"1,", b"2,", 1), **fields)
        assert other.ext_fields == {"changed": "true"}


async def test_a_broker_that_says_goodbye_or_loses_its_connection_is_gone(tmp_path: Path) -> None:
    fields = {"brokerName": "broker-a", "brokerAddr": ADDRESS, "clusterName": "c", "brokerId": "0"}
    async with serving(tmp_path) as peer:
        await peer.register()
        assert (await peer.ask(RequestCode.UNREGISTER_BROKER, **fields)).code == 0
        assert await peer.route("t") is None
        broker = Peer(peer.address)
        await broker.register()
        assert await peer.route("t") is not None
        await broker.pool.close()
        while await peer.route("t") is not None:
            pass  # every iteration is a round trip, and the time limit of the test bounds it


async def test_a_silent_broker_expires_by_its_own_timeout(tmp_path: Path) -> None:
    async with serving(tmp_path, scanNotActiveBrokerInterval="1") as peer:
        await peer.register(heartbeatTimeoutMillis="100000")
        heartbeat = {"brokerName": "broker-a", "brokerAddr": ADDRESS, "clusterName": "c"}
        assert (await peer.ask(RequestCode.BROKER_HEARTBEAT, **heartbeat)).code == 0
        assert await peer.route("t") is not None
        await peer.ask(RequestCode.BROKER_HEARTBEAT, **heartbeat, heartbeatTimeoutMills="1")
        while await peer.route("t") is not None:
            pass


async def test_write_permission_is_wiped_and_added(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        await peer.register()
        wiped = await peer.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
        assert wiped.ext_fields == {"wipeTopicCount": "2"}
        route = await peer.route("t")
        assert route is not None
        assert route.queues[0].perm == 4
        added = await peer.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
        assert added.ext_fields == {"addTopicCount": "2"}
        route = await peer.route("t")
        assert route is not None
        assert route.queues[0].perm == 6


async def test_topics_are_added_and_deleted_by_hand(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        await peer.register()
        body = TopicRoute([QueueData("broker-a", 2, 2, 6)]).to_json()
        assert (await peer.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, body, topic="by-hand")).code == 0
        assert await peer.route("by-hand") is not None
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="by-hand")).code == 0
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="t", clusterName="other")).code == 0
        assert await peer.route("by-hand") is None
        assert await peer.route("t") is not None


async def test_key_values_survive_a_restart(tmp_path: Path) -> None:
    ns = {"namespace": "ORDER_TOPIC_CONFIG"}
    async with serving(tmp_path) as peer:
        assert (await peer.ask(RequestCode.PUT_KV_CONFIG, **ns, key="t", value="broker-a:4")).code == 0
    async with serving(tmp_path, orderMessageEnable="true") as peer:
        assert (await peer.ask(RequestCode.GET_KV_CONFIG, **ns, key="t")).ext_fields == {"value": "broker-a:4"}
        table = await peer.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, **ns)
        assert decode_kv_table(table.body) == {"t": "broker-a:4"}
        assert decode_kv_table((await peer.register()).body) == {"t": "broker-a:4"}
        route = await peer.route("t")
        assert route is not None
        assert route.order_topic_conf == "broker-a:4"
        assert (await peer.ask(RequestCode.DELETE_KV_CONFIG, **ns, key="t")).code == 0
        assert (await peer.ask(RequestCode.GET_KV_CONFIG, **ns, key="t")).code == ResponseCode.QUERY_NOT_FOUND
        assert (await peer.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="x")).code == 22
        assert (await peer.ask(RequestCode.PUT_KV_CONFIG, **ns, key="t")).code == ResponseCode.SYSTEM_ERROR


async def test_settings_are_changed_by_request_and_kept(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        assert (await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"enableTopicList = false\n")).code == 0
        assert (await peer.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)).code == ResponseCode.SYSTEM_ERROR
        text = (await peer.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
        assert "enableTopicList=false\n" in text
        assert (tmp_path / "namesrv.properties").read_text() == "enableTopicList=false\n"
        for body, code in (
            (b"kvConfigPath=/x", ResponseCode.NO_PERMISSION),
            (b"enableTopicList=maybe", ResponseCode.INVALID_PARAMETER),
            (b"enableTopicLisst=true", ResponseCode.INVALID_PARAMETER),
            (b"\xff", ResponseCode.INVALID_PARAMETER),
        ):
            assert (await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body)).code == code
        assert (await peer.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode() == text


async def test_routes_wait_for_the_brokers_when_told_to(tmp_path: Path) -> None:
    async with serving(tmp_path, needWaitForService="true") as peer:
        await peer.register()
        answer = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t")
        assert (answer.code, answer.remark) == (1, "name server not ready")


async def test_bad_requests_are_answered_and_harm_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        await peer.register()
        unknown_topic = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="nowhere")
        assert unknown_topic.code == ResponseCode.TOPIC_NOT_EXIST
        assert (await peer.ask(4711)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        missing = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        assert missing.code == ResponseCode.SYSTEM_ERROR
        assert "topic" in (missing.remark or "")
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x7f\xff\xff\xff",
            b"\x00\x00\x00\x00",
            b"\x00\x00\x00\x05\x00\x00\xff\xff\x00",
        ):
            reader, writer = await asyncio.open_connection(*peer.address.split(":"))
            writer.write(garbage)
            assert await reader.read() == b""
            writer.close()
        assert await peer.route("t") is not None


async def test_a_oneway_request_is_not_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        reader, writer = await asyncio.open_connection(*peer.address.split(":"))
        writer.write(encode(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=1, flag=2)))
        writer.write(encode(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=2)))
        ((_, header, _),) = FrameDecoder().feed(await reader.read(65536))
        assert b'"opaque":2' in header
        writer.close()


async def test_a_taken_port_or_a_damaged_file_keeps_it_from_starting(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        port = peer.address.split(":")[1]
        with pytest.raises(ConfigError, match=port):
            await NameServer(config_for(tmp_path, listenPort=port)).start()
    (tmp_path / "kvConfig.json").write_text("{")
    with pytest.raises(ConfigError, match=r"kvConfig\.json"):
        await NameServer(config_for(tmp_path)).start()
