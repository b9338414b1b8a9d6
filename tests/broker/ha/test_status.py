"""The status of a master and a slave that is requested before and after a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raptormq.broker.broker import Broker
from raptormq.protocol.codes import RequestCode
from tests.broker.ha.pair import LOOK_S, become, end_of, pair, slave_of
from tests.broker.harness import connected


async def page(broker: Broker, path: str) -> tuple[int, dict[str, Any]]:
    status, body = await broker._pages.by_path()[path]()
    return status, json.loads(body)


async def until(broker: Broker, path: str, status: int) -> dict[str, Any]:
    while (answered := await page(broker, path))[0] != status:
        await asyncio.sleep(LOOK_S)
    return answered[1]


async def test_both_tell_who_they_are_and_whether_they_may_go(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master()
        assert (await page(master, "/replication"))[1]["mode"] == "none", "no slave has connected yet"
        assert (await page(master, "/replication/restart-allowed"))[0] == 200
        async with connected(master) as peer:
            assert (await peer.send("t", b"one")).code == 0
        slave = await brokers.slave()
        await until(slave, "/replication/caught-up", 200)
        await become(lambda: end_of(slave) == end_of(master))
        await until(master, "/replication/restart-allowed", 200)
        assert (await page(slave, "/replication/restart-allowed"))[0] == 200
        while len((shown := (await page(master, "/replication"))[1])["members"]) != 1:
            await asyncio.sleep(LOOK_S)
        assert (shown["mode"], shown["role"], shown["members"][0]["role"]) == ("masterSlave", "master", "slave")
        _, shown = await page(slave, "/replication")
        assert (shown["mode"], shown["role"], shown["leader"]) == ("masterSlave", "slave", master.address)
        (own,) = shown["members"]
        assert (own["id"], own["lagBytes"], own["answering"]) == (slave.address, 0, True)
        for broker in (master, slave):
            asked = {"restarting": broker.address}
            async with connected(broker) as peer:
                described = json.loads((await peer.call(RequestCode.DESCRIBE_REPLICATION, asked)).body)
            assert described["mode"] == "masterSlave"
            assert described["restart"]["allowed"] is True


async def test_what_is_not_known_is_a_no(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        slave = await brokers.slave()
        assert slave_of(slave).facts()["haConnected"] == "false"
        status, answered = await page(slave, "/replication/caught-up")
        assert (status, answered["caughtUp"]) == (503, False)
        (own,) = (await page(slave, "/replication"))[1]["members"]
        assert own["answering"] is False
        master = await brokers.master("SYNC_MASTER", {"haHousekeepingInterval": "2000"})
        assert (await page(master, "/replication"))[1]["mode"] == "masterSlave"
        await until(master, "/replication/restart-allowed", 200)
        await slave.stop()
        brokers.opened.pop_all()
        answered = await until(master, "/replication/restart-allowed", 503)
        assert "0 slaves are in sync" in answered["reason"]
        await master.stop()
