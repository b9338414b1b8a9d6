"""Settings of the wrong type: rejected where they are passed, with their name and the expected type."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_type_hints

import pytest

from raptormq.client import (
    BlockingProducer,
    BlockingPullConsumer,
    ClientConfig,
    ClientTls,
    ConsumeFromWhere,
    ConsumerConfig,
    Credentials,
    MessageModel,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
)
from raptormq.client.config import ProducerSettings
from raptormq.client.security.keys import KeyFile
from raptormq.client.settings import LONG_MAX, Count, Limits, SecondsOrZero, check_setting
from raptormq.errors import ConfigError
from raptormq.protocol.compression import Compression

INT_MAX = 2**31 - 1
WRONG: list[tuple[type, str, object, str]] = [
    (ConsumerConfig, "message_model", "BROADCASTING", "one of MessageModel.CLUSTERING, MessageModel.BROADCASTING"),
    (ConsumerConfig, "consume_from", "FIRST", "one of ConsumeFromWhere.FIRST, ConsumeFromWhere.LAST"),
    (ConsumerConfig, "consume_from_ms", -1, "a whole number from 0"),
    (ConsumerConfig, "consume_batch", 1.5, "a whole number above 0"),
    (ConsumerConfig, "consume_batch", "x", "a whole number above 0"),
    (ConsumerConfig, "consume_batch", True, "a whole number above 0"),
    (ConsumerConfig, "pull_batch", 10**30, f"at most {INT_MAX}"),
    (ConsumerConfig, "pull_batch", INT_MAX + 1, f"at most {INT_MAX}"),
    (ConsumerConfig, "max_messages_per_queue", None, "a whole number above 0"),
    (ConsumerConfig, "max_bytes_per_queue", "x", f"at most {LONG_MAX}"),
    (ConsumerConfig, "hand_over_timeout", None, "a number above 0"),
    (ConsumerConfig, "commit_interval", None, "a number above 0"),
    (ConsumerConfig, "pull_interval", "x", "a number from 0"),
    (ConsumerConfig, "pull_interval", -0.1, "or None"),
    (ConsumerConfig, "concurrency", "4", "a whole number above 0"),
    (ConsumerConfig, "offset_folder", None, "text or Path"),
    (ProducerConfig, "encrypt", "false", "True or False"),
    (ProducerConfig, "auto_batch", 1, "True or False"),
    (ProducerConfig, "compression", "zstd", "one of Compression"),
    (ProducerConfig, "retries", math.inf, "a whole number from 0"),
    (ProducerConfig, "send_timeout", math.inf, "a number above 0"),
    (ProducerConfig, "send_timeout", math.nan, "a number above 0"),
    (ProducerConfig, "batch_max_bytes", 1.5, "a whole number above 0, at most 2097152"),
    (ProducerConfig, "total_batch_max_bytes", math.inf, "a whole number above 0"),
    (ClientConfig, "instance_name", None, "text"),
    (ClientConfig, "request_timeout", "3", "a number above 0"),
    (ClientConfig, "keys", "keys.txt", "EncryptionKeys or None"),
    (ClientConfig, "tls", True, "ClientTls or None"),
    (ClientConfig, "credentials", ("key", "secret"), "Credentials or None"),
]


@pytest.mark.parametrize(("config", "name", "value", "expected"), WRONG)
def test_a_setting_of_the_wrong_kind_is_named_with_what_is_expected(
    config: Callable[..., object], name: str, value: object, expected: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        config(**{name: value})
    assert str(refused.value).startswith(f"{name} must be ")
    assert expected in str(refused.value)


@pytest.mark.parametrize("config", [ClientConfig, ProducerConfig, ConsumerConfig])
def test_every_setting_is_looked_at(config: Any) -> None:
    for field in dataclasses.fields(config):
        with pytest.raises(ConfigError, match=field.name):
            config(**{field.name: object()})


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"credentials": Credentials(7, "secret")}, "access_key"),  # type: ignore[arg-type]
        ({"tls": ClientTls(auth_server="yes")}, "auth_server"),  # type: ignore[arg-type]
        ({"tls": ClientTls(trust_cert_path=b"ca.pem")}, "trust_cert_path"),  # type: ignore[arg-type]
    ],
)
def test_what_is_inside_of_a_setting_is_looked_at(given: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be "):
        ClientConfig(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"credentials": "my secret"},
        {"keys": "my secret"},
        {"credentials": Credentials("key", b"my secret")},  # type: ignore[arg-type]
        {"tls": ClientTls(key_password=b"my secret")},  # type: ignore[arg-type]
    ],
)
def test_what_may_be_a_secret_is_not_shown(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        ClientConfig(**given)
    assert str(refused.value).endswith(("not str", "not bytes"))


@dataclasses.dataclass
class OwnKeys:
    """A user-defined key source with fields of all types."""

    service: Any = None
    region: Literal["north", "south"] = "north"
    ttl: float = 5
    path: "NotThere | None" = None  # type: ignore[name-defined] # noqa: F821, UP037

    def current(self) -> tuple[str, bytes]:
        return "k", bytes(16)

    def key(self, key_id: str) -> bytes:
        return bytes(16)


def test_what_a_user_brings_is_the_users() -> None:
    keys = OwnKeys()
    assert ClientConfig(keys=keys).keys is keys

    @dataclasses.dataclass(frozen=True)
    class More(Credentials):
        region: Literal["north", "south"] = "north"

    with pytest.raises(ConfigError, match="access_key must be "):
        ClientConfig(credentials=More(7, "secret"))  # type: ignore[arg-type]
    assert ClientConfig(credentials=More("key", "secret")).credentials == More("key", "secret")


def test_whole_numbers_are_numbers_and_folders_may_be_paths(tmp_path: Path) -> None:
    assert ConsumerConfig(commit_interval=5, offset_folder=tmp_path).offset_folder == tmp_path
    assert ConsumerConfig(pull_interval=0, max_bytes_per_queue=LONG_MAX).pull_interval == 0
    file = tmp_path / "keys"
    file.write_text("k1 = AAAAAAAAAAAAAAAAAAAAAA==\n")
    assert ClientConfig(keys=KeyFile(file)).keys is not None


@pytest.mark.parametrize("number", [0, 0.5, 7])
def test_numbers_at_their_limits(number: float) -> None:
    assert Limits(7, zero=True).contains(number)
    assert Limits(7).contains(number) is (number > 0)
    check_setting("n", number, SecondsOrZero)
    for beyond in (-0.1, 7.1, math.inf, -math.inf, math.nan):
        assert not Limits(7, zero=True).contains(beyond)
    check_setting("n", INT_MAX, Count)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda wrong: PushConsumer("g", config=wrong), "config must be ConsumerConfig or None, not ProducerConfig"),
        (lambda wrong: PushConsumer("g", client_config=wrong), "client_config must be ClientConfig or None"),
        (lambda wrong: Producer(client_config=wrong), "client_config must be ClientConfig or None"),
        (lambda wrong: PullConsumer(consume_from=wrong), r"consume_from must be one of ConsumeFromWhere\.FIRST"),
        (lambda wrong: PullConsumer(consume_from_ms=wrong), "consume_from_ms must be a whole number"),
        (lambda wrong: BlockingPullConsumer(consume_from=wrong), "consume_from must be one of"),
    ],
)
def test_constructors_name_what_they_expect(make: Callable[[Any], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make(ProducerConfig())


def test_a_producer_wants_the_configuration_of_one() -> None:
    wrong: Any = ConsumerConfig()
    with pytest.raises(ConfigError, match="config must be ProducerConfig or None, not ConsumerConfig"):
        Producer("p", config=wrong)


def test_producers_take_all_settings_of_their_configuration() -> None:
    assert list(ProducerSettings.__annotations__) == [each.name for each in dataclasses.fields(ProducerConfig)]
    made = Producer("p", send_timeout=1, compression=Compression.ZSTD, compress_batches=True, encrypt=False)
    assert (made._config.send_timeout, made._config.compression) == (1, Compression.ZSTD)


@pytest.mark.parametrize("name", ProducerSettings.__annotations__)
def test_the_settings_that_producers_take_are_those_of_their_configuration(name: str) -> None:
    kinds = get_type_hints(ProducerConfig)
    assert get_type_hints(ProducerSettings)[name] == kinds[name] | None
    wrong: Any = {name: object()}
    for make in (Producer, BlockingProducer):
        with pytest.raises(ConfigError, match=f"{name} must be"):
            make("p", **wrong)
    nothing: Any = {name: None}
    Producer("p", **nothing)


@pytest.mark.parametrize("wrong", [5, [5], b"127.0.0.1:9876", [None]])
def test_name_servers_are_texts(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="name_servers must be text or a sequence of texts"):
        Producer("p", name_servers=wrong)


def test_the_right_values_are_taken() -> None:
    taken = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, message_model=MessageModel.BROADCASTING)
    assert taken.message_model is MessageModel.BROADCASTING
