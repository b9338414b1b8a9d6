"""Blocking requests over real connections, to a broker that can be down or refuse requests."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_raptormq.cluster import Cluster, GroupUse, cluster_of
from pyspark_raptormq.connection import Connection
from pyspark_raptormq.errors import MissingTopic, NameServerUnreachable
from raptormq.client import PullStatus
from raptormq.errors import ServerError
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.record import iter_records
from raptormq.transport.tls.contexts import ServerTls
from tests.certificates import Authority
from tests.spark.memory_broker import BROKER, MemoryBroker

Q0, Q1 = MessageQueue("t", BROKER, 0), MessageQueue("t", BROKER, 1)


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker() as running:
        running.create("t", 2, first=4)
        for number in range(5):
            running.send("t", 0, b"body %d" % number, store_ms=1000 * number)
        yield running


@pytest.fixture
def cluster(broker: MemoryBroker) -> Iterator[Cluster]:
    connected = Cluster(Connection((broker.address,), request_timeout_s=2.0, retry_timeout_s=0.5))
    yield connected
    connected.close()


def test_what_there_is(cluster: Cluster) -> None:
    assert cluster.topics() == ["t"]
    assert cluster.queues("t") == [Q0, Q1]
    assert cluster.min_offsets([Q0, Q1]) == {Q0: 4, Q1: 4}
    assert cluster.max_offsets([Q0, Q1]) == {Q0: 9, Q1: 4}
    assert cluster.offsets_by_time([Q0], 2500) == {Q0: 7}
    assert cluster.max_offsets([]) == {}


def test_a_pull(cluster: Cluster) -> None:
    result = cluster.start_pull(Q0, 5, 2, 1000, "*").result()
    assert result.status is PullStatus.FOUND
    assert result.next_offset == 7
    assert [record.body for record in iter_records(result.body)] == [b"body 1", b"body 2"]


def test_the_environment_says_how_to_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path, "authority")
    issued, own = authority.issue("servers"), authority.issue("executor")
    mutual = ServerTls(True, str(issued.cert), str(issued.key), "", str(authority.cert), "require")
    for name, path in (("CA", authority.cert), ("CERT", own.cert), ("KEY", own.key)):
        monkeypatch.setenv(f"RAPTORMQ_TLS_{name}", str(path))
    with MemoryBroker(tls=mutual) as running:
        running.create("t", 1)
        running.send("t", 0, b"secret")
        connected = Cluster(Connection((running.address,), request_timeout_s=5.0, retry_timeout_s=5.0))
        result = connected.start_pull(Q0, 0, 2, 1000, "*").result()
        assert [record.body for record in iter_records(result.body)] == [b"secret"]
        connected.close()
        monkeypatch.setenv("RAPTORMQ_TLS", "false")
        plain = Cluster(Connection((running.address,), request_timeout_s=2.0, retry_timeout_s=0.5))
        with pytest.raises(NameServerUnreachable):
            plain.topics()
        plain.close()


def test_options_say_how_to_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They override the environment, separately for each connection."""
    authority = Authority(tmp_path, "authority")
    issued, own = authority.issue("servers"), authority.issue("executor")
    mutual = ServerTls(True, str(issued.cert), str(issued.key), "", str(authority.cert), "require")
    monkeypatch.setenv("RAPTORMQ_TLS", "false")
    with MemoryBroker(tls=mutual) as running:
        running.create("t", 1)
        running.send("t", 0, b"secret")
        proven = Connection((running.address,), 5.0, 5.0, tls_ca=str(authority.cert))
        connected = Cluster(replace(proven, tls_cert=str(own.cert), tls_key=str(own.key)))
        result = connected.start_pull(Q0, 0, 2, 1000, "*").result()
        assert [record.body for record in iter_records(result.body)] == [b"secret"]
        connected.close()
        stranger = Cluster(replace(proven, retry_timeout_s=0.5))
        with pytest.raises(NameServerUnreachable):
            stranger.topics()
        stranger.close()


def test_progress_is_reported_for_a_group(cluster: Cluster, broker: MemoryBroker) -> None:
    assert cluster.report("reports", {Q0: 7, Q1: 4}) == []
    assert broker.committed == {("reports", "t", 0): 7, ("reports", "t", 1): 4}
    assert cluster.group_use("reports", [Q0, Q1]) == GroupUse([], {Q0: 7, Q1: 4})


def test_progress_is_not_reported_for_a_group_with_members(cluster: Cluster, broker: MemoryBroker) -> None:
    broker.members["billing"] = ["b@1", "a@1"]
    assert cluster.report("billing", {Q0: 7, Q1: 4}) == ["a@1", "b@1"]
    assert broker.committed == {}
    assert cluster.group_use("billing", [Q0, Q1]) == GroupUse(["a@1", "b@1"], {})


def test_a_topic_that_does_not_exist(cluster: Cluster) -> None:
    with pytest.raises(MissingTopic, match="topic nowhere does not exist"):
        cluster.queues("nowhere")


def test_a_refusal_that_will_not_pass_is_not_repeated(cluster: Cluster, broker: MemoryBroker) -> None:
    beyond = MessageQueue("t", BROKER, 7)
    with pytest.raises(ServerError, match="code 29"):
        cluster.max_offsets([beyond])
    assert broker.requests[RequestCode.GET_MAX_OFFSET] == 1


def test_a_topic_may_come_late(cluster: Cluster, broker: MemoryBroker) -> None:
    patient = Cluster(Connection((broker.address,), request_timeout_s=2.0, retry_timeout_s=30.0))
    before = broker.requests.get(RequestCode.GET_ROUTEINFO_BY_TOPIC, 0)
    waiting = patient.start_pull(MessageQueue("late", BROKER, 0), 0, 1, 1000, "*")
    while broker.requests.get(RequestCode.GET_ROUTEINFO_BY_TOPIC, 0) == before:
        time.sleep(0.01)
    broker.create("late", 1)
    broker.send("late", 0, b"at last")
    assert waiting.result(timeout=20).next_offset == 1
    patient.close()


def test_nobody_at_the_address_is_an_error_in_time(free_port: int) -> None:
    alone = Cluster(Connection((f"127.0.0.1:{free_port}",), request_timeout_s=0.2, retry_timeout_s=0.5))
    began = time.monotonic()
    with pytest.raises(NameServerUnreachable, match=f"no name server responds at 127.0.0.1:{free_port}"):
        alone.queues("t")
    with pytest.raises(NameServerUnreachable):
        alone.topics()
    assert time.monotonic() - began < 20  # not the time of many attempts
    alone.close()


def test_silence_at_an_address_is_an_error_in_time() -> None:
    """The timeout of a request exceeds that of the test."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        waiting = Cluster(Connection((address,), request_timeout_s=1000.0, retry_timeout_s=1000.0))
        with pytest.raises(NameServerUnreachable, match=rf"no name server responds at {address} .* within 3 s"):
            waiting.queues("t")
        waiting.close()


def test_a_process_has_one_set_of_connections(broker: MemoryBroker) -> None:
    connection = Connection((broker.address,))
    connected = cluster_of(connection)
    assert cluster_of(Connection((broker.address,))) is connected
    assert cluster_of(Connection((broker.address,), retry_timeout_s=1.0)) is not connected
    for each in (connected, cluster_of(Connection((broker.address,), retry_timeout_s=1.0))):
        each.close()
