"""A broker with access control: authentication, permissions, and their persistence."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from raptormq.broker.config.config import BrokerConfig
from raptormq.broker.security.required_permissions import MAX_ACKNOWLEDGED, MAX_HEARTBEAT_BYTES
from raptormq.errors import ConfigError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from raptormq.protocol.bodies.pop import BatchAck
from raptormq.protocol.bodies.queues import QueueLockRequest
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.queue_batches import Part, PartKind, decode_part_responses, encode_parts
from raptormq.protocol.signing import SIGNATURE, Credentials, sign
from tests.broker.batch_acks import encode_batch_acks
from tests.broker.harness import TIMEOUT, Peer, connected, running, send_fields

ROOT = Credentials("root", "root-secret")
ALICE = Credentials("alice", "alice-secret")
SECURED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username": "root", "password": "root-secret"}',
}


async def ask(
    peer: Peer, who: Credentials | None, code: int, fields: dict[str, object] | None = None, body: bytes = b""
) -> RemotingCommand:
    command = RemotingCommand(code, {name: str(value) for name, value in (fields or {}).items()}, body)
    if who is not None:
        sign(command, who)
    return await peer.connection.request(command, TIMEOUT)


async def create_alice(peer: Peer) -> None:
    body = json.dumps({"password": ALICE.secret_key, "userType": "Normal"}).encode()
    answer = await ask(peer, ROOT, RequestCode.AUTH_CREATE_USER, {"username": "alice"}, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def allow(peer: Peer, resource: str, actions: list[str], decision: str = "Allow", **more: object) -> None:
    entry = {"resource": resource, "actions": actions, "decision": decision} | more
    body = json.dumps({"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": [entry]}]})
    answer = await ask(peer, ROOT, RequestCode.AUTH_CREATE_ACL, {"subject": "User:alice"}, body.encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def send(peer: Peer, who: Credentials | None, topic: str = "orders") -> tuple[int, str | None]:
    answer = await ask(peer, who, RequestCode.SEND_MESSAGE_V2, send_fields(topic), b"x")
    return answer.code, answer.remark


@pytest.mark.parametrize(
    ("who", "remark"),
    [
        (None, "username cannot be null."),
        (Credentials("mallory", "x"), "User:mallory is not found."),
        (Credentials("root", "guessed"), "check signature failed."),
    ],
)
async def test_a_request_without_a_good_signature_is_refused(
    tmp_path: Path, who: Credentials | None, remark: str
) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        assert await send(peer, who) == (ResponseCode.NO_PERMISSION, remark)
        assert (await send(peer, ROOT))[0] == ResponseCode.SUCCESS


async def test_a_signature_covers_fields_and_body(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        signed = RemotingCommand(310, {name: str(value) for name, value in send_fields("orders").items()}, b"x")
        sign(signed, ROOT)
        body = RemotingCommand(310, dict(signed.ext_fields), b"y")
        field = RemotingCommand(310, signed.ext_fields | {"b": "other"}, b"x")
        bare = RemotingCommand(310, {k: v for k, v in signed.ext_fields.items() if k != SIGNATURE}, b"x")
        for forged in (body, field, bare):
            answer = await peer.connection.request(forged, TIMEOUT)
            assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "check signature failed.")


async def test_nothing_is_allowed_that_no_policy_allows(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        code, remark = await send(peer, ALICE)
        assert code == ResponseCode.NO_PERMISSION
        assert remark == "User:alice has no permission to access Topic:orders from 127.0.0.1, no matched policies."
        await allow(peer, "Topic:ord*", ["Pub"])
        assert (await send(peer, ALICE))[0] == ResponseCode.SUCCESS
        assert (await send(peer, ALICE, "other"))[0] == ResponseCode.NO_PERMISSION
        await allow(peer, "Topic:orders", ["Pub"], "Deny")
        code, remark = await send(peer, ALICE)
        assert remark == "User:alice has no permission to access Topic:orders from 127.0.0.1, the decision is deny."


@pytest.mark.parametrize(("source", "expected"), [("10.0.0.0/8", 16), ("127.0.0.0/8", 0), ("127.0.0.1", 0)])
async def test_a_policy_may_name_where_requests_come_from(tmp_path: Path, source: str, expected: int) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["All"], sourceIps=[source])
        assert (await send(peer, ALICE))[0] == expected


async def test_administration_needs_the_cluster(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        for code in (RequestCode.GET_BROKER_CONFIG, RequestCode.AUTH_LIST_USER, RequestCode.LITE_PULL_MESSAGE):
            assert (await ask(peer, ALICE, code)).code == ResponseCode.NO_PERMISSION
        await allow(peer, "Cluster:DefaultCluster", ["Get"])
        shown = await ask(peer, ALICE, RequestCode.GET_BROKER_CONFIG)
        assert shown.code == ResponseCode.SUCCESS
        assert b"root-secret" not in shown.body


def test_rights_without_signatures_are_a_mistake() -> None:
    with pytest.raises(ConfigError, match="authorizationEnabled=true needs authenticationEnabled=true"):
        BrokerConfig.from_pairs({"authorizationEnabled": "true"})


async def test_a_disabled_user_and_a_deleted_one_are_out_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "*", ["All"])
        assert (await send(peer, ALICE))[0] == ResponseCode.SUCCESS
        await ask(peer, ROOT, RequestCode.AUTH_UPDATE_USER, {"username": "alice"}, b'{"userStatus":"disable"}')
        assert await send(peer, ALICE) == (ResponseCode.NO_PERMISSION, "User:alice is disabled.")
        await ask(peer, ROOT, RequestCode.AUTH_DELETE_USER, {"username": "alice"})
        assert await send(peer, ALICE) == (ResponseCode.NO_PERMISSION, "User:alice is not found.")
        answer = await ask(peer, ROOT, RequestCode.AUTH_GET_ACL, {"subject": "User:alice"})
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "The subject is not exist.")


async def test_users_and_acls_survive_a_restart_in_files_that_others_cannot_read(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Pub"])
    for name in ("users.json", "acls.json"):
        assert stat.S_IMODE((tmp_path / "config" / name).stat().st_mode) == 0o600
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        assert (await send(peer, ALICE))[0] == ResponseCode.SUCCESS
        shown = json.loads((await ask(peer, ROOT, RequestCode.AUTH_GET_ACL, {"subject": "User:alice"})).body)
        entry = {"resource": "Topic:orders", "actions": ["Pub"], "decision": "Allow"}
        assert shown == {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": [entry]}]}
        await ask(peer, ROOT, RequestCode.AUTH_DELETE_ACL, {"subject": "User:alice", "resource": "Topic:orders"})
        assert (await send(peer, ALICE))[0] == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"resource": "Nothing:x"}, "The resource is null."),
        ({"actions": []}, "The actions is empty."),
        ({"actions": ["Any"]}, "The actions can not be Any."),
        ({"sourceIps": ["300.1.1.1"]}, "The source ip is invalid."),
        ({"decision": "Maybe"}, "The decision is null or illegal."),
    ],
)
async def test_an_acl_that_says_nothing_is_refused(tmp_path: Path, change: dict[str, object], remark: str) -> None:
    entry = {"resource": "Topic:orders", "actions": ["Pub"], "decision": "Allow"} | change
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        body = json.dumps({"policies": [{"entries": [entry]}]}).encode()
        answer = await ask(peer, ROOT, RequestCode.AUTH_CREATE_ACL, {"subject": "User:alice"}, body)
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, remark)


async def test_a_deletion_of_an_unknown_resource_deletes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Pub"])
        fields: dict[str, object] = {"subject": "User:alice", "resource": "Topik:orders"}
        refused = await ask(peer, ROOT, RequestCode.AUTH_DELETE_ACL, fields)
        assert (refused.remark or "").startswith("The resource Topik:orders is unknown")
        assert (await send(peer, ALICE))[0] == ResponseCode.SUCCESS


async def test_a_heartbeat_that_cannot_be_read_does_not_pass(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        answer = await ask(peer, ALICE, RequestCode.HEART_BEAT, body=b"[")
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "parse authorization context error.")


async def test_a_heartbeat_that_names_too_many_to_be_judged_does_not_pass(tmp_path: Path) -> None:
    body = HeartbeatData("c", ["producers"]).to_json()
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        for who, length, code in (
            (ALICE, MAX_HEARTBEAT_BYTES, ResponseCode.SUCCESS),
            (ALICE, MAX_HEARTBEAT_BYTES + 1, ResponseCode.NO_PERMISSION),
            (ROOT, MAX_HEARTBEAT_BYTES + 1, ResponseCode.SUCCESS),
        ):
            assert (await ask(peer, who, RequestCode.HEART_BEAT, body=body.ljust(length))).code == code


async def test_locks_are_for_topics_that_the_client_may_read(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Sub"])
        await allow(peer, "Group:g", ["Sub"])
        orders = [MessageQueue("orders", "broker-a", number) for number in range(100)]
        for queues, code in (
            (orders, ResponseCode.SUCCESS),
            ([*orders, MessageQueue("%RETRY%g", "broker-a", 0)], ResponseCode.SUCCESS),
            ([*orders, MessageQueue("%RETRY%boss", "broker-a", 0)], ResponseCode.NO_PERMISSION),
            ([*orders, MessageQueue("other", "broker-a", 0)], ResponseCode.NO_PERMISSION),
        ):
            body = QueueLockRequest("g", "c", queues).to_json()
            assert (await ask(peer, ALICE, RequestCode.LOCK_BATCH_MQ, body=body)).code == code


async def test_the_parts_of_a_request_for_several_queues_are_judged_one_by_one(tmp_path: Path) -> None:
    def part(topic_index: int) -> Part:
        return Part(PartKind.LIST, topic_index, 0, 0, 0, "", encode_batch([(0, b"x", b"")]))

    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Pub"])
        fields: dict[str, object] = {"a": "g", "b": "other;orders;%RETRY%g", "c": "TBW102", "d": 4, "g": 1}
        body = encode_parts([part(0), part(1), part(2), part(1)])
        code = RequestCode.SEND_QUEUE_BATCHES
        stranger = await ask(peer, Credentials("alice", "guessed"), code, fields, body)
        nobody = await ask(peer, None, code, fields, body)
        judged = await ask(peer, ALICE, code, fields, body)
        root = await ask(peer, ROOT, code, fields | {"b": "other;orders;more"}, body)
    assert [each.code for each in (stranger, nobody)] == [ResponseCode.NO_PERMISSION] * 2
    denied, allowed = ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS
    answers = decode_part_responses(judged.body, 4)
    assert [each.code for each in answers] == [denied, allowed, denied, allowed]
    assert answers[0].text == "User:alice has no permission to access Topic:other from 127.0.0.1, no matched policies."
    assert answers[2].text.startswith("User:alice has no permission to access Group:g ")
    assert [each.code for each in decode_part_responses(root.body, 4)] == [allowed] * 4


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    ],
)
async def test_retries_are_read_by_their_own_group(tmp_path: Path, code: RequestCode) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Sub", "Update"])
        await allow(peer, "Group:g", ["Sub", "Update"])
        for topic, is_allowed in (
            ("orders", True),
            ("other", False),
            ("%RETRY%g", True),
            ("%RETRY%g_orders", True),  # popped, and not acknowledged in time
            ("%RETRY%g+orders", True),
            ("%RETRY%g_other", False),
            ("%RETRY%boss", False),
            ("%RETRY%boss+orders", False),
            ("%DLQ%g", False),
        ):
            answer = await ask(peer, ALICE, code, {"consumerGroup": "g", "topic": topic})
            assert (answer.code != ResponseCode.NO_PERMISSION) == is_allowed, (topic, answer.remark)


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.POP_MESSAGE, {"consumerGroup": "g"}),
        (RequestCode.PEEK_MESSAGE, {"consumerGroup": "g"}),
        (RequestCode.PULL_MESSAGE, {"consumerGroup": "g2"}),
        (RequestCode.SEND_MESSAGE, {}),
        (RequestCode.GET_MAX_OFFSET, {}),
        (RequestCode.QUERY_CONSUME_QUEUE, {"consumerGroup": "g"}),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {}),
    ],
)
async def test_rights_on_groups_alone_do_not_open_what_pops_deliver_again(
    tmp_path: Path, code: RequestCode, fields: dict[str, object]
) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Group:g*", ["All"])
        await allow(peer, "Topic:orders", ["All"])
        for topic, is_allowed in (("%RETRY%g+orders", True), ("%RETRY%g+secret", False)):
            answer = await ask(peer, ALICE, code, fields | {"topic": topic})
            assert (answer.code != ResponseCode.NO_PERMISSION) == is_allowed, (topic, answer.remark)


async def test_retries_are_announced_by_their_own_group(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Sub"])
        await allow(peer, "Group:g", ["Sub"])
        for topic, code in (("%RETRY%g", ResponseCode.SUCCESS), ("%RETRY%boss", ResponseCode.NO_PERMISSION)):
            subscriptions = [Subscription.parse(each, "*", 1) for each in ("orders", topic)]
            body = HeartbeatData("c", consumers=[ConsumerData("g", subscriptions=subscriptions)]).to_json()
            assert (await ask(peer, ALICE, RequestCode.HEART_BEAT, body=body)).code == code


@pytest.mark.parametrize("group", ["g", "CLIENT_INNER_PRODUCER"])  # clients use the latter name
async def test_retries_are_sent_by_who_may_read_them(tmp_path: Path, group: str) -> None:
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Group:g", ["Sub"])
        for topic, code in (("%RETRY%g", ResponseCode.SUCCESS), ("%RETRY%boss", ResponseCode.NO_PERMISSION)):
            fields = send_fields(topic) | {"a": group}
            assert (await ask(peer, ALICE, RequestCode.SEND_MESSAGE_V2, fields, b"x")).code == code


@pytest.mark.parametrize(
    ("group", "topic", "kind", "code"),
    [
        ("g", "orders", "0", ResponseCode.SUCCESS),
        ("g", "orders", "1", ResponseCode.SUCCESS),
        ("g", "orders", "2", ResponseCode.SUCCESS),
        ("g", "%RETRY%g", "0", ResponseCode.SUCCESS),
        ("g", "other", "0", ResponseCode.NO_PERMISSION),
        ("g", "other", "1", ResponseCode.NO_PERMISSION),
        ("g", "%RETRY%boss", "0", ResponseCode.NO_PERMISSION),
        ("boss", "orders", "0", ResponseCode.NO_PERMISSION),
    ],
)
async def test_each_of_many_acknowledgements_is_judged(
    tmp_path: Path, group: str, topic: str, kind: str, code: ResponseCode
) -> None:
    own, judged = (BatchAck(*names, 0, 0, 0, 1, (0,)) for names in (("g", "orders", "0"), (group, topic, kind)))
    rows = json.loads(encode_batch_acks("broker-a", [own, judged]))
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders", ["Sub"])
        await allow(peer, "Group:g", ["Sub"])
        for more in ({}, {"consumerGroup": "g"}):  # the latter has no message
            body = json.dumps(rows | more).encode()
            answer = await ask(peer, ALICE, RequestCode.BATCH_ACK_MESSAGE, body=body)
            assert answer.code == code, answer.remark


@pytest.mark.parametrize(("rows", "topics"), [(4_096, 1), (4_097, 1), (MAX_ACKNOWLEDGED + 1, MAX_ACKNOWLEDGED + 1)])
async def test_acknowledgements_that_are_too_many_to_be_judged_do_not_pass(
    tmp_path: Path, rows: int, topics: int
) -> None:
    acks = [BatchAck("g", f"orders{number % topics}", "0", 0, 0, 0, 1, (0,)) for number in range(rows)]
    body = encode_batch_acks("broker-a", acks)
    async with running(tmp_path, SECURED) as broker, connected(broker) as peer:
        await create_alice(peer)
        await allow(peer, "Topic:orders*", ["Sub"])
        await allow(peer, "Group:g", ["Sub"])
        answer = await ask(peer, ALICE, RequestCode.BATCH_ACK_MESSAGE, body=body)
    if rows == 4_096:
        assert answer.code == ResponseCode.SUCCESS
    else:
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "parse authorization context error.")
