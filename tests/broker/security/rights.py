"""Permissions that each request to a broker requires with access control, according to the sources of Apache RocketMQ
5.3.3 (``DefaultAuthorizationContextBuilder``; ``RocketMQAction`` and ``RocketMQResource`` of the request headers).

Each row has a request about :data:`TOPIC`, :data:`GROUP` and the cluster, which is sent with and without the listed
permissions.
"""

from __future__ import annotations

import json

from raptormq.protocol.batch import encode_batch
from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from raptormq.protocol.bodies.pop import BatchAck
from raptormq.protocol.bodies.queues import QueueLockRequest
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.queue_batches import Part, PartKind, decode_part_responses, encode_parts
from tests.broker.batch_acks import encode_batch_acks
from tests.broker.harness import pull_fields, send_fields
from tests.rights import SAME, Row, Table

TOPIC, GROUP, OTHER_GROUP, USER = "orders", "billing", "shipping", "bob"
CLUSTER = "DefaultCluster"
RESOURCES = {
    "topic": f"Topic:{TOPIC}",
    "group": f"Group:{GROUP}",
    "source group": f"Group:{OTHER_GROUP}",
    "cluster": f"Cluster:{CLUSTER}",
    "everything": "*",
}

NO_RULE = "nothing"
ADMINISTRATION = "RocketMQ has no rule, so every user may do it; restricted to administrators here"
OVERVIEW = "RocketMQ has no rule, so every user may read it; the response contains data of all users"


def consuming(**more: object) -> dict[str, object]:
    return {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0} | more


def popping(**more: object) -> dict[str, object]:
    born = {"pollTime": 0, "bornTime": 1 << 50, "initMode": 0, "invisibleTime": 60_000, "maxMsgNums": 1}
    return consuming() | born | more


def first_version(topic: str) -> dict[str, object]:
    numbers: dict[str, object] = {"defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 0, "bornTimestamp": 0, "flag": 0}
    return numbers | {"producerGroup": "p", "topic": topic, "defaultTopic": "TBW102"}


def by_json(**value: object) -> bytes:
    return json.dumps(value).encode()


def heartbeat(*consumers: str) -> bytes:
    subscriptions = [Subscription.parse(topic, "*", 1) for topic in (TOPIC, f"%RETRY%{GROUP}")]
    data = [ConsumerData(group, subscriptions=subscriptions) for group in consumers]
    return HeartbeatData("client", ["producers"], data).to_json()


def its_part_passes(answer: RemotingCommand) -> bool:
    """Return whether the only entry of a request for several queues succeeds."""
    return decode_part_responses(answer.body, 1)[0].code != ResponseCode.NO_PERMISSION


C = RequestCode
PUB_ALL = {"everything": "Pub"}
PUB, SUB, SUB_BOTH = {"topic": "Pub"}, {"group": "Sub"}, {"group": "Sub", "topic": "Sub"}
GET_TOPIC, GET_GROUP, GET_BOTH = {"topic": "Get"}, {"group": "Get"}, {"group": "Get", "topic": "Get"}
READ, ADMINISTER = {"cluster": "Get"}, {"cluster": "Update"}
LIST = encode_batch([(0, b"x", b"")])
PARTS = encode_parts([Part(PartKind.LIST, 0, 0, 0, 0, "", LIST)])
LOCKS = QueueLockRequest(GROUP, "client", [MessageQueue(TOPIC, "broker-a", 0)]).to_json()
ACKS = encode_batch_acks("broker-a", [BatchAck(GROUP, TOPIC, "0", 0, 0, 0, 1, (0,))])
TRANSACTION: dict[str, object] = {
    "producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 8, "msgId": "K",
}  # fmt: skip
HANDLE = "0 1700000000000 60000 0 0 broker-a 0 0"
ACL = by_json(policies=[{"entries": [{"resource": "Topic:x", "actions": ["Pub"], "decision": "Allow"}]}])
RETRY = f"%RETRY%{GROUP}"
POPPED = f"%RETRY%{GROUP}+{TOPIC}"
"""Topic to which popped and unacknowledged messages return."""
BY_RECORD = "in addition, the topic of the stored message is checked"
NOT_SHOWN = "RocketMQ returns messages of any topic by their position"

ROWS = (
    # --- sending ---
    Row(C.SEND_MESSAGE, "send", PUB, fields=first_version(TOPIC), body=b"x"),
    Row(C.SEND_MESSAGE, "send to a retry topic", SUB, "Sub on the group that the request names",
        "the group in the request is unverified; the check applies to the written topic",
        first_version(RETRY), b"x"),
    Row(C.SEND_MESSAGE_V2, "send, short names", PUB, fields=send_fields(TOPIC), body=b"x"),
    Row(C.SEND_MESSAGE_V2, "send to a retry topic, short names", SUB, "Sub on the group that the request names",
        "the group in the request is unverified; the check applies to the written topic",
        send_fields(RETRY), b"x"),
    Row(C.SEND_MESSAGE_V2, "send to the system topic of timer messages", PUB_ALL, "Pub on the topic",
        "a timer message can name any destination topic", send_fields("rmq_sys_wheel_timer"), b"x"),
    Row(C.SEND_MESSAGE_V2, "send to the POP revive log", PUB_ALL, "Pub on the topic",
        "an entry of this log can acknowledge messages of any group",
        send_fields(f"rmq_sys_REVIVE_LOG_{CLUSTER}"), b"x"),
    Row(C.SEND_BATCH_MESSAGE, "send a batch", PUB, fields=send_fields(TOPIC) | {"m": "true"}, body=LIST),
    Row(C.SEND_QUEUE_BATCHES, "sends for several queues", PUB, "not available",
        "each part is checked, and rejected, separately",
        {"a": "p", "b": TOPIC, "c": "TBW102", "d": 4, "g": 1}, PARTS, passes=its_part_passes, judged_by_handler=True),
    Row(C.STAGE_BATCH, "stage a batch", PUB, "not available", fields=send_fields(TOPIC) | {"query": "q", "batch": 0},
        body=LIST),
    Row(C.COMMIT_STAGED, "commit staged batches", {}, "not available",
        "needs Pub on the topic of each message, and is refused with 604 as a whole",
        {"query": "q", "batch": 0}, b"{}"),
    Row(C.SEND_REPLY_MESSAGE, "reply", {}, fields=first_version(f"{CLUSTER}_REPLY_TOPIC"), body=b"x"),
    Row(C.SEND_REPLY_MESSAGE, "reply with another topic than the cluster's reply topic", PUB, NO_RULE,
        "the reply is stored in the named topic; without the check every user could write to any topic",
        first_version(TOPIC), b"x"),
    Row(C.SEND_REPLY_MESSAGE_V2, "reply, short names", {}, fields=send_fields(f"{CLUSTER}_REPLY_TOPIC"), body=b"x"),
    Row(C.SEND_REPLY_MESSAGE_V2, "reply with another topic than the cluster's reply topic, short names", PUB, NO_RULE,
        "the reply is stored in the named topic; without the check every user could write to any topic",
        send_fields(TOPIC), b"x"),
    Row(C.END_TRANSACTION, "end a transaction", PUB, SAME, BY_RECORD, TRANSACTION | {"topic": TOPIC}),
    Row(C.END_TRANSACTION, "end a transaction, without a topic", {}, SAME,
        f"{BY_RECORD}: in RocketMQ every user may end any transaction", TRANSACTION),
    Row(C.RECALL_MESSAGE, "recall a timer message", PUB,
        fields={"topic": TOPIC, "producerGroup": "p", "recallHandle": "x"}),
    # --- consuming ---
    Row(C.PULL_MESSAGE, "pull", SUB_BOTH, fields=pull_fields(TOPIC, 0) | {"consumerGroup": GROUP}),
    Row(C.PULL_MESSAGE, "pull the group's retries", SUB, fields=pull_fields(RETRY, 0) | {"consumerGroup": GROUP}),
    Row(C.PULL_MESSAGE, "pull messages that POP redelivers", SUB_BOTH, "Sub on the group",
        "the messages belong to the topic", pull_fields(POPPED, 0) | {"consumerGroup": GROUP}),
    Row(C.PULL_MESSAGE, "pull another group's retries", {"group": "Sub", "source group": "Sub"}, "Sub on the group",
        "in RocketMQ a group may read the retry topics of all groups",
        pull_fields(f"%RETRY%{OTHER_GROUP}", 0) | {"consumerGroup": GROUP}),
    Row(C.LITE_PULL_MESSAGE, "lite pull", SUB_BOTH, NO_RULE, "returns the same messages as a pull",
        pull_fields(TOPIC, 0) | {"consumerGroup": GROUP}),
    Row(C.POP_MESSAGE, "pop", SUB_BOTH, fields=popping()),
    Row(C.POP_MESSAGE, "pop messages that POP redelivers", SUB_BOTH, "Sub on the group, and on one named `group+topic`",
        "the messages belong to the topic", popping(topic=POPPED)),
    Row(C.PEEK_MESSAGE, "peek", SUB_BOTH, fields=consuming(maxMsgNums=1)),
    Row(C.NOTIFICATION, "notification of messages to pop", SUB_BOTH, fields=popping()),
    Row(C.POLLING_INFO, "number of waiting pops", GET_BOTH, fields=consuming()),
    Row(C.ACK_MESSAGE, "acknowledge", SUB_BOTH, fields=consuming(extraInfo=HANDLE, offset=0)),
    Row(C.BATCH_ACK_MESSAGE, "acknowledge several messages", SUB_BOTH, NO_RULE,
        "each acknowledgement is checked separately", body=ACKS),
    Row(C.CHANGE_MESSAGE_INVISIBLETIME, "change the invisible time", SUB_BOTH,
        fields=consuming(extraInfo=HANDLE, offset=0, invisibleTime=1)),
    Row(C.CONSUMER_SEND_MSG_BACK, "send back", SUB, SAME, f"{BY_RECORD}: {NOT_SHOWN}",
        {"group": GROUP, "offset": 0, "delayLevel": 0, "originTopic": TOPIC}),
    Row(C.QUERY_CONSUMER_OFFSET, "a group's offset", {"group": "Sub or Get", "topic": "Sub or Get"},
        fields=consuming()),
    Row(C.UPDATE_CONSUMER_OFFSET, "commit an offset", {"group": "Sub or Update", "topic": "Sub or Update"},
        fields=consuming(commitOffset=0)),
    Row(C.HEART_BEAT, "heartbeat of producers", {}, fields={}, body=heartbeat()),
    Row(C.HEART_BEAT, "heartbeat of consumers", SUB_BOTH, SAME, "for each group and topic in the heartbeat",
        body=heartbeat(GROUP)),
    Row(C.UNREGISTER_CLIENT, "unregister a producer", {}, fields={"clientID": "client", "producerGroup": "p"}),
    Row(C.UNREGISTER_CLIENT, "unregister a consumer", SUB, fields={"clientID": "client", "consumerGroup": GROUP}),
    Row(C.GET_CONSUMER_LIST_BY_GROUP, "members of a group", {"group": "Sub or Get"}, fields={"consumerGroup": GROUP}),
    Row(C.LOCK_BATCH_MQ, "lock queues", SUB_BOTH, body=LOCKS),
    Row(C.UNLOCK_BATCH_MQ, "unlock queues", SUB_BOTH, body=LOCKS),
    Row(C.CHECK_CLIENT_CONFIG, "check an expression", {},
        body=by_json(clientId="c", group=GROUP, subscriptionData={"topic": TOPIC, "subString": "*"})),
    Row(C.QUERY_ASSIGNMENT, "queues of a member", SUB_BOTH, NO_RULE,
        "members have these permissions; RocketMQ's proxies require the same",
        body=by_json(topic=TOPIC, consumerGroup=GROUP, clientId="c", strategyName="AVG", messageModel="CLUSTERING")),
    # --- queries for messages ---
    Row(C.QUERY_MESSAGE, "messages by key", {"topic": "Sub or Get"},
        fields={"topic": TOPIC, "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1 << 50}),
    Row(C.VIEW_MESSAGE_BY_ID, "one message by its position", GET_TOPIC, "Get on the topic, if the request names one",
        f"{BY_RECORD}: {NOT_SHOWN}", {"topic": TOPIC, "offset": 0}),
    Row(C.VIEW_MESSAGE_BY_ID, "one message by its position, without a topic", READ, NO_RULE,
        f"{BY_RECORD}: {NOT_SHOWN}", {"offset": 0}),
    Row(C.CONSUME_MESSAGE_DIRECTLY, "deliver a message to a member", SUB_BOTH, SAME, f"{BY_RECORD}: {NOT_SHOWN}",
        {"consumerGroup": GROUP, "clientId": "c", "msgId": "x", "topic": TOPIC}),
    Row(C.RESUME_CHECK_HALF_MESSAGE, "resume checks of a transaction", {"topic": "Update"}, SAME, f"{BY_RECORD}",
        {"topic": TOPIC, "msgId": "x"}),
    Row(C.SEARCH_OFFSET_BY_TIMESTAMP, "offset by time", GET_TOPIC,
        fields={"topic": TOPIC, "queueId": 0, "timestamp": 0}),
    Row(C.GET_MAX_OFFSET, "maximum offset of a queue", GET_TOPIC, fields={"topic": TOPIC, "queueId": 0}),
    Row(C.GET_MIN_OFFSET, "minimum offset of a queue", GET_TOPIC, fields={"topic": TOPIC, "queueId": 0}),
    Row(C.GET_EARLIEST_MSG_STORETIME, "oldest store time", GET_TOPIC, fields={"topic": TOPIC, "queueId": 0}),
    Row(C.QUERY_CONSUME_QUEUE, "items of a queue", GET_TOPIC,
        fields={"topic": TOPIC, "queueId": 0, "index": 0, "count": 1}),
    Row(C.QUERY_CONSUME_QUEUE, "items of a queue that match a group's subscription", GET_BOTH,
        fields=consuming(index=0, count=1)),
    # --- topics ---
    Row(C.UPDATE_AND_CREATE_TOPIC, "create or change a topic", {"topic": "Create"},
        fields={"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "order": "false"}),
    Row(C.UPDATE_AND_CREATE_TOPIC_LIST, "create or change several topics", ADMINISTER, NO_RULE, ADMINISTRATION,
        body=by_json(topicConfigList=[])),
    Row(C.GET_ALL_TOPIC_CONFIG, "all topics", READ, NO_RULE, OVERVIEW),
    Row(C.GET_TOPIC_CONFIG, "one topic", GET_TOPIC, fields={"topic": TOPIC}),
    Row(C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, "system topics", READ, NO_RULE, OVERVIEW),
    Row(C.GET_TOPIC_STATS_INFO, "offset ranges of a topic's queues", GET_TOPIC, fields={"topic": TOPIC}),
    Row(C.QUERY_TOPIC_CONSUME_BY_WHO, "groups of a topic", GET_TOPIC, fields={"topic": TOPIC}),
    Row(C.CONVERT_QUEUE, "state of a conversion", GET_TOPIC, "not available",
        fields={"topic": TOPIC, "action": "status"}),
    Row(C.CONVERT_QUEUE, "start or stop a conversion", {"topic": "Update"}, "not available",
        fields={"topic": TOPIC, "action": "stop"}),
    Row(C.CLEAN_UNUSED_TOPIC, "delete data of deleted topics", ADMINISTER, NO_RULE, ADMINISTRATION),
    # --- groups ---
    Row(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "create or change a group", ADMINISTER, NO_RULE, ADMINISTRATION,
        body=by_json(groupName=GROUP)),
    Row(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, "create or change several groups", ADMINISTER, NO_RULE,
        ADMINISTRATION, body=by_json(groupConfigList=[])),
    Row(C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "all groups", READ, NO_RULE, OVERVIEW),
    Row(C.GET_SUBSCRIPTIONGROUP_CONFIG, "one group", GET_GROUP, fields={"group": GROUP}),
    Row(C.GET_CONSUMER_CONNECTION_LIST, "connections of a group", GET_GROUP, fields={"consumerGroup": GROUP}),
    Row(C.GET_CONSUME_STATS, "offsets of a group", GET_GROUP, fields={"consumerGroup": GROUP}),
    Row(C.GET_CONSUME_STATS, "offsets of a group in a topic", GET_BOTH, fields=consuming()),
    Row(C.GET_BROKER_CONSUME_STATS, "offsets of all groups", READ, fields={"isOrder": "false"}),
    Row(C.INVOKE_BROKER_TO_RESET_OFFSET, "reset a group's offsets", {"group": "Update", "topic": "Update"},
        fields={"group": GROUP, "topic": TOPIC, "timestamp": 0, "isForce": "true"}),
    Row(C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, "offsets of members", GET_BOTH,
        fields={"group": GROUP, "topic": TOPIC}),
    Row(C.GET_CONSUMER_RUNNING_INFO, "running information of a member", GET_GROUP,
        fields={"consumerGroup": GROUP, "clientId": "c"}),
    Row(C.QUERY_CONSUME_TIME_SPAN, "store times at a group's offsets", GET_BOTH,
        fields={"group": GROUP, "topic": TOPIC}),
    Row(C.CLONE_GROUP_OFFSET, "copy a group's offsets", {"source group": "Get", "group": "Update", "topic": "Update"},
        "Update on group and topic", "the offsets of the source group are read",
        {"srcGroup": OTHER_GROUP, "destGroup": GROUP, "topic": TOPIC}),
    Row(C.QUERY_TOPICS_BY_CONSUMER, "topics of a group", GET_GROUP, fields={"group": GROUP}),
    Row(C.QUERY_SUBSCRIPTION_BY_CONSUMER, "a group's subscription", GET_BOTH, fields={"group": GROUP, "topic": TOPIC}),
    Row(C.UPDATE_AND_GET_GROUP_FORBIDDEN, "forbid a group to read a topic", {"group": "Update", "topic": "Update"},
        fields={"group": GROUP, "topic": TOPIC, "readable": "true"}),
    Row(C.SET_MESSAGE_REQUEST_MODE, "set the consume mode (pull or pop)", ADMINISTER, NO_RULE, ADMINISTRATION,
        body=by_json(topic=TOPIC, consumerGroup=GROUP, mode="PULL", popShareQueueNum=0)),
    Row(C.GET_ALL_MESSAGE_REQUEST_MODE, "consume modes of all groups", READ, NO_RULE, OVERVIEW),
    Row(C.DELETE_SUBSCRIPTIONGROUP, "delete a group", {"group": "Delete"}, fields={"groupName": GROUP}),
    Row(C.DELETE_SUBSCRIPTION_GROUP_LIST, "delete several groups", {"group": "Delete"}, "not available",
        body=by_json(groupNameList=[GROUP])),
    Row(C.DELETE_TOPIC_IN_BROKER_LIST, "delete several topics", {"topic": "Delete"}, "not available",
        body=by_json(topicList=[TOPIC])),
    Row(C.DELETE_TOPIC_IN_BROKER, "delete a topic", {"topic": "Delete"}, fields={"topic": TOPIC}),
    # --- producers ---
    Row(C.GET_PRODUCER_CONNECTION_LIST, "connections of a producer group", READ, fields={"producerGroup": "p"}),
    Row(C.GET_ALL_PRODUCER_INFO, "all producers", READ),
    # --- the broker ---
    Row(C.UPDATE_BROKER_CONFIG, "change settings", ADMINISTER, NO_RULE,
        f"{ADMINISTRATION}; settings of access control cannot be changed by requests",
        body=b"maxMessageSize=4194304\n"),
    Row(C.GET_BROKER_CONFIG, "current settings", READ, NO_RULE, OVERVIEW),
    Row(C.GET_BROKER_RUNTIME_INFO, "runtime information", READ, NO_RULE, OVERVIEW),
    Row(C.VIEW_BROKER_STATS_DATA, "statistics", READ, fields={"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC}),
    Row(C.GET_BROKER_HA_STATUS, "state of replication", READ, NO_RULE, OVERVIEW),
    Row(C.DESCRIBE_REPLICATION, "members of the Dledger group", READ, "not available"),
    Row(C.TRANSFER_LEADERSHIP, "transfer leadership", ADMINISTER, "not available"),
    Row(C.CHANGE_MEMBERS, "change the members of the Dledger group", ADMINISTER, "not available",
        fields={"member": "n3", "action": "remove"}),
    Row(C.CONTROLLER_ELECT_MASTER, "transfer leadership, as of a controller", ADMINISTER, "not available",
        fields={"brokerName": "broker-a", "brokerId": 2, "designateElect": "true"}),
    Row(C.CONTROLLER_GET_METADATA_INFO, "leader of the Dledger group, as of a controller", READ, "not available"),
    Row(C.CONTROLLER_GET_SYNC_STATE_DATA, "members in sync, as of a controller", READ, "not available",
        body=b'["broker-a"]'),
    Row(C.GET_BROKER_EPOCH_CACHE, "terms of the log", READ, NO_RULE, OVERVIEW),
    Row(C.GET_CONTROLLER_CONFIG, "settings of the Dledger group, as of a controller", READ, "not available"),
    Row(C.UPDATE_CONTROLLER_CONFIG, "always refused: settings of a controller", ADMINISTER, "not available"),
    Row(C.CLEAN_BROKER_DATA, "remove members of the Dledger group, as of a controller", ADMINISTER, "not available",
        fields={"brokerName": "broker-a", "brokerControllerIdsToClean": "2"}),
    Row(C.GET_ALL_CONSUMER_OFFSET, "all offsets, for slaves", READ, NO_RULE, OVERVIEW),
    Row(C.GET_ALL_DELAY_OFFSET, "progress of delayed messages, for slaves", READ, NO_RULE, OVERVIEW),
    Row(C.GET_TIMER_CHECK_POINT, "progress of timers, for slaves", READ, NO_RULE, OVERVIEW),
    Row(C.GET_TIMER_METRICS, "pending timers, for slaves", READ, NO_RULE, OVERVIEW),
    Row(C.EXCHANGE_BROKER_HA_INFO, "addresses of a master, for slaves", READ, NO_RULE, OVERVIEW),
    Row(C.READ_LOG_RANGE, "records of the log, for repairs of a master or slave", ADMINISTER, "not available",
        fields={"begin": 0, "limit": 1}),
    Row(C.COMPARE_LOG, "compare a range of the log, for slaves", READ, "not available",
        fields={"offset": 0, "size": 0, "crc32": 0}),
    Row(C.PROMOTE, "promote a slave to master", ADMINISTER, "not available"),
    Row(C.CLEAN_EXPIRED_CONSUMEQUEUE, "delete expired consume queue files", ADMINISTER, NO_RULE, ADMINISTRATION),
    Row(C.DELETE_EXPIRED_COMMITLOG, "delete expired commit log files", ADMINISTER, NO_RULE, ADMINISTRATION),
    # --- users ---
    Row(C.AUTH_CREATE_USER, "create a user", ADMINISTER, SAME, "only a super user may create a super user",
        {"username": "carol"}, by_json(password="x", userType="Normal")),
    Row(C.AUTH_UPDATE_USER, "change a user", ADMINISTER, SAME, "only a super user may change a super user",
        {"username": USER}, by_json(password="x")),
    Row(C.AUTH_DELETE_USER, "delete a user", ADMINISTER, SAME, "only a super user may delete a super user",
        {"username": "carol"}),
    Row(C.AUTH_GET_USER, "one user", READ, SAME, "only a super user gets the password", {"username": USER}),
    Row(C.AUTH_LIST_USER, "users", READ, SAME, "only super users get passwords"),
    Row(C.AUTH_CREATE_ACL, "create the permissions of a user", ADMINISTER,
        fields={"subject": f"User:{USER}"}, body=ACL),
    Row(C.AUTH_UPDATE_ACL, "change the permissions of a user", ADMINISTER,
        fields={"subject": f"User:{USER}"}, body=ACL),
    Row(C.AUTH_GET_ACL, "permissions of a user", READ, fields={"subject": f"User:{USER}"}),
    Row(C.AUTH_LIST_ACL, "permissions of all users", READ),
    Row(C.AUTH_DELETE_ACL, "delete the permissions of a user", ADMINISTER, fields={"subject": f"User:{USER}"}),
)  # fmt: skip

TABLE = Table(ROWS, RESOURCES)
