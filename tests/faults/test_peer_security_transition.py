"""Access control and TLS of a running Dledger group are changed, with one restarted broker process after another.

Each change has the steps of the operator: settings that accept peers in both ways (``peerSecurityTransition``), then
the final settings. A ledger of acknowledged messages is written meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from raptormq.client import (
    AdminClient,
    ClientConfig,
    ClientTls,
    Credentials,
    Message,
    Producer,
    ProducerConfig,
    SendStatus,
)
from raptormq.config_file import parse_properties
from raptormq.errors import RaptorMQError
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import CommandFlag, RemotingCommand
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool
from tests.certificates import Authority, Issued
from tests.faults.dledger_processes import PATIENCE_S, DledgerProcesses, dledger_group
from tests.faults.ha_processes import MASTER, SLAVE, ha_processes
from tests.faults.ledger import QUEUES, TOPIC, Ledger, assert_whole

pytestmark = pytest.mark.timeout(300)

TRANSITION = "peerSecurityTransition=true\n"
CLIENT = Credentials("client", "client-password")


@dataclass(frozen=True)
class Security:
    """Settings of members, and the settings of clients that they accept."""

    members: str = ""
    client: ClientTls | None = None

    @property
    def opened(self) -> Security:
        """The same settings, with peers accepted in both ways."""
        return Security(self.members + TRANSITION, self.client)


def signed_by(folder: Path, user: str) -> str:
    """Return settings of access control in which members sign as ``user``."""
    for name, password in ((user, f"{user}-password"), ("client", CLIENT.secret_key)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "username").write_text(name)
        (folder / name / "password").write_text(password)
    return (
        "authenticationEnabled=true\nauthorizationEnabled=true\n"
        f"superUserPaths={folder / 'client'}\ninnerClientCredentialsPath={folder / user}\n"
    )


def encrypted(mode: str, issued: Issued, authority: Authority | None = None) -> str:
    """Return settings of TLS. With ``authority`` a client certificate is required."""
    texts = {
        "tls.server.mode": mode,
        "tls.server.certPath": str(issued.cert),
        "tls.server.keyPath": str(issued.key),
        "useTLS": "true",
        "tls.client.certPath": str(issued.cert),
        "tls.client.keyPath": str(issued.key),
    }
    if authority is not None:
        texts |= {"tls.server.need.client.auth": "require", "tls.server.trustCertPath": str(authority.cert)}
    return "".join(f"{key}={value}\n" for key, value in texts.items())


def access_is_enabled(folder: Path) -> list[Security]:
    signed = Security(signed_by(folder, "brokers"))
    return [Security(), signed.opened, signed]


def access_is_disabled(folder: Path) -> list[Security]:
    signed = Security(signed_by(folder, "brokers"))
    return [signed, signed.opened, Security()]


def tls_becomes_permissive(folder: Path) -> list[Security]:
    both = Security(encrypted("permissive", Authority(folder, "ca").issue("servers")))
    return [Security(), both.opened, both]


def tls_is_enforced(folder: Path) -> list[Security]:
    only = Security(encrypted("enforcing", Authority(folder, "ca").issue("servers")), ClientTls())
    return [Security(), replace(only.opened, client=None), only]


def tls_is_disabled(folder: Path) -> list[Security]:
    only = Security(encrypted("enforcing", Authority(folder, "ca").issue("servers")), ClientTls())
    return [only, only.opened, Security()]


def keys_and_authority_are_replaced(folder: Path) -> list[Security]:
    found = []
    for name in ("old", "new"):
        authority = Authority(folder, name)
        issued = authority.issue("servers")
        settings = signed_by(folder, f"{name}-brokers") + encrypted("enforcing", issued, authority)
        found.append(Security(settings, ClientTls(cert_path=issued.cert, key_path=issued.key)))
    old, new = found
    return [old, replace(old.opened, client=None), replace(new.opened, client=None), new]


CHANGES: tuple[Callable[[Path], list[Security]], ...] = (
    access_is_enabled,
    access_is_disabled,
    tls_becomes_permissive,
    tls_is_enforced,
    tls_is_disabled,
    keys_and_authority_are_replaced,
)
OF_SLAVES = (access_is_enabled, access_is_disabled, tls_is_enforced, tls_is_disabled)


def clients(processes: DledgerProcesses, tls: ClientTls | None) -> ClientConfig:
    return replace(processes.clients(CLIENT), tls=tls)


def accepts_both(folder: Path) -> str:
    """Return the settings of a name server that accepts TLS and plain connections."""
    issued = Authority(folder, "name-server").issue("server")
    return f"tls.server.mode=permissive\ntls.server.certPath={issued.cert}\ntls.server.keyPath={issued.key}\n"


@asynccontextmanager
async def group(folder: Path, security: Security) -> AsyncIterator[DledgerProcesses]:
    async with dledger_group(folder, security.members, name_server=accepts_both(folder)) as processes:
        yield processes


async def restart(processes: DledgerProcesses, member: str, security: Security) -> None:
    await processes.stop(member)  # a leader transfers leadership
    processes.configure(member, security.members)
    await processes.start(member)


async def roll(processes: DledgerProcesses, admin: AdminClient, security: Security) -> None:
    """Restart the followers and then the leader, each when the group permits it."""
    leader = await processes.leads(admin)
    for member in [*(each for each in processes.ports if each != leader), leader]:
        await processes.probed(member, "/replication/restart-allowed")
        await restart(processes, member, security)
        await processes.probed(member, "/replication/caught-up")
        await processes.probed(member, "/readyz")


@pytest.mark.crossing("settings", "dledger", "access-control")
@pytest.mark.crossing("settings", "dledger", "tls")
@pytest.mark.crossing("sends", "dledger", "access-control")
@pytest.mark.crossing("sends", "dledger", "tls")
@pytest.mark.parametrize("change", CHANGES, ids=[change.__name__ for change in CHANGES])
async def test_security_is_changed_on_a_running_group_without_losing_a_message(
    change: Callable[[Path], list[Security]], tmp_path: Path
) -> None:
    before, *steps = change(tmp_path)
    async with AsyncExitStack() as opened, group(tmp_path, before) as processes:

        async def producer(security: Security) -> Producer:
            config = ProducerConfig(retries=0)
            made = Producer("senders", client_config=clients(processes, security.client), config=config)
            return await opened.enter_async_context(made)

        admin = await opened.enter_async_context(AdminClient(client_config=clients(processes, before.client)))
        await processes.leader(admin)
        await admin.create_topic(TOPIC, QUEUES, QUEUES)
        ledger = Ledger(await producer(before), PATIENCE_S)
        ledger.begin()
        await ledger.grow(50)
        for step in steps:
            if step is steps[-1]:  # all members accept the new clients now
                ledger.send_with(await producer(step))
                await ledger.grow(50)
            await roll(processes, admin, step)
            await ledger.grow(50)
        await ledger.end()
        await assert_whole(processes, ledger, clients(processes, steps[-1].client))


async def message_is_refused(processes: DledgerProcesses, member: str, *, tls: ClientTls | None = None) -> bool:
    """Send a message without a signature to the port of the group. Return whether the member closed the connection."""
    address = processes.peers[member]
    pool = ConnectionPool(None, ConnectionLimits(), PATIENCE_S, tls)
    asks = RemotingCommand(RequestCode.DESCRIBE_REPLICATION, {"group": "RaftNode00"}, flag=CommandFlag(0))
    try:
        response = await pool.request(address, asks, PATIENCE_S)
        assert response.body
    except RaptorMQError:
        return True
    finally:
        await pool.close()
    return False


async def test_unsigned_and_plain_peers_are_refused_before_and_after_the_transition(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    strict = Security(signed_by(tmp_path, "brokers") + encrypted("enforcing", authority.issue("servers")), ClientTls())
    async with (
        group(tmp_path, strict) as processes,
        AdminClient(client_config=clients(processes, strict.client)) as admin,
    ):
        leader = await processes.leads(admin)
        follower = next(member for member in processes.ports if member != leader)
        assert await message_is_refused(processes, follower), "plain"
        assert await message_is_refused(processes, follower, tls=ClientTls()), "not signed"
        await restart(processes, follower, strict.opened)
        assert not await message_is_refused(processes, follower)
        assert not await message_is_refused(processes, follower, tls=ClientTls())
        await restart(processes, follower, strict)
        assert await message_is_refused(processes, follower), "plain"
        assert await message_is_refused(processes, follower, tls=ClientTls()), "not signed"


async def test_a_member_with_other_security_joins_only_during_the_transition(tmp_path: Path) -> None:
    """Without the transition the restarted member and the others refuse each other, as in version 0.2."""
    signed = Security(signed_by(tmp_path, "brokers"))
    async with group(tmp_path, Security()) as processes, AdminClient(client_config=processes.clients()) as admin:
        leader = await processes.leads(admin)
        follower = next(member for member in processes.ports if member != leader)
        await restart(processes, follower, signed)
        while "username cannot be null" not in processes.log(follower):
            await asyncio.sleep(0.02)
        assert (await processes.probe(follower, "/readyz"))[0] == 503
        await restart(processes, follower, signed.opened)
        await processes.probed(follower, "/replication/caught-up")


@pytest.mark.crossing("settings", "master-slave", "access-control")
@pytest.mark.crossing("settings", "master-slave", "tls")
@pytest.mark.crossing("sends", "master-slave", "access-control")
@pytest.mark.crossing("sends", "master-slave", "tls")
@pytest.mark.parametrize("change", OF_SLAVES, ids=[change.__name__ for change in OF_SLAVES])
async def test_security_is_changed_on_a_slave_and_then_on_its_master(
    change: Callable[[Path], list[Security]], tmp_path: Path
) -> None:
    before, *steps = change(tmp_path)
    async with AsyncExitStack() as opened:
        processes = await opened.enter_async_context(ha_processes(tmp_path, name_server=accepts_both(tmp_path)))
        base = ClientConfig(name_servers=processes.name_server, credentials=CLIENT, request_timeout=PATIENCE_S)

        async def start(name: str, security: Security) -> None:
            pairs = parse_properties(security.members) | {
                "haSlaveAddresses": "127.0.0.1",
                "registerNameServerPeriod": "10000",
            }
            await processes.start(name, "SLAVE" if name == SLAVE else "SYNC_MASTER", int(name == SLAVE), pairs)

        async def follows(security: Security, number: int) -> None:
            """Wait until the slave follows, and check that the master acknowledges a message."""
            client = replace(base, tls=security.client)
            async with AdminClient(client_config=client) as admin, Producer(client_config=client) as producer:
                while (await admin.runtime_info(processes.address(SLAVE))).get("haConnected") != "true":
                    await asyncio.sleep(0.02)
                sent = await producer.send(Message(TOPIC, b"%d" % number), timeout=PATIENCE_S)
                assert sent.status == SendStatus.SEND_OK
                assert sent.queue_offset == number

        await start(MASTER, before)
        await start(SLAVE, before)
        async with AdminClient(client_config=replace(base, tls=before.client)) as admin:
            await admin.create_topic(TOPIC, 1, 1)
        await follows(before, 0)
        number = 0
        for step in steps:
            for name in (SLAVE, MASTER):
                await processes.stop(name)
                await start(name, step)
                number += 1
                await follows(step, number)
