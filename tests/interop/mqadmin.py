"""Runs mqadmin commands of one release in one JVM, and normalizes their output so that two brokers can be compared.

Words replace values of the machine (times, addresses, rates, disk use). The order of lines that the tool does not sort
and the width of columns do not count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.rocketmq_java import JavaBuild, Release, java

RUN_TIMEOUT_S = 400.0
SETTINGS = {"traceTopicEnable": "true"}
"""Settings of both brokers that the commands require."""


_SCRIPT = """
updateTopic|-b|{broker}|-t|alpha|-r|4|-w|4
updateTopic|-c|DefaultCluster|-t|beta|-r|2|-w|2|-a|+message.type=FIFO
updateTopic|-b|{broker}|-t|gamma|-a|+no.such.key=1
updateTopic|-b|{broker}|-t|bad name
topicList
topicList|-c
topicRoute|-t|alpha
topicRoute|-t|nowhere
topicStatus|-t|alpha
topicClusterList|-t|alpha
updateTopicPerm|-t|beta|-b|{broker}|-p|4
updateTopicPerm|-t|beta|-b|{broker}|-p|6
updateOrderConf|-t|beta|-m|put|-v|broker-a:2
updateOrderConf|-t|beta|-m|get
updateOrderConf|-t|beta|-m|delete
allocateMQ|-t|alpha|-i|10.0.0.1,10.0.0.2
clusterList
clusterList|-m
wipeWritePerm|-b|broker-a
addWritePerm|-b|broker-a
wipeWritePerm|-b|nobody
cleanExpiredCQ|-b|{broker}
cleanUnusedTopic|-b|{broker}
deleteExpiredCommitLog|-b|{broker}
haStatus|-b|{broker}
updateSubGroup|-b|{broker}|-g|workers|-r|3
getConsumerConfig|-g|workers
sendMessage|-t|alpha|-p|hello|-k|key1|-c|tagA|-b|broker-a|-i|1
sendMessage|-t|alpha|-p|again|-k|key2|-c|tagB|-b|broker-a|-i|1
consumeMessage|-t|alpha|-g|workers
consumerProgress|-g|workers
consumerProgress
consumerStatus|-g|workers
cloneGroupOffset|-s|workers|-d|copies|-t|alpha|-o|false
resetOffsetByTime|-g|workers|-t|alpha|-s|now
resetOffsetByTime|-g|workers|-t|nowhere|-s|now
skipAccumulatedMessage|-g|workers|-t|alpha
setConsumeMode|-c|DefaultCluster|-t|alpha|-g|workers|-m|POP|-q|2
consumerConnection|-g|workers
producerConnection|-g|workers|-t|alpha
producer|-b|{broker}
queryMsgByKey|-t|alpha|-k|key1
queryMsgByOffset|-t|alpha|-b|broker-a|-i|1|-o|0
queryMsgByOffset|-t|alpha|-b|broker-a|-i|1|-o|99
printMsgByQueue|-t|alpha|-a|broker-a|-i|1|-p|true
updateKvConfig|-s|ns|-k|key|-v|value
deleteKvConfig|-s|ns|-k|key
updateNamesrvConfig|-k|clusterTest|-v|false
updateTopicList|-b|{broker}|-f|{folder}/topics.json
updateSubGroupList|-b|{broker}|-f|{folder}/groups.json
getConsumerConfig|-g|helpers
queryMsgById|-t|alpha|-i|{{offset}}
queryMsgByUniqueKey|-t|alpha|-i|{{id}}
queryMsgByUniqueKey|-t|alpha|-i|0A0000010000000000000000000000FF
queryCq|-t|alpha|-q|1|-i|0|-c|5|-b|{broker}
queryCq|-t|alpha|-q|1|-i|0|-c|1|-b|{broker}|-g|nobody
queryCq|-t|nowhere|-q|1|-i|0|-b|{broker}
printMsg|-t|alpha
updateBrokerConfig|-b|{broker}|-k|fileReservedTime|-v|48
updateBrokerConfig|-c|DefaultCluster|-k|maxMessageSize|-v|4194304
updateBrokerConfig|-b|{broker}|-k|brokerConfigPath|-v|elsewhere
statsAll|-a|-t|gamma
checkMsgSendRT|-t|alpha|-a|3|-s|16
sendMsgStatus|-b|broker-a|-s|16|-c|2
clusterRT|-a|2|-s|16|-i|60|until=DefaultCluster
startMonitoring
exportMetadata|-b|{broker}|-f|{folder}/export|-t
exportMetadata|-b|{broker}|-f|{folder}/export|-g
exportMetadata|-c|DefaultCluster|-f|{folder}/export
exportConfigs|-c|DefaultCluster|-f|{folder}/export
exportMetrics|-c|DefaultCluster|-f|{folder}/export
updateTopic|-b|{broker}|-t|lively|-r|1|-w|1
+produce|makers|lively|order1|first
+produce|packers|lively|order2|second
+consume|listeners|lively|2
consumerConnection|-g|listeners
producerConnection|-g|makers|-t|lively
consumerProgress|-g|listeners
consumerProgress|-g|listeners|-s|true
consumerProgress|-g|listeners|-t|lively
brokerConsumeStats|-b|{broker}
consumerStatus|-g|listeners
consumerStatus|-g|listeners|-b|{broker}
consumerStatus|-g|listeners|-s
consumerStatus|-g|listeners|-i|127.0.0.1@listeners
consumerStatus|-g|listeners|-i|127.0.0.1@listeners|-s
consumerStatus|-g|listeners|-i|nobody
consumerStatus|-g|listeners|-i|127.0.0.1@makers
consumerStatus|-g|nobody
consumerStatus|-g|nobody|-i|127.0.0.1@listeners
consumerProgress|-s|true
consumerProgress|-g|nobody
consumerProgress|-g|listeners|-t|nowhere
consumerConnection|-g|listeners|-b|{broker}
consumerConnection|-g|nobody
producerConnection|-g|nobody|-t|lively
producerConnection|-g|makers|-t|nowhere
queryMsgById|-t|lively|-i|{{place}}
queryMsgById|-t|lively|-i|{{place}}|-g|listeners|-d|127.0.0.1@listeners
queryMsgTraceById|-i|{{sent}}
queryMsgTraceById|-i|NOSUCHID
topicStatus|-t|lively
+join|listeners|lively|listeners2|*
consumerStatus|-g|listeners|-i|127.0.0.1@listeners2
consumerConnection|-b|{broker}|-g|listeners
consumerStatus|-b|{broker}|-g|listeners
+join|listeners|lively|listeners3|another tag
consumerStatus|-s|-g|listeners
updateSubGroup|-b|{broker}|-g|copies
cloneGroupOffset|-s|listeners|-d|copies|-t|lively|-o|false
resetOffsetByTime|-g|listeners|-t|lively|-s|now
+stop
consumerProgress|-g|copies|-t|lively
statsAll|-t|alpha
deleteSubGroup|-b|{broker}|-g|workers
deleteTopic|-c|DefaultCluster|-t|beta
deleteTopic|-c|DefaultCluster|-t|nowhere
"""
COMMANDS = [line.split("|") for line in _SCRIPT.split("\n") if line]
"""The commands, in this order; arguments are separated by ``|``. ``{id}`` and ``{offset}`` are the ids of the first
message. A command that does not end runs until it has printed the text after ``until=``. A line with a plus starts or
stops clients (`LiveClients`). ``{sent}`` and ``{place}`` are the ids of the last message that such a client has sent.
"""
_NEWER_SCRIPT = """
updateTopic|-b|{broker}|-t|urgent|-r|2|-w|2|-a|+message.type=PRIORITY
updateTopic|-b|{broker}|-t|parent|-r|1|-w|1|-a|+message.type=LITE,+lite.topic.expiration=30
updateTopic|-b|{broker}|-t|parent|-r|1|-w|1|-a|+lite.topic.expiration=50000
updateTopic|-b|{broker}|-t|early|-r|1|-w|1|-a|+message.type=MIXED
updateBrokerConfig|-b|{broker}|-k|enableMixedMessageType|-v|true
updateTopic|-b|{broker}|-t|mixed|-r|1|-w|1|-a|+message.type=MIXED
updateSubGroup|-b|{broker}|-g|hurried|--attributes|+priority.factor=50,+lite.bind.topic=parent
updateSubGroup|-b|{broker}|-g|hurried|--attributes|+priority.factor=40,-lite.bind.topic
updateSubGroup|-b|{broker}|-g|hurried|--attributes|+priority.factor=101
getConsumerConfig|-g|hurried
"""
NEWEST_COMMANDS = COMMANDS + [line.split("|") for line in _NEWER_SCRIPT.split("\n") if line]
"""The commands for the newest release, including its new ones."""
OF_THE_SERVER = frozenset(
    {"topicList", "topicList -c", "clusterList", "wipeWritePerm -b broker-a", "addWritePerm -b broker-a"}
)
"""What only the newest server reports of itself: its version, and two topics for RocksDB. With RaptorMQ, which does not
have them, the newest tool prints the output of 5.3.3.
"""
REFERENCES = {
    Release.REFERENCE: Path(__file__).with_name("reference_mqadmin.json"),
    Release.NEWEST: Path(__file__).with_name("reference_mqadmin_newest.json"),
}
SCRIPTS = {Release.REFERENCE: COMMANDS, Release.NEWEST: NEWEST_COMMANDS}
ANSWERED = {
    "brokerStatus|-b|{broker}": ("brokerVersionDesc", "putTps", "msgPutTotalTodayNow", "runtime"),
    "getBrokerConfig|-b|{broker}": ("brokerName=broker-a", "fileReservedTime=48", "autoCreateTopicEnable=true"),
    "getNamesrvConfig": ("configStorePath", "enableTopicList"),
}
"""Commands that run afterwards, whose output contains figures and keys of RaptorMQ, including these."""
_FILES = {
    "topics.json": '[{"topicName": "delta", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}]',
    "groups.json": '[{"groupName": "helpers", "retryMaxTimes": 5}]',
}
"""Input files of some commands, in the folder for their output."""


@dataclass(frozen=True, slots=True)
class Place:
    """Addresses and folder of the commands."""

    name_server: str
    broker: str
    folder: Path


def run(
    built: JavaBuild,
    place: Place,
    commands: list[list[str]],
    options: Sequence[str] = (),
    release: Release = Release.REFERENCE,
) -> list[str]:
    """Run ``commands`` in order, with these options of the JVM. Return the output of each."""
    for name, text in _FILES.items():
        (place.folder / name).write_text(text, encoding="utf-8")
    file = place.folder / "commands.txt"
    words = {"broker": place.broker, "folder": place.folder}
    lines = ["\t".join(word.format(**words) for word in command) for command in commands]
    file.write_text("\n".join(f"{line}\t-n\t{place.name_server}" for line in lines) + "\n", encoding="utf-8")
    process = java(
        "io.raptormq.interop.mqadmin.CommandRunner",
        [str(file)],
        class_path=built.client_class_path(release),
        log=place.folder / "mqadmin.log",
        folder=place.folder,
        options=[
            "-Xmx256m",
            "-Draptormq.log.level=OFF",  # earlier clients may still write output while they end
            "-Drocketmq.client.rebalance.waitInterval=1000",
            f"-Duser.home={place.folder}",
            f"-Drocketmq.home.dir={place.folder}",
            *options,
        ],
    )
    printed = [line for line in process.finish(RUN_TIMEOUT_S) if line.startswith("output ")]
    return [json.loads(line.removeprefix("output "))["output"] for line in printed]


_CHANGES = (
    (r"(?m)^\s*at [\w.$/<>]+\(.*\)$", ""),
    (r"(?m)^\s*\.\.\. \d+ more$", ""),
    (r"(?m)^(For more information|See https?:).*$", ""),
    (r"CODE: ?(\d+) +DESC:.*", r"CODE \1"),
    (r"(?m)^MessageTrack \[consumerGroup=lively,.*$", ""),
    (r"(CommitLog Offset:\s+)[1-9]\d*", r"\1<place>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "<time>"),
    (r"\b1[6-9]\d{11}\b", "<ms>"),
    (r"\b20\d{12}(?:\d{3})?\b", "<time>"),
    (r"\b[0-9A-F]{56}\b|\b[0-9A-F]{32}\b", "<id>"),
    (r"\S+/export/", "<folder>/"),
    (r"\[?/?127\.0\.0\.1:\d+\]?", "<address>"),
    (r"\b\d+(?:\.\d+){3}\b", "<host>"),
    (r"\b\d+\.\d+\b", "<figure>"),
    (r"\b\d+ms\b", "<figure>ms"),
    (r"(?m)((?:true|false) +)\d+ *$", r"\1<figure>"),
    (r"spentTimeMills=\d+", "spentTimeMills=<figure>"),
    (r"(@)[0-9a-f]{5,8}\b|(?:\$\$Lambda)[$/0-9a-fx]+", r"\1<object>"),
    (r"(?s)(#Consumer jstack#\s+)\S.{39,} TID: \d+ +STATE: [A-Z_]+\n\S.*", r"\1<threads>"),
    (r"((?:concurrentHeartbeatThreadPoolSize|clientCallbackExecutorThreads) *: )\d+", r"\1<processors>"),
    (r"(?m)^\d( +<host>@)", r"<n>\1"),
    (r"[ \t]+", " "),
)
"""Replacements for stack traces (also those of interrupted clients), the text of a refusal except its code, a topic
that Apache RocketMQ treats as a group, and times, ids, addresses and rates.
"""


def reduced(output: str) -> list[str]:
    """Return the sorted lines of an output, without differences between runs or between brokers."""
    for pattern, word in _CHANGES:
        output = re.sub(pattern, word, output)
    return sorted(line.strip() for line in output.splitlines() if line.strip())
