"""Options: their meaning, and errors for mistakes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_raptormq.columns import DEFAULT_COLUMNS, PropertiesAs
from pyspark_raptormq.connection import Connection
from pyspark_raptormq.errors import OptionError
from pyspark_raptormq.options import Position, SourceOptions, parse_source_options
from pyspark_raptormq.sink.options import parse_sink_options
from raptormq.client import Sql
from raptormq.protocol.message import MessageQueue

AT_6 = '{"flights": {"broker-a": {"0": 6}}}'
AT_7 = '{"flights": {"broker-a": {"0": 7}}}'
LEAST = {"nameServer": "127.0.0.1:9876", "subscribe": "flights"}


def options(streaming: bool = False, **more: str) -> SourceOptions:
    return parse_source_options(LEAST | more, streaming=streaming)


def test_defaults() -> None:
    batch = options()
    assert batch.connection.name_servers == ("127.0.0.1:9876",)
    assert batch.topics == ("flights",)
    assert batch.start == Position(word="earliest")
    assert batch.end == Position(word="latest")
    assert batch.columns == DEFAULT_COLUMNS
    assert batch.tags == frozenset()
    assert batch.fail_on_data_loss
    assert batch.fail_on_damage
    assert options(streaming=True).start == Position(word="latest")


def test_names_do_not_care_about_case() -> None:
    spark_hands_in = {name.lower(): value for name, value in LEAST.items()} | {"FAILONDATALOSS": "False"}
    assert not parse_source_options(spark_hands_in, streaming=False).fail_on_data_loss


def test_every_option_arrives() -> None:
    parsed = parse_source_options(
        {
            "nameServer": "a:1;b:2",
            "topic": "x, y ,x",
            "subExpression": " JFK||LGA ",
            "startingTimestamp": "1000",
            "maxOffsetsPerTrigger": "500",
            "minPartitions": "4",
            "maxRowsPerPartition": "1000",
            "failOnDataLoss": "false",
            "failOnDamage": "false",
            "columns": "key,value",
            "consumerGroup": "reports",
            "arrowBatchBytes": "1m",
            "pullBytes": "64K",
            "requestTimeoutMs": "2500",
            "retryTimeoutMs": "9000",
            "verifyCrc": "false",
        },
        streaming=True,
    )
    assert parsed == SourceOptions(
        Connection(("a:1", "b:2"), request_timeout_s=2.5, retry_timeout_s=9.0),
        topics=("x", "y"),
        expression="JFK||LGA",
        start=Position(timestamp_ms=1000),
        max_offsets_per_trigger=500,
        min_partitions=4,
        max_rows_per_partition=1000,
        fail_on_data_loss=False,
        fail_on_damage=False,
        columns=("key", "value"),
        consumer_group="reports",
        arrow_batch_bytes=1024 * 1024,
        pull_bytes=64 * 1024,
        verify_crc=False,
    )
    assert parsed.tags == {"JFK", "LGA"}


def test_what_to_read() -> None:
    server = {"nameServer": "a:1"}
    by_queue = parse_source_options(server | {"assign": '{"t": {"broker-a": [1]}}'}, streaming=False)
    assert by_queue.queues == (MessageQueue("t", "broker-a", 1),)
    assert parse_source_options(server | {"subscribePattern": "f.*"}, streaming=False).topic_pattern == "f.*"


def test_positions() -> None:
    queue = MessageQueue("flights", "broker-a", 0)
    text = '{"flights": {"broker-a": {"0": 7}}}'
    assert options(startingOffsets=text).start == Position(offsets={queue: 7})
    assert options(streaming=True, startingOffsets=" Latest ").start == Position(word="latest")
    assert options(endingTimestamp="5").end == Position(timestamp_ms=5)


def test_a_time_per_queue() -> None:
    text = '{"flights": {"broker-a": {"0": 7}}}'
    at_time = Position(timestamps={MessageQueue("flights", "broker-a", 0): 7})
    assert options(startingOffsetsByTimestamp=text).start == at_time
    assert options(endingOffsetsByTimestamp=text).end == at_time


def test_limits_of_a_trigger() -> None:
    limited = options(
        streaming=True,
        maxOffsetsPerTrigger="500",
        maxBytesPerTrigger="2g",
        minOffsetsPerTrigger="100",
        maxTriggerDelay="5m",
    )
    assert limited.max_bytes_per_trigger == 2 * 1024**3
    assert (limited.min_offsets_per_trigger, limited.max_trigger_delay_s) == (100, 300.0)
    for text, seconds in {"1500": 1.5, "20ms": 0.02, "30 s": 30.0, "15min": 900.0, "1h": 3600.0}.items():
        assert options(True, minOffsetsPerTrigger="1", maxTriggerDelay=text).max_trigger_delay_s == seconds
    for text in ("", "5 weeks", "-1s", "s"):
        with pytest.raises(OptionError, match="option maxTriggerDelay: must be a time such as"):
            options(True, minOffsetsPerTrigger="1", maxTriggerDelay=text)
    with pytest.raises(OptionError, match="minOffsetsPerTrigger is 6, more than maxOffsetsPerTrigger, 5"):
        options(True, minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")
    with pytest.raises(OptionError, match="maxTriggerDelay needs minOffsetsPerTrigger"):
        options(True, maxTriggerDelay="1s")
    with pytest.raises(OptionError, match="option maxBytesPerTrigger: must be a size such as 64k, 4m or 2g, not '0'"):
        options(True, maxBytesPerTrigger="0")


def test_a_filter_by_properties() -> None:
    filtered = options(subExpression=" price > 100 AND TAGS = 'JFK'", expressionType="SQL92")
    assert filtered.expression == Sql(" price > 100 AND TAGS = 'JFK'")
    assert filtered.tags == frozenset()
    with pytest.raises(OptionError, match="option subExpression: not a filter"):
        options(subExpression="price >", expressionType="sql92")
    with pytest.raises(OptionError, match="set the filter in option subExpression"):
        options(expressionType="sql92")
    with pytest.raises(OptionError, match="option expressionType: must be tag or sql92, not 'regex'"):
        options(subExpression="x", expressionType="regex")


def test_properties_bring_their_column() -> None:
    assert options(includeProperties="map").columns == (*DEFAULT_COLUMNS, "properties")
    assert options(includeProperties="raw").properties_as is PropertiesAs.RAW
    assert options(includeProperties="User").properties_as is PropertiesAs.USER
    assert options(includeProperties="map", columns="properties,key").columns == ("properties", "key")
    assert options(includeProperties="none").columns == DEFAULT_COLUMNS


@pytest.mark.parametrize(
    ("given_options", "reason"),
    [
        ({"failOnDatalos": "true"}, "unknown option 'failOnDatalos'; did you mean failOnDataLoss"),
        ({"kafka.bootstrap.servers": "x"}, "unknown option 'kafka.bootstrap.servers'"),
        ({"path": "x"}, "unknown option 'path'"),
        ({"topic": "flights"}, "options subscribe and topic exclude each other"),
        ({"assign": '{"t":{"b":[0]}}'}, "options subscribe and assign exclude each other"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "exclude each other"),
        ({"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"b":{"0":1}}}'}, "exclude each other"),
        ({"startingOffsetsByTimestamp": "5"}, "option startingOffsetsByTimestamp: "),
        ({"startingOffsetsByTimestamp": "{}"}, "the times name no queue"),
        ({"startingOffsets": "first"}, "option startingOffsets: must be earliest, latest or JSON, not 'first'"),
        ({"startingOffsets": "{"}, "option startingOffsets: not JSON"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp: must be a whole number"),
        ({"minPartitions": "0"}, "option minPartitions: must be a whole number of at least 1, not '0'"),
        ({"failOnDataLoss": "yes"}, "option failOnDataLoss: must be true or false"),
        ({"subExpression": "||"}, "option subExpression"),
        (
            {"subExpression": "JFK && LGA"},
            "option subExpression: 'JFK && LGA' is not a tag: tags can only be combined with ||",
        ),
        ({"subExpression": "JFK | LGA"}, "is not a tag"),
        ({"subExpression": "TAGS = 'JFK'"}, "is not a tag"),
        ({"subExpression": "JFK or LGA"}, "is not a tag"),
        ({"subscribe": " , "}, "option subscribe: names nothing"),
        ({"nameServer": "localhost"}, "option nameServer: address 'localhost' is not host:port"),
        ({"columns": "key,valu"}, "there is no column 'valu'; did you mean value"),
        ({"columns": "key,properties"}, "set includeProperties"),
        ({"columns": "key", "includeProperties": "map"}, "does not contain 'properties'"),
        ({"includeProperties": "all"}, "must be none, user, map or raw"),
        ({"subscribe": "a b"}, "option subscribe: topic 'a b': The specified topic contains illegal characters"),
        ({"subscribe": "t,TBW102"}, "option subscribe: topic TBW102 belongs to the brokers, and has no messages"),
        ({"subscribe": "rmq_sys_STAGED"}, "belongs to the brokers, and has no messages to read"),
        ({"subExpression": " "}, "option subExpression: it is blank; * reads all messages"),
        ({"subExpression": "JFK || *"}, "* reads all messages, so it cannot be combined with tags"),
        ({"nameServer": " ; "}, "option nameServer: names no name server: it must be host:port"),
        ({"requestTimeoutMs": "3000000000"}, "must be a whole number from 1 to 2147483647"),
        ({"startingTimestamp": "6", "endingTimestamp": "5"}, "the start, 6 ms, is after the end, 5 ms"),
        ({"startingOffsets": AT_7, "endingOffsets": AT_6}, "flights@broker-a:0: the start, 7, is after the end, 6"),
        (
            {"startingOffsetsByTimestamp": AT_7, "endingOffsetsByTimestamp": AT_6},
            "flights@broker-a:0: the start, 7, is after the end, 6",
        ),
        ({"startingOffsets": "latest"}, "a batch query that starts at the latest offset reads nothing"),
        ({"endingOffsets": "earliest"}, "a batch query that ends at the earliest offset reads nothing"),
        ({"arrowBatchBytes": "1g"}, "must be a size from 1k to 64m"),
        ({"arrowBatchBytes": "100"}, "must be a size from 1k to 64m"),
        ({"requestTimeoutMs": "0"}, "must be a whole number from 1 to 2147483647, not '0'"),
        ({"foo": "x"}, "unknown option 'foo'; known are accessKey, "),
        ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger is for streaming queries only"),
    ],
)
def test_mistakes_are_named(given_options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_source_options(LEAST | given_options, streaming=False)
    assert reason in str(caught.value)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(OptionError, match="nameServer is missing"):
        parse_source_options({"subscribe": "t"}, streaming=False)
    with pytest.raises(OptionError, match="subscribe, subscribePattern or assign"):
        parse_source_options({"nameServer": "a:1"}, streaming=False)
    with pytest.raises(OptionError, match="not a regular expression"):
        parse_source_options({"nameServer": "a:1", "subscribePattern": "("}, streaming=False)
    with pytest.raises(OptionError, match=r"option consumerGroup: .*a b"):
        options(streaming=True, consumerGroup="a b")
    with pytest.raises(OptionError, match="option consumerGroup: group TOOLS_CONSUMER belongs to brokers or tools"):
        options(streaming=True, consumerGroup="TOOLS_CONSUMER")
    with pytest.raises(OptionError, match="endingOffsets is for batch queries only"):
        options(streaming=True, endingOffsets="latest")


def test_start_at_or_before_the_end_is_accepted() -> None:
    at_end = options(startingOffsets=AT_7, endingOffsets='{"flights": {"broker-a": {"0": -1}}}')
    assert at_end.start.offsets == {MessageQueue("flights", "broker-a", 0): 7}
    assert options(startingTimestamp="5", endingTimestamp="5").end == Position(timestamp_ms=5)
    assert options(startingOffsets=AT_6, endingOffsets=AT_7).end.offsets
    assert options(streaming=True, startingOffsets="latest").start.word == "latest"


def test_retry_topics_and_dead_letters_can_be_read() -> None:
    assert options(subscribe="%RETRY%billing,%DLQ%billing").topics == ("%RETRY%billing", "%DLQ%billing")


def test_options_of_a_table_are_refused_with_what_to_use_instead() -> None:
    created = {"option.nameServer": "a:1", "nameserver": "a:1", "subscribe": "t", "provider": "raptormq", "owner": "me"}
    for raw in (created, {"owner": "me", "provider": "raptormq"}, {"OPTION.subscribe": "t"} | LEAST):
        with pytest.raises(OptionError, match=r"a table of a catalog cannot use raptormq.* CREATE TEMPORARY VIEW"):
            parse_source_options(raw, streaming=None)
        with pytest.raises(OptionError, match="a table of a catalog cannot use raptormq"):
            parse_sink_options(raw)
    for parse in (lambda raw: parse_source_options(raw, streaming=False), parse_sink_options):
        with pytest.raises(OptionError, match=r"nameServer is missing.* If this is a table: .* CREATE TEMPORARY VIEW"):
            parse({})


def test_the_kind_of_query_may_be_open() -> None:
    both = LEAST | {"endingOffsets": "latest", "maxOffsetsPerTrigger": "5"}
    assert parse_source_options(both, streaming=None).max_offsets_per_trigger == 5


@pytest.mark.parametrize(
    ("given_options", "reason"),
    [
        ({"topic": "TBW102"}, "option topic: topic TBW102 belongs to the brokers: use another topic"),
        ({"topic": "%RETRY%billing"}, "option topic: topic %RETRY%billing belongs to a consumer group"),
        ({"batchMaxBytes": "64m"}, "option batchMaxBytes: must be a size from 1k to 2m, not '64m'"),
        ({"batchMaxDelayMs": "30001"}, "option batchMaxDelayMs: must be a whole number from 1 to 30000"),
        ({"retryTimeoutMs": "3000000000"}, "option retryTimeoutMs: must be a whole number from 1 to 2147483647"),
    ],
)
def test_mistakes_in_options_of_the_sink_are_named(given_options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_sink_options({"nameServer": "a:1", "topic": "t"} | given_options)
    assert reason in str(caught.value)


def test_options_of_the_sink_at_their_limits_are_accepted() -> None:
    most = {"batchMaxBytes": "2m", "batchMaxDelayMs": "30000", "retryTimeoutMs": "2147483647", "maxMessageBytes": "64m"}
    parsed = parse_sink_options({"nameServer": "a:1", "topic": "BenchmarkTest"} | most)
    assert parsed.producer_config().batch_max_bytes == 2 * 1024 * 1024
    assert parsed.connection.client_config().request_timeout == 5.0


@given(st.dictionaries(st.sampled_from([*LEAST, "startingOffsets", "assign", "pullBytes"]) | st.text(), st.text()))
def test_any_options_are_understood_or_refused(raw: dict[str, str]) -> None:
    with contextlib.suppress(OptionError):
        assert parse_source_options(raw, streaming=None).connection.name_servers
