"""Clients with TLS and signatures, and servers that require both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.config.config import BrokerConfig
from raptormq.client import (
    AdminClient,
    BlockingProducer,
    BlockingPullConsumer,
    ClientConfig,
    ClientTls,
    ConsumeFromWhere,
    ConsumerConfig,
    Credentials,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from raptormq.client.security.tls import tls_from_environment
from raptormq.errors import ConfigError, RaptorMQError, ServerError
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from tests.certificates import Authority, Issued, mutual_tls

ROOT = Credentials("root", "root-secret")


@asynccontextmanager
async def secured(folder: Path, authority: Authority) -> AsyncIterator[ClientConfig]:
    """Run servers that require TLS, a client certificate and signatures. Yield the settings of a matching client."""
    own = authority.issue("client")
    tls = mutual_tls(authority, own)
    listening = {"bindAddress": "127.0.0.1", "listenPort": "0"}
    name_server = NameServer(NameServerConfig.from_pairs(tls | listening | {"kvConfigPath": str(folder / "kv.json")}))
    await name_server.start()
    pairs = {
        "brokerIP1": "127.0.0.1",
        "metricsPort": "-1",
        "namesrvAddr": name_server.address,
        "storePathRootDir": str(folder / "store"),
        "diskMaxUsedSpaceRatio": "95",
        "diskSpaceCleanForciblyRatio": "98",
        "diskSpaceWarningLevelRatio": "100",
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    }
    broker = Broker(BrokerConfig.from_pairs(tls | listening | pairs))
    await broker.start()
    try:
        async with asyncio.timeout(20):
            await name_server.wait_for_broker(broker.address)
        trusting = ClientTls(str(authority.cert), str(own.cert), str(own.key), auth_server=True, check_name=True)
        yield ClientConfig(name_server.address, credentials=ROOT, tls=trusting)
    finally:
        await broker.stop()
        await name_server.stop()


async def test_everything_works_over_mutual_tls_with_signatures(tmp_path: Path) -> None:
    async with secured(tmp_path, Authority(tmp_path, "authority")) as config:
        async with AdminClient(client_config=config) as admin:
            await admin.create_topic("t", 2, 2)
        async with Producer("p", client_config=config) as producer:
            await producer.send(Message("t", b"one"))
            await producer.send_batch([Message("t", b"two"), Message("t", bytes(2_000_000))])
        received: asyncio.Queue[MessageExt] = asyncio.Queue()

        async def listener(messages: list[MessageExt]) -> None:
            for message in messages:
                received.put_nowait(message)

        reading = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
        async with PushConsumer("g", client_config=config, config=reading) as consumer:
            consumer.subscribe("t", "*", listener)
            bodies = {(await received.get()).body for _ in range(3)}
        assert bodies == {b"one", b"two", bytes(2_000_000)}
        await asyncio.to_thread(_blocking, replace(config, instance_name="blocking"))


def _blocking(config: ClientConfig) -> None:
    with (
        BlockingProducer("p", client_config=config) as producer,
        BlockingPullConsumer(client_config=config) as consumer,
    ):
        sent = producer.send(Message("t", b"three"))
        pulled = consumer.pull(sent.queue, sent.queue_offset)
        assert [message.body for message in pulled.messages()] == [b"three"]


async def test_what_is_missing_is_refused(tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    async with secured(tmp_path, Authority(tmp_path, "authority")) as config:
        assert config.tls is not None
        assert isinstance(config.name_servers, tuple)
        foreign = ClientTls(str(Authority(stranger, "stranger").cert), auth_server=True)
        for tls in (None, foreign, replace(config.tls, cert_path="", key_path="")):
            bad = ClientConfig(config.name_servers, credentials=ROOT, tls=tls, request_timeout=2.0)
            with pytest.raises(RaptorMQError):
                async with AdminClient(client_config=bad) as admin:
                    await admin.topics()
        unsigned = ClientConfig(config.name_servers, credentials=None, tls=config.tls)
        with pytest.raises(ServerError):
            async with AdminClient(client_config=unsigned) as admin:
                await admin.create_topic("t", 1, 1)


async def test_a_missing_file_is_told_at_the_start(tmp_path: Path) -> None:
    config = ClientConfig("127.0.0.1:1", tls=ClientTls("/nowhere/ca.pem", auth_server=True))
    with pytest.raises(ConfigError, match=r"cannot read /nowhere/ca\.pem"):
        await Producer("p", client_config=config).start()


CA, CERT, KEY = "RAPTORMQ_TLS_CA", "RAPTORMQ_TLS_CERT", "RAPTORMQ_TLS_KEY"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"RAPTORMQ_TLS": ""}, None),
        ({"RAPTORMQ_TLS": "false", CA: "a"}, None),
        ({"RAPTORMQ_TLS": "true"}, ClientTls()),
        ({"RAPTORMQ_TLS_PASSWORD": "x"}, None),
        ({CA: "a"}, ClientTls("a", auth_server=True)),
        ({CERT: "c", KEY: "k"}, ClientTls(cert_path="c", key_path="k")),
        (
            {CA: "a", CERT: "c", KEY: "k", "RAPTORMQ_TLS_PASSWORD": "x", "RAPTORMQ_TLS_CHECK_NAME": "true"},
            ClientTls("a", "c", "k", "x", auth_server=True, check_name=True),
        ),
    ],
)
def test_the_environment(environment: dict[str, str], expected: ClientTls | None) -> None:
    assert tls_from_environment(environment) == expected


def test_the_file_of_rocketmq_is_under_the_other_variables(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text(
        "tls.client.authServer=true\ntls.client.trustCertPath=file-ca\ntls.client.certPath=file-cert\n"
        "tls.client.keyPath=file-key\ntls.client.keyPassword=file-password\n"
    )
    environment = {"RAPTORMQ_TLS_CONFIG": str(path)}
    whole = ClientTls("file-ca", "file-cert", "file-key", "file-password", auth_server=True)
    assert tls_from_environment(environment) == whole
    assert tls_from_environment(environment | {CA: "ca"}) == replace(whole, trust_cert_path="ca")


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"RAPTORMQ_TLS": "maybe"}, "RAPTORMQ_TLS = 'maybe' is not usable: expected true or false"),
        ({CERT: "c"}, "must be given together"),
        ({KEY: "k"}, "must be given together"),
        ({"RAPTORMQ_TLS_CHECK_NAME": "true"}, "verified"),
        ({"RAPTORMQ_TLS_CONFIG": "/nowhere"}, "cannot read settings file /nowhere"),
    ],
)
def test_mistakes_in_the_environment(environment: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tls_from_environment(environment)
    assert complaint in str(caught.value)


def test_settings_with_tls_are_told_apart(tmp_path: Path) -> None:
    issued = Issued(tmp_path / "a", tmp_path / "b")
    config = ClientConfig("127.0.0.1:1", instance_name="x", tls=ClientTls(str(issued.cert)))
    assert config != replace(config, tls=None)
    assert len({config, replace(config, tls=None), replace(config)}) == 2
