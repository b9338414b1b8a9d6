"""Three broker processes of one group: the leader is killed, a disk is wiped, and no acknowledged message is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Message, MessageQueue, Producer, ProducerConfig
from raptormq.protocol.codes import RequestCode
from tests.broker.replication.balancer import Balancer
from tests.faults.broker_process import RAPTORMQ, Client, serving
from tests.faults.dledger_processes import (
    BROKER,
    FAST_ELECTIONS,
    PATIENCE_S,
    PATIENT_HOSTS,
    DledgerProcesses,
    dledger_group,
)
from tests.faults.ledger import QUEUES, TOPIC, Ledger, assert_whole
from tests.ports import free_port

pytestmark = pytest.mark.timeout(300)

PATIENT = ProducerConfig(send_timeout=PATIENCE_S)


async def test_the_group_outlives_its_leaders_and_a_disk(tmp_path: Path) -> None:
    async with dledger_group(tmp_path) as processes:
        admin = AdminClient(client_config=processes.clients())
        producer = Producer("senders", name_servers=processes.name_server, config=ProducerConfig(retries=0))
        await admin.start()
        await producer.start()
        leader = await processes.leader(admin)
        await admin.create_topic(TOPIC, QUEUES, QUEUES)
        ledger = Ledger(producer)
        ledger.begin()
        await ledger.grow(100)

        for _ in range(2):  # the second time, the first member is needed for a majority
            processes.kill(leader)
            await ledger.grow(100)
            await processes.start(leader)
            leader = await processes.leader(admin, other_than=leader)
            await ledger.grow(100)

        wiped, other = [member for member in processes.ports if member != leader]
        processes.kill(wiped)
        processes.wipe(wiped)
        await processes.start(wiped)
        await ledger.grow(100)
        await processes.votes(admin, leader, wiped)
        processes.kill(other)  # now the wiped member is needed, with the whole log
        await ledger.grow(100)
        processes.kill(leader)
        await processes.start(other)
        assert await processes.leader(admin, other_than=leader) in (wiped, other)
        await ledger.grow(100)
        await ledger.end()
        await assert_whole(processes, ledger)
        await producer.close()
        await admin.close()


@pytest.mark.parametrize(
    ("peers", "own", "reason"),
    [
        ("n0-127.0.0.1:1;n1-127.0.0.1:2", "n0", "dLegerPeers has 2 members: expected an odd number"),
        ("n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3", "n3", "dLegerSelfId = 'n3' is not in dLegerPeers"),
        ("n0-127.0.0.1:1;n1-127.0.0.1:1;n2-127.0.0.1:3", "n0", "n1-127.0.0.1:1"),
    ],
)
async def test_a_member_list_that_cannot_be_is_refused(tmp_path: Path, peers: str, own: str, reason: str) -> None:
    conf = tmp_path / "broker.conf"
    root = tmp_path / "store"
    conf.write_text(
        f"enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers={peers}\ndLegerSelfId={own}\nstorePathRootDir={root}\n"
    )
    status, _, errors = await command("broker", "-c", str(conf))
    assert status == 2
    assert errors.strip().count("\n") == 0
    assert reason in errors
    assert not root.exists()


async def command(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        RAPTORMQ, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


async def test_the_command_line_shows_the_members_and_hands_leadership_over(tmp_path: Path) -> None:
    async with (
        dledger_group(tmp_path, hosts=PATIENT_HOSTS) as processes,
        AdminClient(client_config=processes.clients()) as admin,
    ):
        leader = await processes.leader(admin)
        to = next(member for member in processes.ports if member != leader)
        servers = ("-n", processes.name_server, "--timeout", str(PATIENCE_S))
        code, shown, _ = await command("cluster", "describe", BROKER, *servers)
        assert code == 0
        assert f"{leader} leads in term" in shown
        rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.strip()[:1] == "n"}
        assert sorted(rows) == sorted(processes.ports)
        assert (rows[leader][0], rows[leader][2:], rows[to][0]) == ("leader", ["0", "0", "up"], "follower")

        code, _, errors = await command("cluster", "transfer", BROKER, "--to", "n7", *servers)
        assert (code, errors.count("\n")) == (2, 1)
        assert "n7 is not a voter of the group" in errors
        code, said, errors = await command("cluster", "transfer", BROKER, "--to", to, *servers)
        assert code == 0, errors
        assert said.startswith(f"member {to} leads the group of broker {BROKER}, in term ")
        assert await processes.leader(admin, other_than=leader) == to
        code, shown, _ = await command("cluster", "describe", BROKER, "-o", "json", *servers)
        assert (code, json.loads(shown)["leader"]) == (0, to)
        code, said, errors = await command("cluster", "remove-member", BROKER, leader, "--yes", *servers)
        assert code == 0, errors
        assert said.startswith(f"the group of broker {BROKER} has the members ")
        assert leader not in said
        code, said, errors = await command("cluster", "add-member", BROKER, to, *servers)
        assert (code, errors.count("\n")) == (2, 1)
        assert f"{to} is a member of the group already" in errors
        code, _, errors = await command("cluster", "describe", "nowhere", *servers)
        assert (code, errors.count("\n")) == (4, 1)
        assert "no broker nowhere is registered" in errors


async def test_a_broker_without_copies_becomes_the_first_member_with_what_retention_has_left(tmp_path: Path) -> None:
    async with AsyncExitStack() as opened:
        processes = DledgerProcesses(tmp_path, opened)
        await processes.start_name_server()
        alone = tmp_path / "alone.conf"
        text = processes.conf("n0").read_text(encoding="utf-8")
        alone.write_text(text.replace("enableDLegerCommitLog=true", "enableDLegerCommitLog=false"), encoding="utf-8")
        admin = await opened.enter_async_context(AdminClient(client_config=processes.clients()))
        async with serving(
            ["broker", "-c", str(alone), "--log-level", "warning"], log=tmp_path / "alone.log"
        ) as broker:
            address = f"127.0.0.1:{processes.ports['n0']}"
            await admin.create_topic(TOPIC, 1, 1, brokers=[address])
            await admin.create_topic("batches", 1, 1, attributes={"queue.type": "BatchCQ"}, brokers=[address])
            async with Producer("senders", name_servers=processes.name_server, config=PATIENT) as producer:
                await producer.send(Message("batches", b"single"))
                await producer.send_batch([Message("batches", b"one"), Message("batches", b"two")])
                for number in range(30):
                    await producer.send(Message(TOPIC, b"%d" % number + os.urandom(1 << 20)))
                await producer.send(Message("batches", b"another single"))
                await producer.send_batch([Message("batches", b"three"), Message("batches", b"four")])
            for segment in (processes.root("n0") / "commitlog").iterdir():
                os.utime(segment, (1_000_000_000, 1_000_000_000))
            client = Client(processes.ports["n0"])
            while not (bounds := (await admin.topic_stats(TOPIC))[MessageQueue(TOPIC, BROKER, 0)]).min_offset:
                assert (await client.call(RequestCode.DELETE_EXPIRED_COMMITLOG, {})).code == 0
            await client.close()
            broker.terminate()
            await asyncio.to_thread(broker.wait)
        await asyncio.gather(*map(processes.start, processes.ports))
        assert await processes.leader(admin) == "n0"
        for member in ("n1", "n2"):
            await processes.votes(admin, "n0", member)
            while (await admin.replication(address)).members[int(member[1])].lag_bytes != 0:
                await asyncio.sleep(0.02)
        processes.kill("n0")
        assert await processes.leader(admin, other_than="n0") in ("n1", "n2")
        now = (await admin.topic_stats(TOPIC))[MessageQueue(TOPIC, BROKER, 0)]
        assert (now.min_offset, now.max_offset) == (bounds.min_offset, 30)
        batches = (await admin.topic_stats("batches"))[MessageQueue("batches", BROKER, 0)]
        assert (batches.min_offset, batches.max_offset) == (3, 6)
        async with Producer("senders", name_servers=processes.name_server, config=PATIENT) as producer:
            assert (await producer.send(Message("batches", b"last"))).queue_offset == 6


async def test_all_members_are_restarted_by_the_probes_and_producers_go_on(tmp_path: Path) -> None:
    """Restart the members like the operator: each follower, then the leader after a transfer."""
    async with (
        dledger_group(tmp_path, hosts=PATIENT_HOSTS) as processes,
        AdminClient(client_config=processes.clients()) as admin,
        Producer("senders", name_servers=processes.name_server, config=ProducerConfig(retries=0)) as producer,
    ):
        leader = await processes.leader(admin)
        await admin.create_topic(TOPIC, QUEUES, QUEUES)
        ledger = Ledger(producer, PATIENCE_S)
        ledger.begin()
        await ledger.grow(100)
        order = [*(member for member in processes.ports if member != leader), leader]
        for member in order:
            if member == leader:
                before = f"127.0.0.1:{processes.ports[leader]}"
                await admin.transfer_leadership(before)
                await ledger.grow(100)
            await processes.probed(member, "/replication/restart-allowed")
            await processes.stop(member)
            await processes.start(member)
            await processes.probed(member, "/replication/caught-up")
            await processes.probed(member, "/readyz")
            await ledger.grow(100)
        assert await processes.leader(admin, other_than=leader) in order[:2]
        await ledger.end()
        cut = [error for error in ledger.refused if "ended before the response" in error]
        assert ledger.refused == cut, "no send is refused; only sends in flight to a stopped process fail"
        assert len(cut) <= len(order) * QUEUES
        await assert_whole(processes, ledger)


async def test_frozen_leader_behind_the_leader_address_is_left_at_the_first_timeout_of_a_send(tmp_path: Path) -> None:
    """The address does not change, and the connection of a stopped process stays open. Only a new connection to the
    same address reaches the next leader.
    """
    balancer = Balancer(free_port())
    await balancer.start()
    address = f"127.0.0.1:{balancer.port}"
    async with (
        dledger_group(tmp_path, FAST_ELECTIONS, leader_address=address) as processes,
        AdminClient(client_config=processes.clients()) as admin,
        # The limit of requests is also the silence after which a connection is dropped.
        Producer("senders", config=ProducerConfig(send_timeout=12.0), client_config=processes.clients()) as producer,
    ):
        leader = await processes.leads(admin)
        balancer.target = processes.leader_ports[leader]
        while (await admin.cluster_info()).brokers[BROKER].broker_addrs.get(0) != address:
            await asyncio.sleep(0.02)
        await admin.create_topic(TOPIC, 1, 1)
        await producer.send(Message(TOPIC, b"before"), timeout=PATIENCE_S)
        frozen = processes.running.pop(leader)
        frozen.send_signal(signal.SIGSTOP)
        try:
            balancer.target = processes.leader_ports[await processes.leads(admin, other_than=leader)]
            await producer.send(Message(TOPIC, b"after"))
        finally:
            frozen.send_signal(signal.SIGCONT)
            await balancer.stop()
