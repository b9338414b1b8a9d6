"""A Dledger group of three member processes for measurements, with an empty folder and the topic of the load."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.batch.own_topic import TOPIC
from raptormq.client import AdminClient
from tests.faults.dledger_processes import FAST_ELECTIONS, DledgerProcesses, dledger_group

QUEUES = 16
_SETTINGS = "mappedFileSizeCommitLog=1G\nflushDiskType=ASYNC_FLUSH\n"


@asynccontextmanager
async def bench_group(
    queues: int = QUEUES, queue_type: str = "BatchCQ", settings: str = _SETTINGS
) -> AsyncIterator[tuple[DledgerProcesses, AdminClient]]:
    """Run the group below the temporary directory. At the end the group is killed and its folder deleted."""
    folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    try:
        async with AsyncExitStack() as opened:
            group = await opened.enter_async_context(dledger_group(folder, f"{FAST_ELECTIONS}{settings}"))
            admin = await opened.enter_async_context(AdminClient(name_servers=group.name_server))
            await group.leader(admin)
            await admin.create_topic(TOPIC, queues, queues, attributes={"queue.type": queue_type})
            yield group, admin
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)
