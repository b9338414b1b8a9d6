"""Header declarations compared with the recorded fields of Apache RocketMQ 5.3.3 (`tests/golden`)."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq.protocol.headers.client import (
    ConsumerGroupRequestHeader,
    HeartbeatResponseHeader,
    SendBackRequestHeader,
    UnregisterClientRequestHeader,
)
from raptormq.protocol.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from raptormq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from raptormq.protocol.headers.route import (
    RegisterBrokerRequestHeader,
    RouteRequestHeader,
    UnregisterBrokerRequestHeader,
)
from raptormq.protocol.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from raptormq.protocol.headers.topic import CreateTopicRequestHeader, TopicRequestHeader
from raptormq.protocol.schema import Header, decode_header, encode_header
from tests.protocol.golden import decode, frames_of

REQUESTS: dict[int, type[Header]] = {
    310: SendMessageRequestHeaderV2,
    320: SendMessageRequestHeaderV2,
    11: PullMessageRequestHeader,
    14: QueryConsumerOffsetRequestHeader,
    15: UpdateConsumerOffsetRequestHeader,
    17: CreateTopicRequestHeader,
    29: SearchOffsetRequestHeader,
    30: QueueRequestHeader,
    31: QueueRequestHeader,
    32: QueueRequestHeader,
    35: UnregisterClientRequestHeader,
    36: SendBackRequestHeader,
    38: ConsumerGroupRequestHeader,
    40: ConsumerGroupRequestHeader,
    103: RegisterBrokerRequestHeader,
    104: UnregisterBrokerRequestHeader,
    105: RouteRequestHeader,
    202: TopicRequestHeader,
    215: TopicRequestHeader,
    351: TopicRequestHeader,
}
RESPONSES: dict[int, type[Header]] = {
    310: SendMessageResponseHeader,
    320: SendMessageResponseHeader,
    11: PullMessageResponseHeader,
    14: OffsetResponseHeader,
    29: OffsetResponseHeader,
    30: OffsetResponseHeader,
    31: OffsetResponseHeader,
    32: TimestampResponseHeader,
    34: HeartbeatResponseHeader,
}
EXTRA_FIELDS = {
    "ReqT",  # request type, sent by a hook of the client
    "bname",  # name of the broker, on every request that has one
    "lo",  # logical queues (static topics), which RaptorMQ does not support
    "force",  # forces a topic request although it changes queues
    "namespace",
    "nsd",
    "ns",
    "groupSysFlag",  # in the response to a pull: set by the reference and not used
    "topicSysFlag",
    "requestSource",  # in a pull: a client or a proxy
    "proxyFrowardClientId",
    "acceptStandardJsonOnly",
    "batchUniqId",
    "committed",  # in GET_MAX_OFFSET: the end that consumers see, which is the only one here
}


def parameters(table: dict[int, type[Header]], *, response: bool) -> list[Any]:
    return [
        pytest.param(each.values[0], header, id=str(each.id))
        for code, header in table.items()
        for each in frames_of(code, response=response)
    ]


@pytest.mark.parametrize(
    ("frame", "header"), [*parameters(REQUESTS, response=False), *parameters(RESPONSES, response=True)]
)
def test_a_declaration_gives_back_every_field_that_was_sent(frame: bytes, header: type[Header]) -> None:
    sent = decode(frame).ext_fields
    again = encode_header(decode_header(header, sent))
    assert {name: value for name, value in sent.items() if again.get(name) != value}.keys() <= EXTRA_FIELDS
    assert again.keys() <= sent.keys() | EXTRA_FIELDS


@pytest.mark.parametrize("table", [REQUESTS, RESPONSES])
def test_every_declaration_meets_a_recorded_frame(table: dict[int, type[Header]]) -> None:
    missing = [code for code in table if not frames_of(code, response=table is RESPONSES)]
    assert missing == []
