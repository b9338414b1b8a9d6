"""Members of a real group whose disks return EIO, as described in "Disks that fail" of docs/guides/replication.md."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Producer, ProducerConfig
from tests.faults.dledger_processes import FAST_ELECTIONS, dledger_group
from tests.faults.failing_disk import Failing, FailingDisks
from tests.faults.ledger import QUEUES, TOPIC, Ledger, assert_whole

pytestmark = pytest.mark.timeout(120)


async def assert_no_majority(ledger: Ledger) -> None:
    """Check that messages are refused after those in flight are answered, and that none is acknowledged."""
    for _ in range(2):
        acknowledged, wanted = ledger.count, len(ledger.refused) + QUEUES
        while len(ledger.refused) < wanted:
            await asyncio.sleep(0.02)
    assert ledger.count == acknowledged


@pytest.mark.parametrize(
    ("flush", "failing", "leads"),
    [
        ("ASYNC_FLUSH", Failing.WRITES, True),
        ("ASYNC_FLUSH", Failing.SYNCS, False),
        ("SYNC_FLUSH", Failing.SYNCS, True),
    ],
)
async def test_it_takes_no_part_until_it_is_restarted(
    tmp_path: Path, flush: str, failing: Failing, leads: bool
) -> None:
    disks = FailingDisks(tmp_path)

    def environment(member: str) -> dict[str, str]:
        return disks.environment(member, tmp_path / f"node-{member}")

    async with dledger_group(
        tmp_path, f"{FAST_ELECTIONS}flushDiskType={flush}\n", environment=environment
    ) as processes:
        servers = processes.name_server
        producer = Producer("senders", name_servers=servers, config=ProducerConfig(retries=0))
        async with AdminClient(name_servers=servers) as admin, producer:
            leader = await processes.leader(admin)
            for member in processes.ports:
                await processes.probed(member, "/replication/caught-up")
            await admin.create_topic(TOPIC, QUEUES, QUEUES)
            ledger = Ledger(producer)
            ledger.begin()
            await ledger.grow(100)

            failed = leader if leads else next(member for member in processes.ports if member != leader)
            disks.set(failed, failing)
            while (await processes.metric(failed, "replication_running")) != 0:
                await asyncio.sleep(0.02)
            leader = await processes.leader(admin, other_than=failed)
            await ledger.grow(100)
            assert (await processes.probe(failed, "/healthz"))[0] == 503

            third = next(member for member in processes.ports if member not in (leader, failed))
            processes.kill(third)  # the leader and the failed member are not a majority
            disks.set(failed, Failing.NOTHING)  # has no effect, because the disk may have lost data meanwhile
            await assert_no_majority(ledger)
            processes.kill(failed)
            await processes.start(failed)
            await ledger.grow(100)
            await processes.start(third)
            await ledger.end()
            await assert_whole(processes, ledger)
