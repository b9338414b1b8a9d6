"""JSON bodies: fastjson's dialect is decoded, standard JSON is encoded, damage is a BodyError."""

from __future__ import annotations

import contextlib
import zlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import BodyError
from raptormq.protocol.bodies import group_progress, heartbeat, queues, route, topic_config
from raptormq.protocol.bodies.tolerant_json import dump_object_keyed, loads
from raptormq.protocol.bodies.topic_config import DataVersion, TopicConfig, TopicConfigTable
from raptormq.protocol.message import MessageQueue

names = st.text("abz-_%09", min_size=1, max_size=8)
numbers = st.integers(0, 1 << 40)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 53), 1 << 53)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_standard_json_is_read_as_it_is(value: object) -> None:
    assert loads(orjson.dumps(value)) == value


def test_bare_numeric_keys_and_object_keys_are_read() -> None:
    keyed = b'{{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":1}}'
    body = b'{"t":' + keyed + b',"a":{0:"x:1", 12 :"\\"}"},"l":[1,{-2:true}]}'
    assert loads(body) == {
        "t": {'{"brokerName":"b","queueId":0,"topic":"t"}': {"maxOffset": 1}},
        "a": {"0": "x:1", "12": '"}'},
        "l": [1, {"-2": True}],
    }


@pytest.mark.parametrize("body", [b"{", b'{"a":1,', b'{"topic": "or', b"[1,"])
def test_a_body_that_ends_in_the_middle_is_said_to_be_cut(body: bytes) -> None:
    with pytest.raises(BodyError, match=r"^the body is not JSON: it is truncated$"):
        loads(body)


@given(st.dictionaries(st.builds(MessageQueue, names, names, st.integers(0, 99)), st.integers(), max_size=4))
def test_object_keyed_maps_round_trip(table: dict[MessageQueue, int]) -> None:
    written = dump_object_keyed((queues.queue_to_dict(queue), str(value)) for queue, value in table.items())
    read = {queues.queue_from_dict(loads(key.encode())): int(value) for key, value in loads(written).items()}
    assert read == table


@given(st.binary(max_size=60) | st.text('{}[]",:0a\\ ', max_size=40).map(str.encode))
def test_no_body_raises_anything_but_body_errors(body: bytes) -> None:
    decoders = (
        loads,
        heartbeat.HeartbeatData.from_json,
        heartbeat.decode_consumer_ids,
        group_progress.GroupConnections.from_json,
        group_progress.decode_consume_stats,
        group_progress.decode_group_configs,
        route.TopicRoute.from_json,
        route.ClusterInfo.from_json,
        route.TopicList.from_json,
        route.decode_registration,
        topic_config.TopicConfig.from_json,
        topic_config.TopicConfigTable.from_json,
        queues.QueueLockRequest.from_json,
        queues.decode_topic_stats,
        queues.decode_kv_table,
        queues.decode_locked_queues,
    )
    for decode in decoders:
        with contextlib.suppress(BodyError):
            decode(body)


@given(json_values.map(orjson.dumps))
def test_well_formed_json_of_any_shape_raises_nothing_but_body_errors(body: bytes) -> None:
    test_no_body_raises_anything_but_body_errors.hypothesis.inner_test(body)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("consumed", "begin", "end", "waiting", "lost"),
    [
        (100, 400, 400, 0, 300),  # retention has deleted the earlier messages of the group
        (100, 300, 400, 100, 200),
        (300, 300, 400, 100, 0),
        (350, 300, 400, 50, 0),
        (400, 300, 400, 0, 0),
        (None, 300, 400, 100, 0),  # it begins at the first existing message
        (None, 0, 0, 0, 0),
        (500, 300, 400, 0, 0),  # after the end
        (500, 0, 0, 0, 0),
        (100, 400, 300, 0, 200),
    ],
)
def test_lag_is_what_is_there_and_what_is_not_is_lost(
    consumed: int | None, begin: int, end: int, waiting: int, lost: int
) -> None:
    assert group_progress.GroupLag.between(consumed, begin, end) == (waiting, lost)
    if consumed is not None:
        progress = group_progress.QueueProgress(end, consumed, consumed, 0, begin)
        assert (progress.lag, progress.lost) == (waiting, lost)


def test_where_the_begin_is_not_known_all_is_lag() -> None:
    assert group_progress.QueueProgress(400, 100, 100, 0).lag == 300
    assert group_progress.QueueProgress(3, 5, 5, 0).lag == 0


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(BodyError):
        loads(b"{0:" * 100_000)


topics = st.builds(
    TopicConfig, names, st.integers(1, 64), st.integers(1, 64), st.sampled_from([2, 4, 6, 7]),
    attributes=st.dictionaries(names, names, max_size=2),
)  # fmt: skip
tables = st.builds(
    lambda configs, version: TopicConfigTable({config.topic_name: config for config in configs}, version),
    st.lists(topics, max_size=4),
    st.builds(DataVersion, numbers, numbers, numbers),
)


@given(tables)
def test_topic_tables_round_trip(table: TopicConfigTable) -> None:
    assert TopicConfigTable.from_json(table.to_json()) == table
    assert route.decode_registration(route.encode_registration(table)) == table


def compressed(version: bytes, topics: list[bytes], declared: int | None = None) -> bytes:
    def counted(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    count = (len(topics) if declared is None else declared).to_bytes(4, "big")
    return zlib.compress(counted(version) + count + b"".join(map(counted, topics)) + counted(b"[]"), 9)


def test_compressed_registrations_are_recognised_by_their_first_byte() -> None:
    body = compressed(b'{"counter":3}', [b'T 4 8 6 SINGLE_TAG {"+k":"v"}', b"U 1 1 6 SINGLE_TAG"])
    table = route.decode_registration(body)
    assert table.data_version.counter == 3
    assert table.topics["T"].write_queue_nums == 8
    assert table.topics["T"].attributes == {"+k": "v"}
    assert table.topics["U"].attributes == {}


@pytest.mark.parametrize("body", [b"\x78", compressed(b"{}", [], declared=5), compressed(b"{}", [b"T x y z"])])
def test_damaged_compressed_registrations_are_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        route.decode_registration(body)


def test_routes_round_trip_with_quoted_keys() -> None:
    original = route.TopicRoute(
        [route.QueueData("b", 4, 8, 6)], [route.BrokerData("c", "b", {0: "h:1", 1: "h:2"})], "b:4"
    )
    assert route.TopicRoute.from_json(original.to_json()) == original
    assert orjson.loads(original.to_json())["brokerDatas"][0]["brokerAddrs"] == {"0": "h:1", "1": "h:2"}


def test_cluster_info_and_lists_round_trip() -> None:
    info = route.ClusterInfo({"b": route.BrokerData("c", "b", {0: "h:1"})}, {"c": ["b"]})
    assert route.ClusterInfo.from_json(info.to_json()) == info
    lost = route.ClusterInfo({}, {}, {"b": {"t": 4}, "d": {}})
    assert route.ClusterInfo.from_json(lost.to_json()) == lost
    assert info.merged_with(lost).lost == lost.merged_with(info).lost == {"d": {}}
    assert route.TopicList.from_json(route.TopicList(["t"], "h:1").to_json()) == route.TopicList(["t"], "h:1")
    assert heartbeat.decode_consumer_ids(heartbeat.encode_consumer_ids(["a"])) == ["a"]
    assert queues.decode_kv_table(queues.encode_kv_table({"k": "v"})) == {"k": "v"}


def test_heartbeats_and_locks_round_trip() -> None:
    subscription = heartbeat.Subscription.parse("t", "A || B", 5)
    assert len(subscription.code_set) == 2
    beat = heartbeat.HeartbeatData("id", ["p"], [heartbeat.ConsumerData("g", subscriptions=[subscription])])
    assert heartbeat.HeartbeatData.from_json(beat.to_json()) == beat
    lock = queues.QueueLockRequest("g", "id", [MessageQueue("t", "b", 1)])
    assert queues.QueueLockRequest.from_json(lock.to_json()) == lock
    assert queues.decode_locked_queues(queues.encode_locked_queues(lock.queues)) == lock.queues
    stats = {MessageQueue("t", "b", 1): queues.TopicOffset(1, 2, 3)}
    assert queues.decode_topic_stats(queues.encode_topic_stats(stats)) == stats


def test_attributes() -> None:
    assert topic_config.parse_attributes("+queue.type=BatchCQ, -reserve.time") == (
        {"queue.type": "BatchCQ"},
        frozenset({"reserve.time"}),
    )
    assert topic_config.parse_attributes(None) == ({}, frozenset())
    assert topic_config.parse_attributes(topic_config.format_attributes({"a": "1", "b": "2"}))[0] == {
        "a": "1",
        "b": "2",
    }
    for bad in ("queue.type=BatchCQ", "+k", "+=v", "-k=v", "+"):
        with pytest.raises(BodyError):
            topic_config.parse_attributes(bad)


def test_data_versions_count() -> None:
    assert DataVersion().next(5) == DataVersion(0, 5, 1)


def test_what_tools_are_told_of_groups_round_trips() -> None:
    member = group_progress.GroupMember("id", "10.0.0.7:5000", "JAVA", 495)
    subscription = heartbeat.Subscription.parse("t", "A || B", 5)
    connections = group_progress.GroupConnections([member], {"t": subscription}, message_model="BROADCASTING")
    assert group_progress.GroupConnections.from_json(connections.to_json()) == connections
    progress = {MessageQueue("t", "b", 1): group_progress.QueueProgress(9, 7, 8, 1_700_000_000_000, 2)}
    written = group_progress.encode_consume_stats(progress.items(), 0.5)
    assert group_progress.decode_consume_stats(written) == progress
    assert [each.lag for each in progress.values()] == [2]


def test_group_names_are_the_keys_of_the_table() -> None:
    table = b'{"subscriptionGroupTable":{"b":{"groupName":"b"},"a":{}}}'
    assert group_progress.decode_group_configs(table) == {"b": {"groupName": "b"}, "a": {}}
    assert group_progress.decode_group_configs(b"{}") == {}
    with pytest.raises(BodyError, match="subscriptionGroupTable"):
        group_progress.decode_group_configs(b'{"subscriptionGroupTable":["a"]}')


def test_progress_of_brokers_that_do_not_tell_what_is_pulled() -> None:
    queue = b'{"brokerName":"b","queueId":0,"topic":"t"}'
    body = b'{"offsetTable":{' + queue + b':{"brokerOffset":3,"consumerOffset":2}}}'
    assert list(group_progress.decode_consume_stats(body).values()) == [group_progress.QueueProgress(3, 2, 2, 0)]
