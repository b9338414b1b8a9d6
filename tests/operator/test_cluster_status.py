"""Status and verdict of a BrokerCluster: ready means that every name server lists every broker."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from raptormq_operator import cluster_status
from raptormq_operator.cluster_probe import ClusterProbe
from raptormq_operator.conditions import Reason
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.plan import Held, Observed, Plan, plan
from raptormq_operator.pod_diagnostics import PodDiagnostics
from tests.operator.resources import SURROUNDINGS, cluster_body

CLUSTER = Cluster.from_object(cluster_body(groups=2), SURROUNDINGS)
FIRST, SECOND = CLUSTER.members
SERVERS = CLUSTER.name_server_addresses
LISTING = {("demo", "broker-0", 0): FIRST.address, ("demo", "broker-1", 0): SECOND.address}
WELL = ClusterProbe(dict.fromkeys(SERVERS, LISTING), {FIRST.address: None, SECOND.address: None})
DONE = Plan((), (), ())


def test_ready_when_everyone_lists_everyone() -> None:
    verdict = cluster_status.verdict(CLUSTER, DONE, WELL)
    assert (verdict.reason, verdict.ready) == (Reason.READY, True)
    status = cluster_status.status(CLUSTER, WELL)
    assert (status["brokersReady"], status["nameServersReady"]) == ("2/2", "2/2")
    assert status["nameServerAddress"] == (
        "demo-namesrv-0.demo-namesrv.shop.svc.cluster.local:9876;demo-namesrv-1.demo-namesrv.shop.svc.cluster.local:9876"
    )
    assert status["brokers"][1] == {
        "name": "demo-broker-1-0",
        "group": "broker-1",
        "address": "demo-broker-1-0-0.demo-broker-1.shop.svc.cluster.local:10911",
        "ready": True,
        "updated": False,
    }


def test_one_name_server_that_misses_one_broker_is_enough() -> None:
    partial = {("demo", "broker-0", 0): FIRST.address}
    probe = dataclasses.replace(WELL, name_servers={**WELL.name_servers, SERVERS[1]: partial})
    verdict = cluster_status.verdict(CLUSTER, DONE, probe)
    assert verdict.reason is Reason.NOT_REGISTERED
    assert verdict.message == f"{SERVERS[1]} does not list demo-broker-1-0"
    status = cluster_status.status(CLUSTER, probe)
    assert (status["brokersReady"], status["nameServersReady"]) == ("1/2", "1/2")


def test_a_name_server_that_is_away_takes_no_broker_away() -> None:
    probe = dataclasses.replace(WELL, name_servers={**WELL.name_servers, SERVERS[1]: "nobody answers"})
    status = cluster_status.status(CLUSTER, probe)
    assert (status["brokersReady"], status["nameServersReady"]) == ("2/2", "1/2")
    assert [broker["ready"] for broker in status["brokers"]] == [True, True]
    nobody = dataclasses.replace(WELL, name_servers=dict.fromkeys(SERVERS, "nobody answers"))
    status = cluster_status.status(CLUSTER, nobody)
    assert (status["brokersReady"], status["nameServersReady"]) == ("2/2", "0/2")


def test_a_broker_that_is_away_takes_no_name_server_away() -> None:
    partial = {("demo", "broker-1", 0): SECOND.address}
    listing = {SERVERS[0]: LISTING, SERVERS[1]: partial}
    probe = dataclasses.replace(WELL, name_servers=listing, brokers={FIRST.address: "gone", SECOND.address: None})
    status = cluster_status.status(CLUSTER, probe)
    assert (status["brokersReady"], status["nameServersReady"]) == ("1/2", "2/2")


def test_how_far_a_roll_is_and_who_waits_since_when() -> None:
    held = (Held("demo-broker-1-0", "image raptormq:2", "demo-broker-0-0 is restarting"),)
    rolling = Plan((), ("demo-broker-0-0",), (), held, updated=frozenset({"demo-broker-0-0"}))
    status = cluster_status.status(CLUSTER, WELL, rolling, {}, "t1")
    assert status["brokersUpdated"] == "1/2"
    waiting = {"change": "image raptormq:2", "reason": "demo-broker-0-0 is restarting", "since": "t1"}
    assert [broker.get("waiting") for broker in status["brokers"]] == [None, waiting]
    previous = {broker["name"]: broker for broker in status["brokers"]}
    again = cluster_status.status(CLUSTER, WELL, rolling, previous, "t2")
    assert again["brokers"][1]["waiting"]["since"] == "t1"
    words = "waiting to be changed (image raptormq:2): demo-broker-1-0, as demo-broker-0-0 is restarting"
    verdict = cluster_status.verdict(CLUSTER, rolling, WELL)
    assert (verdict.reason, verdict.message) == (
        Reason.PODS_NOT_READY,
        f"pods are not available yet: demo-broker-0-0; {words}",
    )
    held_only = dataclasses.replace(rolling, waiting=())
    verdict = cluster_status.verdict(CLUSTER, held_only, WELL)
    assert (verdict.reason, verdict.message) == (Reason.PROGRESSING, words), "Ready after the last one has changed"


def test_a_difference_that_stays_is_named() -> None:
    plan = Plan((), (), (), staying=("Service demo-broker-0: spec.selector is {}, wanted x",))
    verdict = cluster_status.verdict(CLUSTER, plan, WELL)
    assert (verdict.reason, "spec.selector" in verdict.message) == (Reason.OBJECT_DIFFERS, True)


def test_a_broker_listed_under_another_address_is_missing() -> None:
    stale = {**LISTING, ("demo", "broker-0", 0): "10.0.0.7:10911"}
    probe = dataclasses.replace(WELL, name_servers=dict.fromkeys(SERVERS, stale))
    assert cluster_status.verdict(CLUSTER, DONE, probe).reason is Reason.NOT_REGISTERED


def test_a_silent_name_server() -> None:
    probe = dataclasses.replace(WELL, name_servers={**WELL.name_servers, SERVERS[0]: "nobody answers"})
    verdict = cluster_status.verdict(CLUSTER, DONE, probe)
    assert (verdict.reason, verdict.message) == (Reason.NAME_SERVER_UNREACHABLE, f"{SERVERS[0]}: nobody answers")


def test_a_broker_that_is_listed_and_does_not_answer() -> None:
    probe = dataclasses.replace(WELL, brokers={FIRST.address: "timed out", SECOND.address: None})
    assert cluster_status.verdict(CLUSTER, DONE, probe).reason is Reason.BROKER_UNREACHABLE
    assert cluster_status.status(CLUSTER, probe)["brokersReady"] == "1/2"


def test_pods_that_are_late_although_everyone_answers() -> None:
    verdict = cluster_status.verdict(CLUSTER, Plan((), ("demo-namesrv",), ()), WELL)
    assert (verdict.reason, verdict.message) == (Reason.PODS_NOT_READY, "pods are not available yet: demo-namesrv")


def test_the_last_words_of_a_failing_pod() -> None:
    waiting = Plan((), ("demo-broker-0-0",), ())
    verdict = cluster_status.verdict(CLUSTER, waiting, WELL, PodDiagnostics("it ended", "no node"))
    assert (verdict.reason, verdict.message) == (Reason.PODS_FAILING, "it ended")
    verdict = cluster_status.verdict(CLUSTER, waiting, WELL, PodDiagnostics("", "no node"))
    assert verdict.reason is Reason.PODS_NOT_READY
    assert verdict.message == "pods are not available yet: demo-broker-0-0; no node"


def test_steps_and_conflicts_come_first() -> None:
    beginning = plan(Observed(CLUSTER.uid, {}), wanted(CLUSTER))
    assert cluster_status.verdict(CLUSTER, beginning, WELL).reason is Reason.PROGRESSING
    blocked = dataclasses.replace(beginning, conflicts=("Service demo-namesrv",))
    verdict = cluster_status.verdict(CLUSTER, blocked, WELL)
    assert (verdict.reason, "Service demo-namesrv" in verdict.message) == (Reason.NAME_CONFLICT, True)


@pytest.mark.parametrize(
    ("guards", "taken"),
    [
        ({}, True),
        ({"tls": {"secretName": "s", "mode": "permissive", "clientAuth": "none"}}, True),
        ({"tls": {"secretName": "s", "mode": "enforcing", "clientAuth": "none"}}, False),
        ({"accessControl": {"enabled": True}}, False),
        ({"accessControl": {"enabled": False}}, True),
        ({"accessControl": {"enabled": True}, "config": {"haSlaveAddresses": "10.0.0.0/8"}}, True),
    ],
)
def test_a_port_for_slaves_that_is_open_to_everybody_is_refused_where_clients_sign(
    guards: dict[str, Any], taken: bool
) -> None:
    body = cluster_body(replication={"mode": "masterSlave"}, replicas=2, **guards)
    refused = cluster_status.refusal(Cluster.from_object(body, SURROUNDINGS))
    assert (refused is None) is taken
    if refused is not None:
        assert (refused.reason, "config.haSlaveAddresses" in refused.message) == (Reason.NOT_SUPPORTED, True)


def test_denied_keys_are_all_named() -> None:
    body = cluster_body(
        config={
            "flushDiskType": "SYNC_FLUSH",
            "brokerIP1": "1.2.3.4",
            "storePathCommitLog": "/x",
            "fileReservedTime": "48",
            "metricsPromExporterPort": "9",
            "tls.server.mode": "x",
        },
        nameServers={"config": {"listenPort": "1", "tls.config.file": "/x"}},
    )
    refused = cluster_status.refusal(Cluster.from_object(body, SURROUNDINGS))
    assert refused is not None
    assert refused.reason is Reason.CONFIG_DENIED
    assert refused.message.endswith(
        "them or set the field beside them: config.brokerIP1, config.flushDiskType (spec.flush), "
        "config.metricsPromExporterPort (spec.metrics.port), "
        "config.storePathCommitLog, config.tls.server.mode (spec.tls), nameServers.config.listenPort, "
        "nameServers.config.tls.config.file (spec.tls)"
    )


def test_an_ordinary_spec_is_accepted() -> None:
    assert cluster_status.refusal(CLUSTER) is None
