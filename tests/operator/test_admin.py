"""The operator's requests over the network, to peers with scripted responses: correct ones and faulty ones."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from raptormq.client import Message, MessageQueue, Producer
from raptormq.errors import ConnectError, RaptorMQError, ServerError, TransportError
from raptormq.protocol.bodies.route import BrokerData, ClusterInfo
from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable
from raptormq.protocol.bodies.unreadable import Unreadable
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.topic import CreateTopicRequestHeader, TopicRequestHeader
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router
from raptormq.transport.server import Server
from raptormq.transport.tls.contexts import ServerTls
from raptormq_operator import topic_plan
from raptormq_operator.admin import TOPICS_AT_ONCE, BrokerTopics, ClientAdmin
from raptormq_operator.cluster_probe import probe_cluster
from raptormq_operator.conditions import Reason
from raptormq_operator.model.cluster import Cluster, Member, Tls
from raptormq_operator.model.topic import Topic
from tests.certificates import Authority
from tests.client.embedded_cluster import Cluster as EmbeddedCluster
from tests.client.scripted_peer import ScriptedPeer, answer, refuse
from tests.operator.resources import SURROUNDINGS, cluster_body, topic_body
from tests.operator.test_reconcile_topics import Operator

TOPIC = Topic.from_object(topic_body())
WANTED = topic_plan.wanted(TOPIC)


def table(*names: str, **changes: object) -> bytes:
    """Return the response to GET_ALL_TOPIC_CONFIG with these topics, `orders` by default."""
    right = TopicConfig("orders", attributes=dict(WANTED.attributes))
    topics = {name: dataclasses.replace(right, topic_name=name, **changes) for name in names or ["orders"]}  # type: ignore[arg-type]
    return TopicConfigTable(topics).to_json()


def listing(address: str) -> bytes:
    """Return the response to GET_BROKER_CLUSTER_INFO."""
    return ClusterInfo({"broker-0": BrokerData("demo", "broker-0", {0: address})}, {"demo": ["broker-0"]}).to_json()


def wishes(peer: ScriptedPeer) -> list[list[str]]:
    """Return the topic names in each request that changes topics."""
    return [
        [topic["topicName"] for topic in json.loads(request.body)["topicConfigList"]]
        for request in peer.received[RequestCode.UPDATE_AND_CREATE_TOPIC_LIST]
    ]


async def test_topics_are_made_with_one_request_and_read_back() -> None:
    async with ScriptedPeer() as broker, ClientAdmin() as asking:
        admin = asking.speaking(None)
        broker.on(RequestCode.GET_ALL_TOPIC_CONFIG, answer(body=table("a", order=True)), answer(body=table("a", "b")))
        before = await admin.all_topics(broker.address)
        assert (before.get("a"), before.get("b")) == (WANTED, None)
        assert await admin.change_topics(broker.address, before, {"a": WANTED, "b": WANTED}) == {}
        assert (await admin.all_topics(broker.address)).get("b") == WANTED
        assert wishes(broker) == [["a", "b"]]
        (request,) = broker.received[RequestCode.UPDATE_AND_CREATE_TOPIC_LIST]
        changed, made = json.loads(request.body)["topicConfigList"]
        assert (made["readQueueNums"], made["writeQueueNums"], made["perm"], made["order"]) == (8, 8, 6, False)
        assert made["attributes"] == {"+queue.type": "SimpleCQ", "+message.type": "NORMAL"}
        assert changed["order"] is True, "properties that a resource does not set are kept"


async def test_messages_beyond_the_read_queues_of_a_real_broker_are_found(tmp_path: Path) -> None:
    """100 of 150 messages cannot be read after the queues are reduced from 3 to 1."""
    three = dataclasses.replace(WANTED, read_queues=3)
    async with EmbeddedCluster(tmp_path, brokers=1) as cluster, ClientAdmin() as asking:
        address, admin = cluster.broker(0).address, asking.speaking(None)
        assert await admin.change_topics(address, await admin.all_topics(address), {"orders": three}) == {}
        digest = await admin.topics_digest(address)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            for number in range(150):
                queue = MessageQueue("orders", "broker-0", number % 3)
                await producer.send(Message("orders", b"x"), queue=queue)
        before = await admin.all_topics(address)
        assert before.unreadable == {}
        assert await admin.topics_digest(address) == digest, "messages are not a change of topics"
        one = dataclasses.replace(WANTED, read_queues=1)
        assert await admin.change_topics(address, before, {"orders": one}) == {}
        assert (await admin.all_topics(address)).unreadable == {"orders": Unreadable(100, 3)}
        assert await admin.change_topics(address, before, {"orders": three}) == {}
        assert (await admin.all_topics(address)).unreadable == {}


async def test_broker_of_an_earlier_version_reports_no_unreadable_messages() -> None:
    async with ScriptedPeer() as broker, ClientAdmin() as asking:
        broker.on(RequestCode.GET_ALL_TOPIC_CONFIG, answer(body=table("a")))
        found = await asking.speaking(None).all_topics(broker.address)
        assert (found.get("a"), found.unreadable) == (WANTED, {})
        (request,) = broker.received[RequestCode.GET_ALL_TOPIC_CONFIG]
        assert request.ext_fields["withUnreadable"] == "true"


async def test_of_many_those_that_are_refused_are_found() -> None:
    def take(_: Connection, asked: RemotingCommand, __: None) -> RemotingCommand:
        names = [topic["topicName"] for topic in json.loads(asked.body)["topicConfigList"]]
        return response_to(asked, ResponseCode.SYSTEM_ERROR, "not all") if "t3" in names else response_to(asked)

    router = Router()
    router.add(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, take)
    refusal = partial(response_to, code=ResponseCode.SYSTEM_ERROR, remark="not t3")
    router.add(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader, lambda _, asked, __: refusal(asked))
    missing = partial(response_to, code=ResponseCode.TOPIC_NOT_EXIST)
    router.add(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader, lambda _, asked, __: missing(asked))
    server = Server(router, "127.0.0.1", 0)
    await server.start()
    async with ClientAdmin() as asking:
        wanted = {f"t{number}": WANTED for number in range(TOPICS_AT_ONCE + 10)}
        refused = await asking.speaking(None).change_topics(f"127.0.0.1:{server.port}", BrokerTopics({}), wanted)
    await server.stop()
    assert {topic: str(error).count("not t3") for topic, error in refused.items()} == {"t3": 1}


async def test_equal_tables_have_equal_digests() -> None:
    async with ScriptedPeer() as broker, ClientAdmin() as asking:
        admin = asking.speaking(None)
        broker.on(RequestCode.GET_ALL_TOPIC_CONFIG, *(answer(body=table(name)) for name in ("a", "a", "b")))
        first, second, third = [await admin.topics_digest(broker.address) for _ in range(3)]
        assert first == second != third


async def test_refusals_and_absence_are_our_errors() -> None:
    async with ScriptedPeer() as broker, ClientAdmin() as asking:
        admin = asking.speaking(None)
        broker.on(RequestCode.GET_ALL_TOPIC_CONFIG, refuse(ResponseCode.SYSTEM_ERROR), answer(body=b"not json"))
        with pytest.raises(ServerError):
            await admin.all_topics(broker.address)
        with pytest.raises(RaptorMQError):
            await admin.all_topics(broker.address)
    async with ClientAdmin() as asking:
        admin = asking.speaking(None)
        for question in (admin.figures, admin.topics_digest, admin.connect):
            with pytest.raises(ConnectError):
                await question(broker.address)


async def test_a_survey_of_one_that_lists_and_one_that_is_gone() -> None:
    cluster = Cluster.from_object(cluster_body(), SURROUNDINGS)
    async with ScriptedPeer() as up, ScriptedPeer() as down:
        pass
    async with ScriptedPeer() as up, ClientAdmin() as admin:
        up.on(RequestCode.GET_BROKER_CLUSTER_INFO, answer(body=listing(up.address)))
        up.on(RequestCode.GET_ALL_TOPIC_CONFIG, answer(body=table()))
        up.on(RequestCode.GET_BROKER_RUNTIME_INFO, answer(body=b'{"table":{"unknownSettings":"a is b"}}'))
        with (
            patch.object(Cluster, "name_server_addresses", (up.address, down.address)),
            patch.object(Member, "address", up.address),
        ):
            probe = await probe_cluster(cluster, admin)
            assert probe.name_servers[up.address] == {("demo", "broker-0", 0): up.address}
            assert isinstance(probe.name_servers[down.address], str)
            assert (probe.brokers, probe.unknown_settings) == ({up.address: None}, frozenset({"a is b"}))
            assert probe.registered(cluster) == frozenset()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (answer(body=table(read_queue_nums=4)), Reason.TOPIC_DIFFERS),
        (answer(body=table(perm=4)), Reason.TOPIC_DIFFERS),
        (answer(body=table(attributes={"message.type": "FIFO"})), Reason.TOPIC_DIFFERS),
        (answer(body=table(attributes={"queue.type": "BatchCQ"})), Reason.QUEUE_TYPE_DIFFERS),
        (answer(body=table("other")), Reason.TOPIC_DIFFERS),
        (refuse(ResponseCode.SYSTEM_ERROR), Reason.BROKER_REFUSED),
        (answer(body=b"not json"), Reason.BROKER_UNREACHABLE),
        (answer(body=table()), Reason.READY),
    ],
)
async def test_a_broker_that_says_yes_and_answers_otherwise_does_not_make_a_topic_ready(
    reply: object, reason: Reason
) -> None:
    """The broker accepts every change without an error. Only its later response counts."""
    async with ScriptedPeer() as peer, ClientAdmin() as admin:
        peer.on(RequestCode.GET_ALL_TOPIC_CONFIG, reply)  # type: ignore[arg-type]
        peer.on(RequestCode.GET_BROKER_CLUSTER_INFO, answer(body=both_groups(peer.address)))
        peer.on(RequestCode.GET_BROKER_RUNTIME_INFO, answer(body=b'{"table":{}}'))
        with (
            patch.object(Cluster, "name_server_addresses", (peer.address,)),
            patch.object(Member, "address", peer.address),
        ):
            operator = Operator(admin=admin)
            await operator.turn()
            assert operator.ready == ("True" if reason is Reason.READY else "False", reason)


def both_groups(address: str) -> bytes:
    groups = {name: BrokerData("demo", name, {0: address}) for name in ("broker-0", "broker-1")}
    return ClusterInfo(groups, {"demo": list(groups)}).to_json()


async def test_deletion_goes_to_brokers_and_name_servers() -> None:
    async with ScriptedPeer() as peer, ClientAdmin() as asking:
        admin = asking.speaking(None)
        peer.on(RequestCode.GET_BROKER_CLUSTER_INFO, answer(body=listing(peer.address)))
        await admin.delete_topic(peer.address, "orders")
        for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_TOPIC_IN_NAMESRV):
            (request,) = peer.received[code]
            assert request.ext_fields["topic"] == "orders"
        peer.on(RequestCode.GET_BROKER_CLUSTER_INFO, refuse(ResponseCode.SYSTEM_ERROR))
        with pytest.raises(RaptorMQError):
            await admin.delete_topic(peer.address, "orders")


ENFORCING, PERMISSIVE = Tls("secret", "enforcing"), Tls("secret", "permissive")


@pytest.mark.parametrize("spoken", [None, PERMISSIVE, ENFORCING], ids=["none", "permissive", "enforcing"])
@pytest.mark.parametrize("served", [None, ServerTls(), ServerTls(enforcing=True)], ids=["plain", "both", "tls"])
async def test_servers_are_reached_while_tls_of_their_cluster_changes(
    served: ServerTls | None, spoken: Tls | None
) -> None:
    async with name_server(served) as address, ClientAdmin() as asking:
        admin = asking.speaking(spoken)
        assert await admin.listed_brokers(address) == {("demo", "broker-0", 0): address}
        await admin.delete_topic(address, "orders")


async def test_a_server_without_tls_is_not_reached_if_certificates_are_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAPTORMQ_TLS_CA", str(Authority(tmp_path, "authority").cert))
    async with name_server(None) as address, ClientAdmin() as asking:
        with pytest.raises(TransportError):
            await asking.speaking(ENFORCING).listed_brokers(address)


@asynccontextmanager
async def name_server(tls: ServerTls | None) -> AsyncIterator[str]:
    """Run a server that lists itself as a broker, and deletes topics. Return its address."""
    router = Router()
    server = Server(router, "127.0.0.1", 0, tls=tls)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    listed = listing(address)
    router.add(RequestCode.GET_BROKER_CLUSTER_INFO, None, lambda _, asked, __: response_to(asked, body=listed))
    for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_TOPIC_IN_NAMESRV):
        router.add(code, None, lambda _, asked, __: response_to(asked))
    yield address
    await server.stop()
