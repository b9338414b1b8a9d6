"""A broker with TLS: settings, registration, and certificates that change under load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.errors import ConfigError, RaptorMQError
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.record import iter_records
from raptormq.storage.read.options import ReadOptions
from raptormq.transport.pool import ConnectionPool
from raptormq.transport.tls.contexts import ClientTls
from tests.broker.harness import TIMEOUT, running, send_fields, settings
from tests.certificates import Authority, Issued

TOPIC = "TBW102"
SENDERS, MESSAGES = 8, 60


def secured(issued: Issued, **more: str) -> dict[str, str]:
    pairs = {"tls.server.certPath": str(issued.cert), "tls.server.keyPath": str(issued.key)}
    return pairs | {key.replace("_", "."): value for key, value in more.items()}


def test_a_certificate_alone_turns_it_on(tmp_path: Path) -> None:
    issued = Authority(tmp_path, "authority").issue("broker")
    config = settings(tmp_path, secured(issued))
    assert config.tls is not None
    assert config.outgoing_tls is None
    config = settings(tmp_path, secured(issued, tls_server_mode="enforcing"))
    assert config.outgoing_tls == ClientTls()


async def test_a_missing_certificate_stops_the_start(tmp_path: Path) -> None:
    missing = Issued(tmp_path / "none.pem", tmp_path / "none.key")
    with pytest.raises(ConfigError, match=r"cannot read .*none\.pem"):
        async with running(tmp_path, secured(missing)):
            pass
    with pytest.raises(ConfigError, match=r"cannot read .*none\.pem"):
        async with running(tmp_path, {"useTLS": "true", "tls.client.trustCertPath": str(missing.cert)}):
            pass
    async with running(tmp_path):  # and has left no file
        pass


async def test_the_settings_of_tls_are_not_shown(tmp_path: Path) -> None:
    issued = Authority(tmp_path, "authority").issue("broker")
    async with running(tmp_path, secured(issued, tls_server_keyPassword="hush")) as broker:
        pool = ConnectionPool(tls=ClientTls())
        command = RemotingCommand(RequestCode.GET_BROKER_CONFIG, {}, b"")
        answered = await pool.request(broker.address, command, TIMEOUT)
        assert answered.code == ResponseCode.SUCCESS
        assert b"\ntls." not in answered.body
        assert b"hush" not in answered.body
        await pool.close()


async def test_a_broker_registers_over_mutual_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    issued, own = authority.issue("namesrv"), authority.issue("broker")
    config = NameServerConfig.from_pairs(
        secured(
            issued,
            tls_server_mode="enforcing",
            tls_server_need_client_auth="require",
            tls_server_trustCertPath=str(authority.cert),
        )
        | {"bindAddress": "127.0.0.1", "listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json")}
    )
    server = NameServer(config)
    await server.start()
    mutual = {
        "namesrvAddr": server.address,
        "useTLS": "true",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.cert),
        "tls.client.certPath": str(own.cert),
        "tls.client.keyPath": str(own.key),
    }
    async with running(tmp_path / "store", mutual) as broker:
        async with asyncio.timeout(TIMEOUT):
            await server.wait_for_broker(broker.address)
        pool = ConnectionPool()
        with pytest.raises(RaptorMQError):
            await pool.request(server.address, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, {}, b""), TIMEOUT)
        await pool.close()
    await server.stop()


async def test_no_message_is_lost_while_certificates_change(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    issued = authority.issue("broker")
    renewals = [authority.issue(f"renewal-{number}") for number in range(4)]
    tls = ClientTls(str(authority.cert), auth_server=True)
    bodies = [f"{sender}-{number}".encode() for sender in range(SENDERS) for number in range(MESSAGES)]
    async with running(tmp_path, secured(issued, tls_server_mode="enforcing")) as broker:
        done = 0

        async def send(sender: int) -> None:
            nonlocal done
            pool = ConnectionPool(tls=tls)
            for number in range(MESSAGES):
                if number % 5 == 0:  # and over a new connection
                    await pool.close()
                    pool = ConnectionPool(tls=tls)
                fields = {name: str(value) for name, value in send_fields(TOPIC).items()}
                command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, b"%d-%d" % (sender, number))
                answered = await pool.request(broker.address, command, TIMEOUT)
                assert answered.code == ResponseCode.SUCCESS, answered.remark
                done += 1
            await pool.close()

        async def reached(share: float) -> None:
            while done < share * len(bodies):
                await asyncio.sleep(0)

        async def renew() -> None:
            for step, renewal in enumerate(renewals, 1):
                await reached((step - 0.5) / len(renewals))
                issued.cert.write_text("half a certificate")
                await reached(step / len(renewals) - 0.05)
                renewal.copy_to(issued)

        await asyncio.gather(renew(), *(send(sender) for sender in range(SENDERS)))
        found = broker._store.get_messages(TOPIC, 0, 0, ReadOptions(10_000, 1 << 22, None))
        records = [record for buffer in found.buffers for record in iter_records(bytes(buffer))]
        assert sorted(bytes(record.body) for record in records) == sorted(bodies)
