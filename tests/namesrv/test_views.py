"""Responses to clients and tools: routes, clusters and topic lists."""

from __future__ import annotations

from raptormq.namesrv import views
from raptormq.namesrv.table import Registration, RouteTable
from raptormq.protocol.bodies.route import BrokerData, QueueData
from raptormq.protocol.bodies.topic_config import DataVersion, TopicConfig, TopicConfigTable


def register(
    table: RouteTable, name: str, broker_id: int, address: str, *names: str, cluster: str = "c", acting: bool = False
) -> None:
    configs = {topic: TopicConfig(topic, 8, 8) for topic in names}
    version = DataVersion(0, 1, len(names))
    table.register(
        Registration(cluster, name, broker_id, address, "", TopicConfigTable(configs, version), address, None, acting),
        0,
    )


def test_a_route_lists_the_queues_and_brokers_of_the_topic_only() -> None:
    table = RouteTable()
    register(table, "broker-a", 0, "a:1", "t", "u")
    register(table, "broker-a", 1, "a:2")
    register(table, "broker-b", 0, "b:1", "t", "v")
    route = views.topic_route(table, "u")
    assert route is not None
    assert route.queues == [QueueData("broker-a", 8, 8, 6)]
    assert route.brokers == [BrokerData("c", "broker-a", {0: "a:1", 1: "a:2"})]
    both = views.topic_route(table, "t")
    assert both is not None
    assert [broker.broker_name for broker in both.brokers] == ["broker-a", "broker-b"]


def test_a_topic_without_brokers_has_no_route() -> None:
    table = RouteTable()
    register(table, "broker-a", 0, "a:1", "t", "u")
    assert views.topic_route(table, "nowhere") is None
    table.unregister("broker-a", "a:1")
    assert views.topic_route(table, "t") is None


def test_the_lowest_slave_is_shown_as_acting_master_when_asked_for() -> None:
    table = RouteTable()
    register(table, "broker-a", 0, "a:0", "t", "u", acting=True)
    register(table, "broker-a", 1, "a:1", acting=True)
    register(table, "broker-a", 2, "a:2", acting=True)
    table.unregister("broker-a", "a:0")
    plain = views.topic_route(table, "t")
    acting = views.topic_route(table, "t", acting_master=True)
    assert plain is not None
    assert acting is not None
    assert plain.brokers[0].broker_addrs == {1: "a:1", 2: "a:2"}
    assert acting.brokers[0].broker_addrs == {0: "a:1", 2: "a:2"}
    assert acting.queues[0].perm == 4
    assert table.groups["broker-a"].addresses == {1: "a:1", 2: "a:2"}


def test_cluster_info_has_the_readable_queues_of_lost_groups_on_request_only() -> None:
    table = RouteTable()
    register(table, "broker-a", 0, "a:1", "t", "u")
    register(table, "broker-b", 0, "b:1", "t", "v")
    table.queues["v"]["broker-b"] = QueueData("broker-b", 8, 8, 2)
    table.unregister("broker-b", "b:1")
    assert views.cluster_info(table).lost == {}
    info = views.cluster_info(table, with_lost=True)
    assert (set(info.brokers), info.lost) == ({"broker-a"}, {"broker-b": {"t": 8}})


def test_cluster_info_groups_brokers_by_cluster() -> None:
    table = RouteTable()
    register(table, "broker-a", 0, "a:1", "t", "u", cluster="one")
    register(table, "broker-b", 0, "b:1", "t", "v", cluster="two")
    info = views.cluster_info(table)
    assert info.clusters == {"one": ["broker-a"], "two": ["broker-b"]}
    assert info.brokers["broker-b"] == BrokerData("two", "broker-b", {0: "b:1"})


def test_topic_lists() -> None:
    table = RouteTable()
    register(table, "broker-a", 0, "a:1", "t", "u", cluster="one")
    register(table, "broker-b", 0, "b:1", "t", "v", cluster="two")
    assert sorted(views.all_topics(table).topics) == ["t", "u", "v"]
    assert sorted(views.topics_of_cluster(table, "two").topics) == ["t", "v"]
    assert views.topics_of_cluster(table, "three").topics == []
    system = views.system_topics(table)
    assert system.topics == ["one", "broker-a", "two", "broker-b"]
    assert system.broker_addr == "a:1"


def test_member_group_of_an_unknown_broker_is_empty() -> None:
    table = RouteTable()
    register(table, "broker-a", 0, "a:1", "t", "u")
    assert views.member_group(table, "c", "broker-a").broker_addrs == {0: "a:1"}
    assert views.member_group(table, "c", "broker-x").broker_addrs == {}


def test_topics_are_listed_by_their_flags() -> None:
    table = RouteTable()
    flags = {"none": 0, "unit": 1, "subscribed": 2, "both": 3}
    configs = {topic: TopicConfig(topic, 8, 8, topic_sys_flag=flag) for topic, flag in flags.items()}
    table.register(
        Registration("c", "broker-a", 0, "a:1", "", TopicConfigTable(configs, DataVersion(0, 1, 4)), "a:1", None), 0
    )
    assert views.flagged_topics(table, 1, 0).topics == ["unit", "both"]
    assert views.flagged_topics(table, 2, 0).topics == ["subscribed", "both"]
    assert views.flagged_topics(table, 2, 1).topics == ["subscribed"]
