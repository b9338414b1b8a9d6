"""Signatures across both systems: Apache's brokers accept those of the Python client, and a name server of RaptorMQ
accepts those of Apache's broker.

The full signature is an additional field in requests of the Python client. The classic signature, which Apache's
brokers check, includes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from raptormq.client import AdminClient, ClientConfig, Credentials, Message, MessageQueue, Producer, PullConsumer
from raptormq.errors import ServerError
from tests.cli.conftest import start_server
from tests.interop.make_reference import PATIENCE
from tests.interop.mqadmin_users import PROVIDERS
from tests.interop.rocketmq_java import RocketMQServers, build
from tests.interop.test_access_control import SECURED
from tests.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ROOT = Credentials("root", "root-secret")


@pytest.fixture(scope="module")
def name_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a name server of RaptorMQ with access control, and a broker of Apache RocketMQ that registers with it."""
    folder: Path = tmp_path_factory.mktemp("signatures")
    pairs = SECURED | {
        "bindAddress": "127.0.0.1",
        "listenPort": str(free_port()),
        "kvConfigPath": str(folder / "kv.json"),
        "authConfigPath": str(folder / "auth"),
    }
    conf = folder / "namesrv.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
    with start_server("namesrv", "-c", str(conf)) as server:
        port = int(server.address("namesrv").rpartition(":")[2])
        settings = PATIENCE | SECURED | PROVIDERS
        apache = RocketMQServers(build(), folder / "rocketmq", settings=settings, namesrv_port=port)
        (folder / "rocketmq").mkdir()
        apache.start_broker()  # waits until the name server lists it, so its registration was signed
        try:
            yield server.address("namesrv")
        finally:
            apache.kill()


async def test_our_client_is_taken_by_their_broker(name_servers: str) -> None:
    config = ClientConfig(name_servers=name_servers, credentials=ROOT)
    async with AdminClient(client_config=config) as admin:
        await admin.create_topic("signed", 1, 1)
        while await admin.route("signed") is None:
            await asyncio.sleep(0.05)
    async with Producer("makers", client_config=config) as producer:
        result = await producer.send(Message("signed", b"x"))
    async with PullConsumer(client_config=config) as consumer:
        pulled = await consumer.pull(MessageQueue("signed", result.queue.broker_name, 0), 0, suspend_ms=2000)
        assert [message.body for message in pulled.messages()] == [b"x"]


async def test_and_refused_with_another_secret(name_servers: str) -> None:
    config = ClientConfig(name_servers=name_servers, credentials=Credentials("root", "guessed"))
    with pytest.raises(ServerError, match="check signature failed"):
        async with AdminClient(client_config=config) as admin:
            await admin.create_topic("forged", 1, 1)
