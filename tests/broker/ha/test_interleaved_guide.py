"""The six settings files of docs/guides/master-slave.md for three machines with a master and a slave each."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from raptormq.broker.broker import Broker
from raptormq.config_file import parse_properties
from tests.broker.ha.pair import FAST, become, end_of, name_server, slave_of
from tests.broker.harness import connected, running

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "master-slave.md"
_SECTION = re.compile(r"## Interleaved on three machines\n.*?```properties\n(.*?)```", re.DOTALL)
COMMON = {"brokerClusterName": "DefaultCluster"} | FAST


def documented() -> list[dict[str, str]]:
    """Return the files of the guide by machine: two columns of each block."""
    found = _SECTION.search(GUIDE.read_text(encoding="utf-8"))
    assert found is not None
    files = []
    for block in found[1].strip().split("\n\n"):
        lines = block.splitlines()
        column = lines[0].index("#", 1)
        files += [parse_properties("\n".join(line[:column] for line in lines))]
        files += [parse_properties("\n".join(line[column:] for line in lines))]
    return files


def test_each_machine_has_a_master_and_the_slave_of_another() -> None:
    files = documented()
    assert len(files) == 6
    machines: dict[str, list[dict[str, str]]] = {}
    for each in files:
        machines.setdefault(each["brokerIP1"], []).append(each)
    for both in machines.values():
        assert [each["brokerRole"] for each in both] == ["SYNC_MASTER", "SLAVE"]
        assert both[0]["brokerName"] != both[1]["brokerName"]
        taken = [each[key] for each in both for key in ("listenPort", "haListenPort", "metricsPort") if key in each]
        assert len(taken) == len(set(taken)) == 5, "a broker whose port is in use does not start"
    serving = [each for each in files if "haListenPort" in each]
    masters = {f"{each['brokerIP1']}:{each['haListenPort']}": each["brokerName"] for each in serving}
    assert all(masters[each["haMasterAddress"]] == each["brokerName"] for each in files if "haMasterAddress" in each)


def _follows(slave: Broker) -> bool:
    return slave_of(slave).facts()["haConnected"] == "true"


async def test_they_start_and_each_slave_follows_its_master(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """All brokers run on one machine, so addresses and ports are mapped one to one."""
    files = documented()
    numbers = iter(free_ports(9))
    ports = {
        (each["brokerIP1"], each[key]): str(next(numbers))
        for each in files
        for key in ("listenPort", "haListenPort")
        if key in each
    }
    async with name_server(tmp_path) as address, AsyncExitStack() as opened:
        brokers = []
        for each in files:
            settings = dict(each)
            for key in {"listenPort", "haListenPort"} & each.keys():
                settings[key] = ports[each["brokerIP1"], each[key]]
            if "haMasterAddress" in each:
                host, _, port = each["haMasterAddress"].partition(":")
                settings["haMasterAddress"] = f"127.0.0.1:{ports[host, port]}"
            del settings["brokerIP1"], settings["metricsPort"], settings["storePathRootDir"]
            folder = tmp_path / each["storePathRootDir"].rpartition("/")[2]
            pairs = COMMON | settings | {"namesrvAddr": address}
            brokers.append((each, await opened.enter_async_context(running(folder, pairs, None))))
        masters = {each["brokerName"]: broker for each, broker in brokers if each["brokerRole"] == "SYNC_MASTER"}
        slaves = {each["brokerName"]: broker for each, broker in brokers if each["brokerRole"] == "SLAVE"}
        assert masters.keys() == slaves.keys() == {"broker-a", "broker-b", "broker-c"}
        for slave in slaves.values():
            await become(partial(_follows, slave))
        for name, master in masters.items():
            async with connected(master) as peer:
                assert (await peer.send("t", b"one")).code == 0, "a slave has the message, too"
            assert end_of(slaves[name]) == end_of(master) > 0
