"""A name server with access control: accepted registrations and changes, and requests without permissions."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.namesrv.service import NameServer
from raptormq.protocol.bodies.route import ClusterInfo
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.full_signature import SignatureStamp, sign_fully
from raptormq.protocol.signing import Credentials, sign
from raptormq.storage.store import now_ms
from raptormq.transport.pool import ConnectionPool
from tests.namesrv.test_service import ADDRESS, TIMEOUT_S, Peer, config_for, registration_body, serving

INNER = Credentials("inner", "inner-secret")
ROOT = Credentials("root", "root-secret")
ALICE = Credentials("alice", "alice-secret")
ELSEWHERE = "10.0.0.66:10911"


def secured(folder: Path, **more: str) -> dict[str, str]:
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username": "root", "password": "root-secret"}',
        "innerClientAuthenticationCredentials": '{"accessKey": "inner", "secretKey": "inner-secret"}',
        "authConfigPath": str(folder / "auth"),
    } | more


async def ask(
    peer: Peer, who: Credentials | None, code: int, body: bytes = b"", /, **ext_fields: str
) -> RemotingCommand:
    command = RemotingCommand(code, dict(ext_fields), body)
    if who is not None:
        sign(command, who)
    return await peer.pool.request(peer.address, command, TIMEOUT_S)


BROKER = {
    "brokerName": "broker-a",
    "brokerAddr": ADDRESS,
    "clusterName": "c",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}


async def register(peer: Peer, who: Credentials | None, **fields: str) -> RemotingCommand:
    return await ask(peer, who, RequestCode.REGISTER_BROKER, registration_body(("t", "u")), **BROKER | fields)


async def addresses(peer: Peer) -> dict[str, dict[int, str]]:
    """Return the addresses of the brokers, as every client receives them."""
    answer = await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return {name: data.broker_addrs for name, data in ClusterInfo.from_json(answer.body).brokers.items()}


async def make_alice(peer: Peer, **rights: list[str]) -> None:
    """Create a user with these permissions on clusters."""
    body = json.dumps({"password": ALICE.secret_key, "userType": "Normal"}).encode()
    assert (await ask(peer, ROOT, RequestCode.AUTH_CREATE_USER, body, username="alice")).code == 0
    for cluster, actions in rights.items():
        entry = {"resource": f"Cluster:{cluster}", "actions": actions, "decision": "Allow"}
        policy = {"policyType": "Custom", "entries": [entry]}
        acl = json.dumps({"subject": "User:alice", "policies": [policy]}).encode()
        assert (await ask(peer, ROOT, RequestCode.AUTH_CREATE_ACL, acl, subject="User:alice")).code == 0


CHANGES: list[tuple[int, bytes, dict[str, str]]] = [
    (RequestCode.REGISTER_BROKER, registration_body(("t", "u")), BROKER | {"brokerAddr": ELSEWHERE}),
    (RequestCode.UNREGISTER_BROKER, b"", BROKER),
    (RequestCode.BROKER_HEARTBEAT, b"", BROKER),
    (RequestCode.QUERY_DATA_VERSION, b"", BROKER),
    (RequestCode.WIPE_WRITE_PERM_OF_BROKER, b"", {"brokerName": "broker-a"}),
    (RequestCode.ADD_WRITE_PERM_OF_BROKER, b"", {"brokerName": "broker-a"}),
    (RequestCode.PUT_KV_CONFIG, b"", {"namespace": "n", "key": "k", "value": "v"}),
    (RequestCode.DELETE_KV_CONFIG, b"", {"namespace": "n", "key": "k"}),
    (RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true", {}),
    (RequestCode.DELETE_TOPIC_IN_NAMESRV, b"", {"topic": "t"}),
    (RequestCode.REGISTER_TOPIC_IN_NAMESRV, b"", {"topic": "new"}),
    (RequestCode.AUTH_CREATE_USER, b'{"password": "x"}', {"username": "mallory"}),
    (RequestCode.AUTH_LIST_USER, b"", {}),
    (RequestCode.GET_NAMESRV_CONFIG, b"", {}),
    (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, b"", {}),
]


@pytest.mark.parametrize(("code", "body", "fields"), CHANGES)
async def test_what_is_not_signed_or_not_allowed_is_refused(
    tmp_path: Path, code: int, body: bytes, fields: dict[str, str]
) -> None:
    async with serving(tmp_path, **secured(tmp_path)) as peer:
        assert (await register(peer, INNER)).code == ResponseCode.SUCCESS
        await make_alice(peer)
        refusals = [
            (None, "username cannot be null."),
            (Credentials("inner", "guessed"), "check signature failed."),
            (ALICE, "User:alice has no permission to access"),
        ]
        for who, remark in refusals:
            answer = await ask(peer, who, code, body, **fields)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert answer.remark is not None
            assert answer.remark.startswith(remark)
        assert await addresses(peer) == {"broker-a": {0: ADDRESS}}
        route = await peer.route("t")
        assert route is not None
        assert [queue.perm for queue in route.queues] == [6]
        assert (await ask(peer, ROOT, code, body, **fields)).code == ResponseCode.SUCCESS


async def test_where_things_are_anybody_may_ask_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    closed = secured(tmp_path, authenticationWhitelist="", authorizationWhitelist="")
    async with serving(tmp_path, **secured(tmp_path)) as peer:
        await register(peer, INNER)
        assert await peer.route("t") is not None
        assert await addresses(peer) == {"broker-a": {0: ADDRESS}}
    async with serving(tmp_path, **closed) as peer:
        await register(peer, INNER)
        for code in (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO):
            assert (await ask(peer, None, code, topic="t")).code == ResponseCode.NO_PERMISSION
        await make_alice(peer, c=["Get"])
        assert (await ask(peer, ALICE, 105, topic="t")).code == ResponseCode.NO_PERMISSION
        entry = {"resource": "Topic:t", "actions": ["Pub"], "decision": "Allow"}
        acl = {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": [entry]}]}
        await ask(peer, ROOT, RequestCode.AUTH_UPDATE_ACL, json.dumps(acl).encode(), subject="User:alice")
        assert (await ask(peer, ALICE, 105, topic="t")).code == ResponseCode.SUCCESS
        assert (await ask(peer, ALICE, 105, topic="u")).code == ResponseCode.NO_PERMISSION


async def test_rights_on_a_cluster_push_no_broker_of_another_one_out(tmp_path: Path) -> None:
    async with serving(tmp_path, **secured(tmp_path)) as peer:
        assert (await register(peer, INNER)).code == ResponseCode.SUCCESS
        await make_alice(peer, mine=["Update", "Get"])
        own = {"clusterName": "mine", "brokerName": "broker-m", "brokerAddr": ELSEWHERE}
        assert (await register(peer, ALICE, **own)).code == ResponseCode.SUCCESS
        thefts = [
            {"clusterName": "mine", "brokerAddr": ELSEWHERE},  # the name of a broker of c
            own | {"brokerAddr": ADDRESS},  # its address
            {"clusterName": "", "brokerAddr": ELSEWHERE},
        ]
        for theft in thefts:
            assert (await register(peer, ALICE, **theft)).code == ResponseCode.NO_PERMISSION
        wipe = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        assert (await ask(peer, ALICE, wipe, brokerName="broker-a")).code == ResponseCode.NO_PERMISSION
        assert (await ask(peer, ALICE, wipe, brokerName="nobody")).code == ResponseCode.NO_PERMISSION
        assert (await ask(peer, ALICE, wipe, brokerName="broker-m")).code == ResponseCode.SUCCESS
        assert (await ask(peer, ALICE, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c")).code == 16
        assert (await ask(peer, ALICE, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="mine")).code == 0
        for code, body, fields in CHANGES[4:]:  # which concern no cluster, or another cluster than they name
            answer = await ask(peer, ALICE, code, body, **fields, clusterName="mine", cluster="mine")
            assert answer.code == ResponseCode.NO_PERMISSION
        assert await addresses(peer) == {"broker-a": {0: ADDRESS}, "broker-m": {0: ELSEWHERE}}


async def test_users_survive_a_restart_in_files_that_others_cannot_read(tmp_path: Path) -> None:
    async with serving(tmp_path, **secured(tmp_path)) as peer:
        await make_alice(peer, c=["Update"])
    for name in ("users.json", "acls.json"):
        assert stat.S_IMODE((tmp_path / "auth" / name).stat().st_mode) == 0o600
    async with serving(tmp_path, **secured(tmp_path)) as peer:
        assert (await register(peer, ALICE)).code == ResponseCode.SUCCESS


async def test_a_registration_that_is_sent_again_is_refused(tmp_path: Path) -> None:
    """A recorded request must not restore a broker that has unregistered, or its former topics."""
    async with serving(tmp_path, **secured(tmp_path, demandFullSignature="true")) as peer:
        classic = await register(peer, INNER)
        assert classic.code == ResponseCode.NO_PERMISSION
        assert "demandFullSignature" in (classic.remark or "")
        command = RemotingCommand(RequestCode.REGISTER_BROKER, dict(BROKER), registration_body(("t", "u")))
        sign_fully(command, INNER, SignatureStamp(now_ms(), "00112233445566ff", 1))
        answers = [await peer.pool.request(peer.address, command, TIMEOUT_S) for _ in range(2)]
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION]


async def test_no_request_changes_access_control(tmp_path: Path) -> None:
    """A user who may change settings could become a super user at the next start."""
    async with serving(tmp_path, **secured(tmp_path)) as peer:
        for line in ("authenticationEnabled=false", 'initAuthenticationUser={"username":"me","password":"x"}'):
            answer = await ask(peer, ROOT, RequestCode.UPDATE_NAMESRV_CONFIG, line.encode())
            assert answer.code == ResponseCode.NO_PERMISSION
        changed = await ask(peer, ROOT, RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true")
        assert changed.code == ResponseCode.SUCCESS, changed.remark
        shown = await ask(peer, ROOT, RequestCode.GET_NAMESRV_CONFIG)
        assert b"orderMessageEnable=true" in shown.body
        assert b"authenticationEnabled=true" in shown.body
        assert b"secret\n" not in shown.body
        assert b"-secret" not in shown.body


async def test_without_access_control_nothing_is_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        assert (await register(peer, None)).code == ResponseCode.SUCCESS
        assert (await register(peer, ALICE)).code == ResponseCode.SUCCESS
        assert (await peer.ask(RequestCode.AUTH_LIST_USER)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert not (tmp_path / "auth").exists()


# --- brokers that lose their place ----------------------------------------------------------------------------------


@asynccontextmanager
async def two_peers(folder: Path) -> AsyncIterator[tuple[Peer, Peer, NameServer]]:
    server = NameServer(config_for(folder, metricsPort="0", metricsHost="127.0.0.1"))
    await server.start()
    peers = Peer(f"127.0.0.1:{server.port}"), Peer(f"127.0.0.1:{server.port}")
    try:
        yield *peers, server
    finally:
        for peer in peers:
            await peer.pool.close()
        await server.stop()


async def metric(server: NameServer, name: str) -> float:
    assert server.metrics_address is not None
    host, _, port = server.metrics_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return float(next(line for line in text.splitlines() if line.startswith(f"raptormq_namesrv_{name} ")).split()[1])


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"brokerAddr": ELSEWHERE}, ADDRESS),
        ({"brokerName": "other"}, "its previous registration"),
        ({}, "its previous registration"),
    ],
)
async def test_a_broker_that_has_not_gone_does_not_lose_its_place_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fields: dict[str, str], place: str
) -> None:
    async with two_peers(tmp_path) as (broker, other, server):
        await register(broker, None)
        with caplog.at_level(logging.WARNING):
            await register(broker, None)  # its next registration
            assert not caplog.records
            assert await metric(server, "brokers_displaced_total") == 0
            await register(other, None, **fields)
        (record,) = caplog.records
        assert f"{place}, which has not unregistered" in record.getMessage()
        assert await metric(server, "brokers_displaced_total") == 1
        assert await metric(server, "brokers") == 1


async def test_a_broker_that_comes_back_elsewhere_is_no_surprise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_peers(tmp_path) as (broker, other, server):
        await register(broker, None)
        await broker.pool.close()  # like the end of its process
        while await addresses(other):
            pass
        with caplog.at_level(logging.WARNING):
            await register(other, None, brokerAddr=ELSEWHERE)
        assert not caplog.records
        assert await metric(server, "brokers_displaced_total") == 0


async def test_a_broker_that_is_ahead_keeps_its_place_and_nobody_is_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = registration_body(("t", "u"))
    ahead = body.replace(b'"stateVersion":0', b'"stateVersion":5')
    assert ahead != body
    async with two_peers(tmp_path) as (broker, other, server):
        await ask(broker, None, RequestCode.REGISTER_BROKER, ahead, **BROKER)
        with caplog.at_level(logging.WARNING):
            await register(other, None, brokerAddr=ELSEWHERE)
        assert await addresses(other) == {"broker-a": {0: ADDRESS}}
        assert not caplog.records
        assert await metric(server, "brokers_displaced_total") == 0


async def test_a_goodbye_in_the_name_of_another_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with two_peers(tmp_path) as (broker, other, server):
        with caplog.at_level(logging.WARNING):
            await register(broker, None)
            await ask(broker, None, RequestCode.UNREGISTER_BROKER, **BROKER)
            assert await addresses(broker) == {}
            await ask(other, None, RequestCode.UNREGISTER_BROKER, **BROKER)  # of no broker
            assert not caplog.records
            await register(broker, None)
            await ask(other, None, RequestCode.UNREGISTER_BROKER, **BROKER)
        (record,) = caplog.records
        assert f"broker broker-a at {ADDRESS} was unregistered by" in record.getMessage()
        assert await metric(server, "brokers_unregistered_by_others_total") == 1


async def test_refused_requests_are_counted(tmp_path: Path) -> None:
    settings = secured(tmp_path, metricsPort="0", metricsHost="127.0.0.1")
    server = NameServer(config_for(tmp_path, **settings))
    await server.start()
    pool = ConnectionPool()
    try:
        command = RemotingCommand(RequestCode.UNREGISTER_BROKER, dict(BROKER))
        await pool.request(f"127.0.0.1:{server.port}", command, TIMEOUT_S)
        assert await metric(server, "requests_refused_total") == 1
    finally:
        await pool.close()
        await server.stop()
