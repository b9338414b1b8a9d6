"""Every request that changes something, at a leader which is cut off from its group: no change is answered with success
that the next leader does not have. ``docs/reference/requests.md`` has the table of these requests.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.requests import By, codes_with
from raptormq.protocol.bodies.pop import BatchAck
from raptormq.protocol.bodies.queues import QueueLockRequest
from raptormq.protocol.bodies.staging import encode_decision, to_ranges
from raptormq.protocol.codes import RequestCode as C
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.message_id import parse_offset_id
from raptormq.protocol.pop_handle import build_handle
from raptormq.protocol.queue_batches import Part, PartKind, decode_part_responses, encode_parts
from raptormq.storage.store import now_ms
from tests.broker.batch_acks import encode_batch_acks
from tests.broker.handlers.test_pop import HOUR, MINUTE, handle_of, pop
from tests.broker.harness import Peer, assembly_of, bodies, connected, send_fields
from tests.broker.replication.test_brokers import LIST, all_ready, group, leader_of, part_of
from tests.broker.staging.staging_peer import STAGES, staged
from tests.broker.transaction.producer import COMMIT, NEVER, PREPARED, prepare

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "requests.md").read_text(encoding="utf-8")
SETTINGS = STAGES | NEVER | {"recallMessageEnable": "true"}
WAITING = "confirmed", "leader", "saved", "group"
LATE = {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}
IMPOSSIBLE = {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.ILLEGAL_OPERATION}
CHANGES_NOTHING = frozenset(
    {
        C.QUERY_MESSAGE, C.QUERY_CONSUMER_OFFSET, C.GET_ALL_TOPIC_CONFIG, C.GET_BROKER_CONFIG,
        C.GET_BROKER_RUNTIME_INFO, C.SEARCH_OFFSET_BY_TIMESTAMP, C.GET_MAX_OFFSET, C.GET_MIN_OFFSET,
        C.GET_EARLIEST_MSG_STORETIME, C.VIEW_MESSAGE_BY_ID, C.GET_CONSUMER_LIST_BY_GROUP, C.GET_ALL_CONSUMER_OFFSET,
        C.GET_ALL_DELAY_OFFSET, C.CHECK_CLIENT_CONFIG, C.GET_TIMER_CHECK_POINT, C.GET_TIMER_METRICS,
        C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, C.GET_TOPIC_STATS_INFO, C.GET_CONSUMER_CONNECTION_LIST,
        C.GET_PRODUCER_CONNECTION_LIST, C.GET_CONSUME_STATS, C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        C.QUERY_TOPIC_CONSUME_BY_WHO, C.QUERY_CONSUME_TIME_SPAN, C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        C.GET_CONSUMER_RUNNING_INFO, C.CONSUME_MESSAGE_DIRECTLY, C.VIEW_BROKER_STATS_DATA, C.GET_BROKER_CONSUME_STATS,
        C.QUERY_CONSUME_QUEUE, C.GET_ALL_PRODUCER_INFO, C.QUERY_TOPICS_BY_CONSUMER, C.QUERY_SUBSCRIPTION_BY_CONSUMER,
        C.GET_TOPIC_CONFIG, C.GET_SUBSCRIPTIONGROUP_CONFIG, C.QUERY_ASSIGNMENT, C.GET_ALL_MESSAGE_REQUEST_MODE,
        C.EXCHANGE_BROKER_HA_INFO, C.GET_BROKER_HA_STATUS, C.CONTROLLER_GET_METADATA_INFO,
        C.CONTROLLER_GET_SYNC_STATE_DATA, C.GET_BROKER_EPOCH_CACHE, C.GET_CONTROLLER_CONFIG, C.AUTH_GET_USER,
        C.AUTH_LIST_USER, C.AUTH_GET_ACL, C.AUTH_LIST_ACL, C.COMPARE_LOG, C.READ_LOG_RANGE, C.DESCRIBE_REPLICATION,
        C.PEEK_MESSAGE, C.NOTIFICATION, C.POLLING_INFO,
    }
)  # fmt: skip
POLICY = json.dumps(
    {"policies": [{"entries": [{"resource": "Topic:x", "actions": ["Pub"], "decision": "Allow"}]}]}
).encode()


class Request(NamedTuple):
    code: int
    fields: dict[str, object]
    body: bytes = b""


def table() -> dict[int, str]:
    """Return when each request of the page is answered, by code."""
    section = PAGE.split("## When changes are answered\n")[1].split("\n## ")[0]
    found: dict[int, str] = {}
    for codes, kind in re.findall(r"^\| ([\d, ]+) \| (\w+) \|", section, re.MULTILINE):
        for code in map(int, codes.split(",")):
            assert code not in found
            found[code] = kind
    return found


def topic_fields(name: str) -> dict[str, object]:
    fields: dict[str, object] = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1}
    return fields | {"perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"}


def by_json(**members: object) -> bytes:
    return json.dumps(members).encode()


def handle_field(popped: RemotingCommand, topic: str, offset: int) -> str:
    return build_handle(handle_of(popped, 0), topic, 0, offset)


async def changes(peer: Peer, name: str) -> list[Request]:
    """Prepare topics, groups and messages whose names begin with ``name``, and return requests that change them."""
    topic, gone = f"{name}-topic", (f"{name}-gone", f"{name}-gone2", f"{name}-gone3")
    consumers = f"{name}-group"
    dead = [f"{name}-dead{number}" for number in range(3)]
    for each in (topic, *gone):
        assert (await peer.call(C.UPDATE_AND_CREATE_TOPIC, topic_fields(each))).code == 0
    for each in (consumers, f"{name}-copy", *dead):
        assert (await peer.call(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, by_json(groupName=each))).code == 0
    sent = await peer.send(topic, b"0")
    for number in range(1, 4):
        assert (await peer.send(topic, b"%d" % number)).code == 0
    own: dict[str, object] = {"topic": topic, "consumerGroup": consumers}
    popped = await pop(peer, **own, maxMsgNums=3)
    assert bodies(popped) == [b"0", b"1", b"2"]
    orderly: dict[str, object] = {"topic": topic, "consumerGroup": f"{name}-copy", "order": True}
    in_order = await pop(peer, **orderly)
    half, second = [await prepare(peer, properties=PREPARED) for _ in range(2)]
    timer = await peer.send(topic, b"later", properties="TIMER_DELAY_MS\x013600000\x02")
    assert timer.code == 0
    lists = [await staged(peer, [b"row"], topic=topic, query=name)]
    assert (await peer.call(C.UPDATE_CONSUMER_OFFSET, {**own, "queueId": 0, "commitOffset": 1})).code == 0
    for user in ("changed", "deleted", "allowed"):
        created = await peer.call(C.AUTH_CREATE_USER, {"username": f"{name}-{user}"}, by_json(password="pa$$-word-1"))
        assert created.code == 0, created.remark
    handle = handle_of(popped, 0)
    batch_ack = BatchAck(consumers, topic, "0", 0, handle.revive_queue, 0, handle.pop_time, (1,))
    locked = QueueLockRequest(consumers, f"{name}-client", [MessageQueue(topic, "broker-a", 0)]).to_json()
    physical = parse_offset_id(sent.ext_fields["msgId"]).physical_offset
    subject: dict[str, object] = {"subject": f"User:{name}-allowed"}
    part = encode_parts([Part(PartKind.MESSAGE, 0, 0, 0, 0, "", b"part")])
    stage_fields = send_fields(topic, 0, "UNIQ_KEY\x01u\x02") | {"m": "true", "query": name, "batch": 1}
    pop_fields = own | {"queueId": 0, "maxMsgNums": 1, "invisibleTime": MINUTE, "pollTime": 0, "initMode": 0}
    pop_fields["bornTime"] = now_ms() + HOUR
    ordered = build_handle(handle_of(in_order, 0), topic, 0, 0)
    return [
        Request(C.SEND_MESSAGE_V2, send_fields(topic), b"x"),
        Request(
            C.SEND_MESSAGE,
            {
                "producerGroup": "p",
                "topic": topic,
                "defaultTopic": "TBW102",
                "defaultTopicQueueNums": 1,
                "queueId": 0,
                "sysFlag": 0,
                "bornTimestamp": 1,
                "flag": 0,
                "properties": "",
                "reconsumeTimes": 0,
            },
            b"x",
        ),
        Request(C.SEND_BATCH_MESSAGE, send_fields(topic) | {"m": "true"}, LIST),
        Request(C.SEND_QUEUE_BATCHES, send_fields(topic), part),
        Request(C.STAGE_BATCH, stage_fields, LIST),
        Request(C.COMMIT_STAGED, {"query": name, "batch": 0}, encode_decision({"broker-a": to_ranges(lists)})),
        Request(C.CONSUMER_SEND_MSG_BACK, {"offset": physical, "group": consumers, "delayLevel": 1}),
        Request(
            C.END_TRANSACTION,
            {
                "producerGroup": "producers",
                "tranStateTableOffset": half.ext_fields["queueOffset"],
                "commitLogOffset": parse_offset_id(half.ext_fields["msgId"]).physical_offset,
                "commitOrRollback": COMMIT,
                "fromTransactionCheck": "false",
                "msgId": "K1",
            },
        ),
        Request(C.RESUME_CHECK_HALF_MESSAGE, {"msgId": second.ext_fields["msgId"]}),
        Request(
            C.RECALL_MESSAGE,
            {
                "topic": topic,
                "recallHandle": timer.ext_fields["recallHandle"],
                "producerGroup": "p",
            },
        ),
        Request(C.POP_MESSAGE, pop_fields),
        Request(C.ACK_MESSAGE, own | {"queueId": 0, "offset": 0, "extraInfo": handle_field(popped, topic, 0)}),
        Request(C.BATCH_ACK_MESSAGE, {}, encode_batch_acks("broker-a", [batch_ack])),
        Request(
            C.CHANGE_MESSAGE_INVISIBLETIME,
            own
            | {
                "queueId": 0,
                "offset": 2,
                "extraInfo": handle_field(popped, topic, 2),
                "invisibleTime": HOUR,
            },
        ),
        Request(C.ACK_MESSAGE, {**orderly, "queueId": 0, "offset": 0, "extraInfo": ordered}),
        Request(C.UPDATE_CONSUMER_OFFSET, own | {"queueId": 0, "commitOffset": 2}),
        Request(C.UPDATE_CONSUMER_OFFSET, own | {"queueId": 0, "commitOffset": 2}),
        Request(C.LOCK_BATCH_MQ, {}, locked),
        Request(C.UNLOCK_BATCH_MQ, {}, locked),
        Request(C.UPDATE_AND_CREATE_TOPIC, topic_fields(f"{name}-new")),
        Request(C.UPDATE_AND_CREATE_TOPIC, topic_fields(topic)),
        Request(C.UPDATE_AND_CREATE_TOPIC_LIST, {}, by_json(topicConfigList=[{"topicName": f"{name}-new2"}])),
        Request(C.DELETE_TOPIC_IN_BROKER, {"topic": gone[0]}),
        Request(C.DELETE_TOPIC_IN_BROKER_LIST, {}, by_json(topicList=[gone[1]])),
        Request(C.CLEAN_UNUSED_TOPIC, {}),
        Request(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, by_json(groupName=f"{name}-new")),
        Request(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, by_json(groupConfigList=[{"groupName": "other"}])),
        Request(C.DELETE_SUBSCRIPTIONGROUP, {"groupName": dead[0]}),
        Request(C.DELETE_SUBSCRIPTION_GROUP_LIST, {}, by_json(groupNameList=[dead[1]])),
        Request(C.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": dead[2], "topic": topic, "readable": "false"}),
        Request(
            C.INVOKE_BROKER_TO_RESET_OFFSET,
            {
                "topic": topic,
                "group": consumers,
                "timestamp": "0",
                "isForce": "true",
            },
        ),
        Request(C.CLONE_GROUP_OFFSET, {"srcGroup": consumers, "destGroup": f"{name}-copy", "topic": topic}),
        Request(C.SET_MESSAGE_REQUEST_MODE, {}, by_json(topic=topic, consumerGroup=consumers, mode="POP")),
        Request(C.AUTH_CREATE_USER, {"username": f"{name}-new"}, by_json(password="pa$$-word-2")),
        Request(C.AUTH_UPDATE_USER, {"username": f"{name}-changed"}, by_json(password="pa$$-word-3")),
        Request(C.AUTH_DELETE_USER, {"username": f"{name}-deleted"}),
        Request(C.AUTH_CREATE_ACL, subject, POLICY),
        Request(C.AUTH_UPDATE_ACL, subject, POLICY),
        Request(C.AUTH_DELETE_ACL, subject | {"resource": "Topic:x"}),
    ]


def of_members(brokers: dict[str, Broker]) -> list[Request]:
    """Return requests that change the members of the group."""
    other = next(member for member in brokers if member != leader_of(brokers))
    broker_id = int(other[1:]) + 1
    controller: dict[str, object] = {"brokerName": "broker-a"}
    return [
        Request(C.TRANSFER_LEADERSHIP, {"to": other}),
        Request(C.CHANGE_MEMBERS, {"member": other, "action": "remove"}),
        Request(C.CONTROLLER_ELECT_MASTER, controller | {"brokerId": broker_id, "designateElect": "true"}),
        Request(C.CLEAN_BROKER_DATA, controller | {
            "brokerControllerIdsToClean": str(broker_id), "isCleanLivingBroker": "true",
        }),
    ]  # fmt: skip


async def outcomes(peer: Peer, requests: Iterable[Request]) -> list[tuple[C, int, str]]:
    """Send all requests at once on one connection. Return code, result and remark of each, of 30320 those of its
    part.
    """
    requests = list(requests)
    answers = await asyncio.gather(*(peer.call(each.code, each.fields, each.body) for each in requests))
    found = []
    for each, answer in zip(requests, answers, strict=True):
        code, remark = answer.code, answer.remark or ""
        if each.code == C.SEND_QUEUE_BATCHES and code == 0:
            (part,) = decode_part_responses(answer.body, 1)
            code, remark = part.code, part.text
        found.append((C(each.code), code, remark))
    return found


async def test_every_request_code_is_in_the_table_or_changes_nothing(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(1)) as brokers:
        router = assembly_of(brokers["n0"]).router
        served = {int(code) for code in (*router._handlers, *router._batch_handlers)}
    leader_only = codes_with(lambda each: each.answered_by in (By.LEADER, By.DECIDER, By.OWNER))
    leader_only |= {C.UPDATE_CONSUMER_OFFSET}
    assert table().keys() | CHANGES_NOTHING >= served
    assert not table().keys() & CHANGES_NOTHING
    assert {code for code, kind in table().items() if kind in ("confirmed", "leader", "saved")} <= leader_only


async def test_a_leader_that_is_cut_off_answers_no_change_with_success(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group(tmp_path, free_ports(3), SETTINGS) as brokers:
        await all_ready(brokers)
        leader = leader_of(brokers)
        async with connected(brokers[leader]) as peer:
            reached, cut_off = await changes(peer, "reached"), await changes(peer, "cut")
            for each in reached:  # a request that is refused by the whole group would prove nothing
                (outcome,) = await outcomes(peer, [each])
                assert outcome[1] == ResponseCode.SUCCESS, outcome
            members = of_members(brokers)
            part = part_of(brokers[leader])
            monkeypatch.setattr(part._links, "send", lambda _: None)
            monkeypatch.setattr(part.inbox, "_receive", lambda _: None)
            found = await outcomes(peer, [*cut_off, *members])
        assert {code: result for code, result, _ in found if result not in LATE | IMPOSSIBLE} == {}
        assert {code for code, result, _ in found if result not in LATE} <= {each.code for each in members}
    waiting = {code for code, kind in table().items() if kind in WAITING}
    assert {int(each.code) for each in (*cut_off, *members)} == waiting
