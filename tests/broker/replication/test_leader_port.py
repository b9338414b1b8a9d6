"""The leader port and the leader address: three brokers, a name server, and a load balancer that represents the
Service.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.broker.broker import Broker
from raptormq.broker.replication import leader_port
from raptormq.broker.replication.leader_port import KEEP_S, Reach
from raptormq.client import AdminClient
from raptormq.errors import ConnectError, ConnectionClosed
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from raptormq.protocol.codes import ResponseCode
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import Peer, assembly_of, connected, settings
from tests.broker.replication.balancer import Balancer
from tests.broker.replication.test_brokers import FAST, LOOK_S, become, end_forwarding, leader_of, part_of, read, stop

NAME = "broker-a"


@dataclass
class Setup:
    brokers: dict[str, Broker]
    balancer: Balancer
    admin: AdminClient
    ports: dict[str, int] = field(default_factory=dict)
    """Leader port by member."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.balancer.port}"

    def follow(self, member: str) -> None:
        """Point the address to a member, like the operator."""
        self.balancer.target = self.ports[member]

    async def leader(self) -> str:
        await become(lambda: bool(leader_of(self.brokers)))
        return leader_of(self.brokers)

    async def registered(self, addresses: dict[int, str]) -> None:
        """Wait until the name server lists these addresses by broker id."""
        while True:
            listed = (await self.admin.cluster_info()).brokers.get(NAME)
            if listed is not None and listed.broker_addrs == addresses:
                return
            await asyncio.sleep(LOOK_S)

    def addresses(self, leader: str, leader_address: str) -> dict[int, str]:
        """Return the addresses by broker id, with this one for the leader."""
        return {
            0 if member == leader else int(member[1:]) + 1: leader_address if member == leader else broker.address
            for member, broker in self.brokers.items()
        }

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Peer]:
        """Return a client that connects to the leader's address."""
        peer = Peer.__new__(Peer)
        pool = ConnectionPool(peer)
        Peer.__init__(peer, await pool.connection(self.address))
        try:
            yield peer
        finally:
            await pool.close()


@asynccontextmanager
async def setup(
    folder: Path, free_ports: Callable[[int], list[int]], more: dict[str, str] | None = None
) -> AsyncIterator[Setup]:
    first, *ports = free_ports(8)
    own = {f"n{number}": port for number, port in enumerate(ports[:3])}
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports[3:6]))
    async with AsyncExitStack() as opened:
        balancer = Balancer(first)
        await balancer.start()
        opened.push_async_callback(balancer.stop)
        kv_path = str(folder / "kv.json")
        server = NameServer(NameServerConfig(listen_port=0, bind_address="127.0.0.1", kv_config_path=kv_path))
        await server.start()
        opened.push_async_callback(server.stop)
        admin = await opened.enter_async_context(AdminClient(name_servers=f"127.0.0.1:{server.port}"))
        brokers: dict[str, Broker] = {}
        for member, port in own.items():
            pairs = {
                "enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerPeers": peers, "dLegerSelfId": member,
                "dLegerLeaderAddress": f"127.0.0.1:{first}", "dLegerLeaderPort": str(port),
                "namesrvAddr": f"127.0.0.1:{server.port}",
            }  # fmt: skip
            brokers[member] = broker = Broker(settings(folder / member, pairs | FAST | (more or {})))
            await broker.start()
            opened.push_async_callback(stop, brokers, member)
        yield Setup(brokers, balancer, admin, own)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is checked at a short interval."""
    monkeypatch.setattr(leader_port, "ASK_S", 0.02)
    monkeypatch.setattr(leader_port, "CONFIRM_S", 0.05)
    monkeypatch.setattr(leader_port, "PATIENCE_S", 0.3)
    monkeypatch.setattr(leader_port, "KEEP_S", 0.3)


async def test_the_leader_registers_the_address_while_it_leads_to_it(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with setup(tmp_path, free_ports) as there:
        leader = await there.leader()
        own = there.brokers[leader].address
        await there.registered(there.addresses(leader, own))
        there.follow(leader)
        await there.registered(there.addresses(leader, there.address))
        async with there.client() as peer:
            assert (await peer.send("t", b"one")).code == ResponseCode.SUCCESS
        status, text = await there.brokers[leader]._pages.metrics()
        assert status == 200
        assert b"replication_leader_address_leads_here" in text
        other = next(member for member in there.brokers if member != leader)
        there.follow(other)
        await there.registered(there.addresses(leader, own))
        there.follow(leader)
        await there.registered(there.addresses(leader, there.address))
        there.balancer.target = there.brokers[other].port  # another server responds, which does not lead
        await there.registered(there.addresses(leader, own))
        there.balancer.target = there.brokers[leader].port  # every member listens there, so it also leads to the leader
        await there.registered(there.addresses(leader, there.address))
        there.balancer.target = None
        await there.registered(there.addresses(leader, own))


async def test_with_access_control_the_question_is_signed(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    keys = json.dumps({"accessKey": "inner", "secretKey": "inner-secret"})
    access = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
    access["innerClientAuthenticationCredentials"] = keys
    async with setup(tmp_path, free_ports, access) as there:
        leader = await there.leader()
        there.follow(leader)
        await there.registered(there.addresses(leader, there.address))


async def test_a_follower_refuses_connections_on_the_port_of_the_leader(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with setup(tmp_path, free_ports) as there:
        leader = await there.leader()
        there.follow(leader)
        await there.registered(there.addresses(leader, there.address))
        pool = ConnectionPool()
        for member, port in there.ports.items():
            if member == leader:
                await pool.connection(f"127.0.0.1:{port}")
            else:
                with pytest.raises(ConnectError):
                    await pool.connection(f"127.0.0.1:{port}")
        await pool.close()


async def test_who_leads_no_longer_ends_the_connections_of_its_clients(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """A held pull at the former leader is completed."""
    async with setup(tmp_path, free_ports) as there:
        leader = await there.leader()
        there.follow(leader)
        await there.registered(there.addresses(leader, there.address))
        async with there.client() as peer, connected(there.brokers[leader]) as other:
            assert (await peer.send("t", b"one")).code == ResponseCode.SUCCESS
            waiting = asyncio.ensure_future(peer.pull("t", 1, wait_ms=60_000))
            for member in [member for member in there.brokers if member != leader]:
                await stop(there.brokers, member)
            with pytest.raises(ConnectionClosed):
                await waiting
            assert not part_of(there.brokers[leader]).member.leads
            assert await read(other, "t", 1) == [b"one"], "clients that know it as a follower continue to read"
        with pytest.raises((ConnectError, ConnectionClosed)):
            async with there.client() as peer:
                await peer.send("t", b"two")


async def test_the_route_has_the_address_also_while_nobody_leads(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with setup(tmp_path, free_ports) as there:
        leader = await there.leader()
        there.follow(leader)
        await there.registered(there.addresses(leader, there.address))
        one, other = [member for member in there.brokers if member != leader]
        for member in (leader, one):
            registrar = assembly_of(there.brokers[member]).registrar
            assert registrar._task is not None
            registrar._task.cancel()  # its retries would register the broker again
            await registrar.close()
        await there.registered({0: there.address, int(other[1:]) + 1: there.brokers[other].address})


async def test_a_planned_transfer_hands_sends_on_until_the_address_follows(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with setup(tmp_path, free_ports) as there:
        leader = await there.leader()
        there.follow(leader)
        await there.registered(there.addresses(leader, there.address))
        to = next(member for member in there.brokers if member != leader)
        await become(lambda: part_of(there.brokers[to]).has_caught_up().holds)
        async with there.client() as peer:
            await part_of(there.brokers[leader]).transfer(to)
            await there.registered(there.addresses(to, there.brokers[to].address))
            for number in range(20):
                assert (await peer.send("t", b"%d" % number)).code == ResponseCode.SUCCESS, "the request is forwarded"
            acknowledged = 20
            there.follow(to)
            with pytest.raises(ConnectionClosed):  # noqa: PT012 - the loop ends with the connection
                while True:
                    assert (await peer.send("t", b"%d" % acknowledged)).code == ResponseCode.SUCCESS
                    acknowledged += 1
        await there.registered(there.addresses(to, there.address))
        async with there.client() as peer:
            assert (await peer.send("t", b"last")).code == ResponseCode.SUCCESS
            found = await read(peer, "t", acknowledged + 1)
        assert found == [*(b"%d" % number for number in range(acknowledged)), b"last"], "each message once"


async def test_connections_end_with_the_forwarding_when_the_address_never_follows(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with setup(tmp_path, free_ports) as there:
        leader = await there.leader()
        there.follow(leader)
        await there.registered(there.addresses(leader, there.address))
        to = next(member for member in there.brokers if member != leader)
        await become(lambda: part_of(there.brokers[to]).has_caught_up().holds)
        async with there.client() as peer:
            begun = asyncio.get_running_loop().time()
            await part_of(there.brokers[leader]).transfer(to)
            assert (await peer.send("t", b"one")).code == ResponseCode.SUCCESS
            end_forwarding(there.brokers[leader], begun)
            await peer.connection.wait_closed()
        await there.registered(there.addresses(to, there.brokers[to].address))


async def test_a_leader_whose_port_is_taken_is_found_by_its_own_address(
    tmp_path: Path, free_ports: Callable[[int], list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as opened:
        there = await opened.enter_async_context(setup(tmp_path, free_ports))
        leader = await there.leader()
        there.follow(leader)
        await there.registered(there.addresses(leader, there.address))
        to = next(member for member in there.brokers if member != leader)
        await become(lambda: part_of(there.brokers[to]).has_caught_up().holds)
        other = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", there.ports[to])
        opened.push_async_callback(other.wait_closed)
        opened.callback(other.close)
        there.follow(to)
        with caplog.at_level(logging.ERROR):
            await part_of(there.brokers[leader]).transfer(to)
            await become(lambda: f"clients cannot reach the leader through {there.address}" in caplog.text)
        await there.registered(there.addresses(to, there.brokers[to].address))


async def test_a_new_leader_goes_on_with_the_address_of_its_predecessor(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that requests the route before the Service has moved continues to use the address."""
    monkeypatch.setattr(leader_port, "PATIENCE_S", 600.0)
    async with setup(tmp_path, free_ports) as there:
        leader = await there.leader()
        there.follow(leader)
        await there.registered(there.addresses(leader, there.address))
        to = next(member for member in there.brokers if member != leader)
        registrar = assembly_of(there.brokers[to]).registrar
        registrar.register_again()
        await become(lambda: registrar.master_address == there.address)
        await become(lambda: part_of(there.brokers[to]).has_caught_up().holds)
        seen: list[str] = []
        register = registrar.register_leader

        def registering(address: str) -> None:
            seen.append(address)
            register(address)

        monkeypatch.setattr(registrar, "register_leader", registering)
        await part_of(there.brokers[leader]).transfer(to)
        await there.registered(there.addresses(to, there.address))
        there.follow(to)
        port = part_of(there.brokers[to])._leader_port
        assert port is not None
        await become(lambda: port.is_reached)
        assert seen == [there.address]


CHECKS = st.lists(st.tuples(st.floats(0.1, 2 * KEEP_S), st.booleans()), max_size=30)
"""Seconds since the check before, and whether it reached the member."""


@given(CHECKS)
def test_address_is_kept_for_a_time_after_the_last_check_that_reached_the_leader(
    checks: list[tuple[float, bool]],
) -> None:
    reach, now, reached = Reach(), 0.0, -2 * KEEP_S
    holds = False
    for after, here in checks:
        now += after
        before = reach.holds
        with patch.object(leader_port, "KEEP_S", KEEP_S):
            assert reach.answered(now, here=here) is (reach.holds is not before)
        reached = now if here else reached
        holds = here or (holds and now < reached + KEEP_S)
        assert reach.holds is holds
    reach.begin(0.0)
    assert not reach.holds


def test_short_interruption_changes_no_route() -> None:
    """Clients that read the route during it would be without the address at the next loss of the leader."""
    reach = Reach()
    with patch.object(leader_port, "KEEP_S", KEEP_S):
        assert reach.answered(0.0, here=True)
        changes = [reach.answered(now / 10, here=False) for now in range(1, int(KEEP_S * 10))]
        assert not any(changes)
        assert not reach.answered(KEEP_S, here=True)
        assert reach.answered(2 * KEEP_S, here=False), "an address that does not come back is given up"


@given(st.lists(st.booleans(), max_size=20), st.integers(1, 20))
def test_new_leader_keeps_the_address_until_its_patience_ends(answers: list[bool], until: int) -> None:
    reach = Reach()
    reach.begin(float(until))
    with patch.object(leader_port, "KEEP_S", KEEP_S):
        for index, here in enumerate(answers):
            reach.answered(float(index), here=here)
            assert reach.holds is (any(answers[: index + 1]) or index < until)
            if not reach.holds:
                break
