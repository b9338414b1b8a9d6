"""Client settings: accepted values, rejected values and their errors."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq.client.config import ClientConfig, ConsumerConfig, ProducerConfig, local_address, parse_addresses
from raptormq.errors import ConfigError


def test_addresses_as_text_and_as_sequence() -> None:
    expected = ("a:1", "[::1]:2")
    assert parse_addresses("a:1;[::1]:2") == expected
    assert parse_addresses(" a:1 , [::1]:2;") == expected
    assert parse_addresses(["a:1", "[::1]:2", "a:1"]) == expected


@pytest.mark.parametrize(
    "text", ["host", "host:", "host:0", "host:65536", "host:x", ":1", "a:1;b", "h o:1", "::1:9876"]
)
def test_a_bad_address_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not host:port"):
        parse_addresses(text)


@pytest.mark.parametrize("nothing", ["", " ; ", []])
def test_no_address_says_what_to_do(nothing: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        parse_addresses(nothing)


def test_name_servers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "ns-0:9876;ns-1:9876")
    assert ClientConfig().addresses == ("ns-0:9876", "ns-1:9876")
    monkeypatch.delenv("NAMESRV_ADDR")
    assert ClientConfig().addresses == ("127.0.0.1:9876",)


def test_every_configuration_is_its_own_client_unless_named() -> None:
    assert ClientConfig("a:1") != ClientConfig("a:1")
    assert ClientConfig("a:1", instance_name="x") == ClientConfig("a:1", instance_name="x")


@pytest.mark.parametrize("name", ["request_timeout", "route_refresh_interval", "heartbeat_interval", "close_timeout"])
def test_times_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        ClientConfig("a:1", **{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["send_timeout", "default_topic_queues", "max_message_bytes"])
def test_producer_settings_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        ProducerConfig(**{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["retries", "avoid_failed_broker", "compress_over_bytes"])
def test_producer_settings_must_not_be_negative(name: str) -> None:
    assert getattr(ProducerConfig(**{name: 0}), name) == 0  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=name):
        ProducerConfig(**{name: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["concurrency", "pull_batch", "commit_interval", "max_span_per_queue", "consume_batch"]
)
def test_consumer_settings_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        ConsumerConfig(**{name: 0})  # type: ignore[arg-type]


def test_a_pull_must_outlive_its_suspension() -> None:
    with pytest.raises(ConfigError, match="pull_timeout"):
        ConsumerConfig(pull_suspend=15, pull_timeout=15)


def test_the_local_address_is_the_one_towards_the_peer() -> None:
    assert local_address("127.0.0.1:9876") == "127.0.0.1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_max_bytes", 0),
        ("batch_max_bytes", 2 * 1024 * 1024 + 1),
        ("batch_max_delay_ms", 0),
        ("batch_max_delay_ms", 30_001),
        ("total_batch_max_bytes", 0),
        ("max_open_batches", 0),
        ("batch_max_bytes", "32K"),
        ("batch_max_bytes", None),
    ],
)
def test_limits_of_the_settings_for_batches(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        ProducerConfig(**{name: value})  # type: ignore[arg-type]


def test_a_batch_is_not_larger_than_a_message_may_be() -> None:
    assert ProducerConfig(auto_batch=True, batch_max_bytes=1000, max_message_bytes=1000).auto_batch
    with pytest.raises(ConfigError, match="max_message_bytes"):
        ProducerConfig(auto_batch=True, batch_max_bytes=1001, max_message_bytes=1000)


def test_compression_is_one_of_its_kinds() -> None:
    kind: Any = "zstd"
    with pytest.raises(ConfigError, match=r"one of Compression\.LZ4, .*, not 'zstd'"):
        ProducerConfig(compression=kind)
