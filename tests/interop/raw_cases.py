"""Malformed and unusual requests that no client library sends: the scenarios of the client "raw".

A case is a request with header fields and body. Its outcome is the code and the remark of the response. See also:
`raw_scenarios` runs them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from raptormq.protocol.codes import RequestCode


class Case(NamedTuple):
    """A request."""

    code: int
    fields: Mapping[str, object] = {}
    body: bytes = b""
    answered: bool = True
    """False for a oneway request."""


TOPIC, GROUP, MISSING = "raw_topic", "raw_group", "raw_missing"
"""Names of the cases: a topic with two queues and ten messages in the first, an existing group, and an unused name."""
COUNT = 10
HUGE = (1 << 63) - 1
POP_GROUP = "raw_pops"
YEAR_2100_MS = 4_102_444_800_000


def send(topic: str = TOPIC, **more: object) -> dict[str, object]:
    fields = dict(zip("abcdefghijk", ("raw", topic, "TBW102", 4, 0, 0, 1, 0, "", 0, "false"), strict=True))
    return fields | more


def pull(**more: object) -> dict[str, object]:
    return {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    } | more


def without(fields: dict[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name not in names}


def place(**more: object) -> dict[str, object]:
    return {"topic": TOPIC, "queueId": 0} | more


def progress(**more: object) -> dict[str, object]:
    return {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0} | more


def back(**more: object) -> dict[str, object]:
    return {
        "offset": 0,
        "group": GROUP,
        "delayLevel": 0,
        "originMsgId": "",
        "originTopic": TOPIC,
        "unitMode": "false",
    } | more


def pop(**more: object) -> dict[str, object]:
    """Settings of a group that only this pop uses, from a client that has just started to wait."""
    return {
        "consumerGroup": POP_GROUP,
        "topic": TOPIC,
        "queueId": 1,
        "maxMsgNums": 8,
        "invisibleTime": 60_000,
        "pollTime": 0,
        "bornTime": YEAR_2100_MS,
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    } | more


def assignment(**more: object) -> bytes:
    asked = {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "raw", "messageModel": "CLUSTERING"}
    return json.dumps(asked | {"strategyName": "AVG"} | more).encode()


def create(topic: str, **more: object) -> dict[str, object]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 2,
        "writeQueueNums": 2,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    } | more


def query(**more: object) -> dict[str, object]:
    return {"topic": TOPIC, "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": HUGE} | more


def heartbeat(*subscriptions: str) -> bytes:
    return (
        '{"clientID":"raw","producerDataSet":[],"consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        f'"consumeType":"CONSUME_PASSIVELY","groupName":"{GROUP}","messageModel":"CLUSTERING","unitMode":false,'
        f'"subscriptionDataSet":[{",".join(subscriptions)}]}}]}}'
    ).encode()


def subscription(expression: str, kind: str = "SQL92") -> str:
    return (
        f'{{"topic":"{TOPIC}","subString":"{expression}","expressionType":"{kind}","classFilterMode":false,"codeSet":[],'
        '"tagsSet":[],"subVersion":1}'
    )


def lock_body(names: str, queue: str = "1") -> bytes:
    return f'{{{names},"mqSet":[{{"topic":"{TOPIC}","brokerName":"broker-a","queueId":{queue}}}]}}'.encode()


def check(text: str) -> bytes:
    return f'{{"clientId":"raw","group":"{GROUP}","subscriptionData":{text},"namespace":""}}'.encode()


R = RequestCode
HEADERS = {
    "send, queue that is no number": Case(R.SEND_MESSAGE_V2, send(e="x"), b"x"),
    "send, no topic": Case(R.SEND_MESSAGE_V2, without(send(), "b"), b"x"),
    "send, sysFlag that is no number": Case(R.SEND_MESSAGE_V2, send(f="1.5"), b"x"),
    "send, born too far in the future for a number": Case(R.SEND_MESSAGE_V2, send(g="9" * 30), b"x"),
    "send, no fields": Case(R.SEND_MESSAGE_V2, {}, b"x"),
    "pull, offset that is no number": Case(R.PULL_MESSAGE, pull(queueOffset="x")),
    "pull, no topic": Case(R.PULL_MESSAGE, without(pull(), "topic")),
    "pull, no group": Case(R.PULL_MESSAGE, without(pull(), "consumerGroup")),
    "pull, count that is no number": Case(R.PULL_MESSAGE, pull(maxMsgNums="many")),
    "query offset, queue that is no number": Case(R.QUERY_CONSUMER_OFFSET, progress(queueId="x")),
    "query offset, no group": Case(R.QUERY_CONSUMER_OFFSET, place()),
    "update offset, offset that is no number": Case(R.UPDATE_CONSUMER_OFFSET, progress(commitOffset="x")),
    "update offset, no offset": Case(R.UPDATE_CONSUMER_OFFSET, progress()),
    "maximum, no queue": Case(R.GET_MAX_OFFSET, {"topic": TOPIC}),
    "minimum, queue that is no number": Case(R.GET_MIN_OFFSET, place(queueId="x")),
    "offset by time, time that is no number": Case(R.SEARCH_OFFSET_BY_TIMESTAMP, place(timestamp="now")),
    "end of a transaction, no fields": Case(R.END_TRANSACTION, {}),
    "send-back, offset that is no number": Case(R.CONSUMER_SEND_MSG_BACK, back(offset="x")),
    "send-back, no group": Case(R.CONSUMER_SEND_MSG_BACK, without(back(), "group")),
    "query by key, count that is no number": Case(R.QUERY_MESSAGE, query(maxNum="x")),
    "view, offset that is no number": Case(R.VIEW_MESSAGE_BY_ID, {"offset": "x"}),
    "create a topic, permission that is no number": Case(R.UPDATE_AND_CREATE_TOPIC, create("raw_new", perm="x")),
    "members, no group": Case(R.GET_CONSUMER_LIST_BY_GROUP, {}),
    "heartbeat, no JSON": Case(R.HEART_BEAT, {}, b"{"),
    "heartbeat, no body": Case(R.HEART_BEAT, {}),
    "lock, no JSON": Case(R.LOCK_BATCH_MQ, {}, b"{"),
    "lock, no body": Case(R.LOCK_BATCH_MQ),
    "lock, no queues and no names": Case(R.LOCK_BATCH_MQ, {}, b"{}"),
    "lock, queues that are none": Case(R.LOCK_BATCH_MQ, {}, b'{"consumerGroup":"raw_locks","clientId":"c","mqSet":5}'),
    "lock, no group": Case(R.LOCK_BATCH_MQ, {}, lock_body('"clientId":"c"')),
    "lock, no client": Case(R.LOCK_BATCH_MQ, {}, lock_body('"consumerGroup":"raw_locks"')),
    "lock, a queue of no topic": Case(
        R.LOCK_BATCH_MQ, {}, b'{"consumerGroup":"raw_locks","clientId":"c","mqSet":[{"brokerName":"b","queueId":0}]}'
    ),
    "lock, a queue that is no number": Case(
        R.LOCK_BATCH_MQ, {}, lock_body('"consumerGroup":"raw_locks","clientId":"c"', '"x"')
    ),
    "unlock, no JSON": Case(R.UNLOCK_BATCH_MQ, {}, b"{"),
    "unlock, no group": Case(R.UNLOCK_BATCH_MQ, {}, lock_body('"clientId":"c"')),
    "a group, no JSON": Case(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b"{"),
    "acknowledge, a handle that is none": Case(R.ACK_MESSAGE, progress(extraInfo="x", offset=0)),
    "acknowledge, a handle of the wrong type": Case(
        R.ACK_MESSAGE, progress(extraInfo="0 x 0 0 0 broker-a 0 0", offset=0)
    ),
    "invisible time, a handle that is none": Case(
        R.CHANGE_MESSAGE_INVISIBLETIME, progress(extraInfo="x", offset=0, invisibleTime=1000)
    ),
    "a request that nobody knows": Case(9_999),
}
OFFSETS = {
    "pull, before the queue": Case(R.PULL_MESSAGE, pull(queueOffset=-1)),
    "pull, behind the queue": Case(R.PULL_MESSAGE, pull(queueOffset=COUNT + 5)),
    "pull, at the largest number": Case(R.PULL_MESSAGE, pull(queueOffset=HUGE)),
    "pull, queue that is not there": Case(R.PULL_MESSAGE, pull(queueId=2)),
    "pull, queue with a negative number": Case(R.PULL_MESSAGE, pull(queueId=-1)),
    "pull, topic that is not there": Case(R.PULL_MESSAGE, pull(topic=MISSING)),
    "pull, no messages wanted": Case(R.PULL_MESSAGE, pull(maxMsgNums=0)),
    "pull, subscription by heartbeat that there is not": Case(R.PULL_MESSAGE, pull(sysFlag=0)),
    "maximum, topic that is not there": Case(R.GET_MAX_OFFSET, place(topic=MISSING)),
    "maximum, queue that is not there": Case(R.GET_MAX_OFFSET, place(queueId=2)),
    "minimum, queue that is not there": Case(R.GET_MIN_OFFSET, place(queueId=2)),
    "offset by time, queue that is not there": Case(R.SEARCH_OFFSET_BY_TIMESTAMP, place(queueId=2, timestamp=0)),
    "oldest time, empty queue": Case(R.GET_EARLIEST_MSG_STORETIME, place(queueId=1)),
    "query offset, group without one": Case(R.QUERY_CONSUMER_OFFSET, progress(topic=MISSING, queueId=7)),
    "update offset, before the queue": Case(R.UPDATE_CONSUMER_OFFSET, progress(commitOffset=-5)),
    "update offset, behind the queue": Case(R.UPDATE_CONSUMER_OFFSET, progress(commitOffset=COUNT + 5)),
    "update offset, topic that is not there": Case(R.UPDATE_CONSUMER_OFFSET, progress(topic=MISSING, commitOffset=1)),
    "update offset, group that is not there": Case(
        R.UPDATE_CONSUMER_OFFSET, progress(consumerGroup=MISSING, commitOffset=1)
    ),
    "view, behind the log": Case(R.VIEW_MESSAGE_BY_ID, {"offset": 1 << 50}),
    "view, before the log": Case(R.VIEW_MESSAGE_BY_ID, {"offset": -1}),
    "view, inside a message": Case(R.VIEW_MESSAGE_BY_ID, {"offset": 3}),
    "send-back, behind the log": Case(R.CONSUMER_SEND_MSG_BACK, back(offset=1 << 50)),
    "send-back, before the log": Case(R.CONSUMER_SEND_MSG_BACK, back(offset=-1)),
    "send-back, group that is not there": Case(R.CONSUMER_SEND_MSG_BACK, back(group=MISSING)),
    "query by key, topic that is not there": Case(R.QUERY_MESSAGE, query(topic=MISSING)),
    "acknowledge, behind the queue": Case(
        R.ACK_MESSAGE, progress(extraInfo="0 1700000000000 1000 0 0 broker-a 0 0", offset=COUNT + 5)
    ),
    "acknowledge, queue that is not there": Case(
        R.ACK_MESSAGE, progress(queueId=7, extraInfo="0 1700000000000 1000 0 0 broker-a 7 0", offset=0)
    ),
    "acknowledge, topic that is not there": Case(
        R.ACK_MESSAGE, progress(topic=MISSING, extraInfo="0 1700000000000 1000 0 0 broker-a 0 0", offset=0)
    ),
}
FILTERS = {
    "pull, SQL that does not parse": Case(R.PULL_MESSAGE, pull(subscription="a >", expressionType="SQL92")),
    "pull, a kind of filter that there is not": Case(R.PULL_MESSAGE, pull(subscription="a", expressionType="REGEX")),
    "pull, a tag of spaces": Case(R.PULL_MESSAGE, pull(subscription=" || ")),
    "heartbeat, SQL that does not parse": Case(R.HEART_BEAT, {}, heartbeat(subscription("a >"))),
    "check, SQL that does not parse": Case(R.CHECK_CLIENT_CONFIG, {}, check(subscription("a >"))),
    "check, good SQL": Case(R.CHECK_CLIENT_CONFIG, {}, check(subscription("a > 1"))),
    "check, a kind of filter that there is not": Case(R.CHECK_CLIENT_CONFIG, {}, check(subscription("a", "REGEX"))),
    "check, tags": Case(R.CHECK_CLIENT_CONFIG, {}, check(subscription("a || b", "TAG"))),
    "check, no body": Case(R.CHECK_CLIENT_CONFIG, {}),
}
NAMES = {
    "create, spaces": Case(R.UPDATE_AND_CREATE_TOPIC, create("no spaces please")),
    "create, a slash": Case(R.UPDATE_AND_CREATE_TOPIC, create("a/b")),
    "create, no name": Case(R.UPDATE_AND_CREATE_TOPIC, create("")),
    "create, 127 characters": Case(R.UPDATE_AND_CREATE_TOPIC, create("n" * 127)),
    "create, 128 characters": Case(R.UPDATE_AND_CREATE_TOPIC, create("n" * 128)),
    "create, letters outside ASCII": Case(R.UPDATE_AND_CREATE_TOPIC, create("größe")),
    "create, a topic of the system": Case(R.UPDATE_AND_CREATE_TOPIC, create("TBW102")),
    "create, an attribute that there is not": Case(
        R.UPDATE_AND_CREATE_TOPIC, create("raw_new", attributes="+nothing=1")
    ),
    "create, an attribute with a wrong value": Case(
        R.UPDATE_AND_CREATE_TOPIC, create("raw_new", attributes="+queue.type=X")
    ),
    "delete, no name": Case(R.DELETE_TOPIC_IN_BROKER, {"topic": ""}),
    "delete, a topic of the system": Case(R.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"}),
    "delete, a topic that is not there": Case(R.DELETE_TOPIC_IN_BROKER, {"topic": MISSING}),
    "send, spaces": Case(R.SEND_MESSAGE_V2, send("no spaces please"), b"x"),
    "send, no name": Case(R.SEND_MESSAGE_V2, send(""), b"x"),
    "send, 127 characters": Case(R.SEND_MESSAGE_V2, send("m" * 127), b"x"),
    "send, 128 characters": Case(R.SEND_MESSAGE_V2, send("m" * 128), b"x"),
    "send, a topic of the system": Case(R.SEND_MESSAGE_V2, send("RMQ_SYS_TRANS_HALF_TOPIC"), b"x"),
    "send, no such template": Case(R.SEND_MESSAGE_V2, send(MISSING, c="nothing"), b"x"),
    "send, queue that is not there": Case(R.SEND_MESSAGE_V2, send(e=9), b"x"),
    "send, 33 KB of properties": Case(R.SEND_MESSAGE_V2, send(i="p\x01" + "v" * 33_000 + "\x02"), b"x"),
    "send, 4 MiB and a byte": Case(R.SEND_MESSAGE_V2, send(), b"x" * ((4 << 20) + 1)),
    "send, a batch that is none": Case(R.SEND_BATCH_MESSAGE, send(m="true"), b"\x00\x00\x00\x09abcde"),
    "send, a retry topic of a group that is not there": Case(R.SEND_MESSAGE_V2, send("%RETRY%" + MISSING), b"x"),
    "send, a delivery time in four days": Case(R.SEND_MESSAGE_V2, send(i="TIMER_DELAY_SEC\x01345600\x02"), b"x"),
    "a group without a name": Case(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":""}'),
    "a group with spaces": Case(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"no spaces"}'),
    "progress of a group that is not there": Case(R.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": MISSING}),
    "settings of a topic that is not there": Case(R.GET_TOPIC_CONFIG, {"topic": MISSING}),
}
_PLACE = {"topic": TOPIC, "consumerGroup": POP_GROUP, "queueId": 0}
_PEEK, _NOTICE = _PLACE | {"maxMsgNums": 2}, _PLACE | {"pollTime": 0, "bornTime": YEAR_2100_MS}
POPS = {
    "pop, nothing is there": Case(R.POP_MESSAGE, pop()),
    "pop, topic that is not there": Case(R.POP_MESSAGE, pop(topic=MISSING)),
    "pop, queue that is not there": Case(R.POP_MESSAGE, pop(queueId=2)),
    "pop, 32 messages": Case(R.POP_MESSAGE, pop(maxMsgNums=32)),
    "pop, 33 messages": Case(R.POP_MESSAGE, pop(maxMsgNums=33)),
    "pop, no messages wanted": Case(R.POP_MESSAGE, pop(maxMsgNums=0)),
    "pop, invisible for less than nothing": Case(R.POP_MESSAGE, pop(invisibleTime=-1)),
    "pop, later than its client waits": Case(R.POP_MESSAGE, pop(bornTime=1_000)),
    "pop, count that is no number": Case(R.POP_MESSAGE, pop(maxMsgNums="many")),
    "pop, no group": Case(R.POP_MESSAGE, without(pop(), "consumerGroup")),
    "pop, SQL that does not parse": Case(R.POP_MESSAGE, pop(exp="a >", expType="SQL92")),
    "peek, topic that is not there": Case(R.PEEK_MESSAGE, _PEEK | {"topic": MISSING}),
    "peek, queue that is not there": Case(R.PEEK_MESSAGE, _PEEK | {"queueId": 2}),
    "peek, no count": Case(R.PEEK_MESSAGE, _PLACE),
    "notice, there is something": Case(R.NOTIFICATION, _NOTICE),
    "notice, topic that is not there": Case(R.NOTIFICATION, _NOTICE | {"topic": MISSING}),
    "notice, queue that is not there": Case(R.NOTIFICATION, _NOTICE | {"queueId": 2}),
    "who waits, queue that is not there": Case(R.POLLING_INFO, _PLACE | {"queueId": 2}),
    "assignment, topic that is not there": Case(R.QUERY_ASSIGNMENT, {}, assignment(topic=MISSING)),
    "assignment, a strategy that there is not": Case(R.QUERY_ASSIGNMENT, {}, assignment(strategyName="NONE")),
    "assignment, no JSON": Case(R.QUERY_ASSIGNMENT, {}, b"{"),
    "mode, of a retry topic": Case(R.SET_MESSAGE_REQUEST_MODE, {}, assignment(topic="%RETRY%" + GROUP, mode="POP")),
}
