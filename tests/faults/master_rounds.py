"""Rounds of faults against masters and slaves of real processes, with clients that write.

``promotion``: the master is killed or frozen, the slave is promoted, and the old master comes back: first as the master
that it was, then as a slave with its old store, then as a slave with an empty store. ``interleaved``: each of three
machines has a broker of its own pair and one of the pair before it, like the interleaved layout.

Messages with the status SEND_OK of a SYNC_MASTER are on the slave, too. They must be stored once and in order at the
end, and the logs of a master and its slave must be byte-identical.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Protocol

from raptormq.client import AdminClient, MessageQueue, Producer, ProducerConfig, PullConsumer
from tests.faults.ha_processes import LOOK_S, HaProcesses, ha_processes
from tests.faults.ledger import QUEUES, TOPIC, Ledger, read_queue
from tests.faults.master_slave_pair import MasterSlavePair
from tests.faults.rounds import Result, Round, RunningRound, chosen

_AFTER = 50
"""Number of acknowledgements in each queue by which a ledger grows before and after a fault."""
_LONGEST_ROUND_S = 300.0
_SETTINGS = {"mappedFileSizeCommitLog": "1M"}
_MACHINES = ("a", "b", "c")


class Setup(Protocol):
    """Pairs of brokers, and the faults that they are exposed to."""

    pairs: list[MasterSlavePair]

    @property
    def faults(self) -> tuple[Callable[[Ledger], Awaitable[None]], ...]:
        """Functions that apply a fault and end it, while a ledger grows."""

    async def restore(self) -> None:
        """Repair what the last fault has left, while no message is sent."""


async def run(
    folder: Path, seed: int, rounds: int, kind: str, report: Callable[[Round], None] = lambda _: None
) -> Result:
    """Run rounds of a kind and return the results. The seed selects faults and brokers.

    Raises:
        TimeoutError: the brokers do not acknowledge within some minutes after the end of a fault.
    """
    result = Result(seed)
    async with (
        ha_processes(folder, _SETTINGS) as processes,
        AdminClient(name_servers=processes.name_server) as admin,
        Producer("writers", name_servers=processes.name_server, config=ProducerConfig(retries=0)) as producer,
        PullConsumer(name_servers=processes.name_server) as consumer,
    ):
        setup: Setup = SETUPS[kind](processes, admin, Random(seed))
        for pair in setup.pairs:
            await pair.start(pair.master)
            await pair.start(pair.slave)
        await admin.create_topic(TOPIC, QUEUES, QUEUES)
        names = [pair.broker_name for pair in setup.pairs]
        queues = [MessageQueue(TOPIC, name, number) for name in names for number in range(QUEUES)]
        ledger = Ledger(producer, queues=queues)
        for fault in chosen(seed, rounds, setup.faults):
            async with asyncio.timeout(_LONGEST_ROUND_S):
                result.rounds.append(await _round(setup, ledger, fault))
            report(result.rounds[-1])
        async with asyncio.timeout(_LONGEST_ROUND_S):
            result.compare(
                ledger.acknowledged, {index: await read_queue(consumer, queue) for index, queue in enumerate(queues)}
            )
            result.found["different logs"] = [each for pair in setup.pairs for each in await pair.different_logs()]
    return result


async def _round(setup: Setup, ledger: Ledger, fault: Callable[[Ledger], Awaitable[None]]) -> Round:
    for pair in setup.pairs:
        await pair.caught_up()
    ledger.begin()
    await ledger.grow_everywhere(_AFTER)
    running = RunningRound(ledger)
    await fault(ledger)
    await ledger.grow_everywhere(_AFTER)
    ended = running.end(fault.__name__.replace("_", " "))
    await ledger.end()
    await setup.restore()
    return ended


class Promotions:
    """One master and one slave, which change roles in each round."""

    def __init__(self, processes: HaProcesses, admin: AdminClient, _random: Random) -> None:
        self._processes = processes
        self._pair = MasterSlavePair(processes, admin, "broker-a")
        self.pairs = [self._pair]

    @property
    def faults(self) -> tuple[Callable[[Ledger], Awaitable[None]], ...]:
        return (self.master_frozen_and_continued, self.master_killed_and_started_as_a_master)

    async def master_frozen_and_continued(self, ledger: Ledger) -> None:
        await self._promoted(ledger, freezes=True)

    async def master_killed_and_started_as_a_master(self, ledger: Ledger) -> None:
        await self._promoted(ledger, freezes=False)

    async def _promoted(self, ledger: Ledger, *, freezes: bool) -> None:
        """Lose the master, promote the slave, and let the old master come back as the master that it was."""
        pair, old = self._pair, self._pair.master
        pair.lose(old, freezes=freezes)
        await pair.promote_slave()
        await ledger.grow_everywhere(_AFTER)
        if freezes:
            await pair.bring_back(old)
        else:
            await pair.start_as(old, is_master=True)
        await pair.reports(old)
        await ledger.grow_everywhere(_AFTER)
        await pair.is_listed()

    async def restore(self) -> None:
        """Start the old master as a slave with its old store, then with an empty one, and make both brokers safe."""
        pair = self._pair
        await self._processes.stop(pair.slave)
        await pair.start(pair.slave)
        await pair.follows_or_reports(pair.slave)
        await self._processes.stop(pair.slave)
        await pair.replace_slave()
        await pair.acknowledge_by_slave()


class Interleaved:
    """Three machines: each has a broker of its own pair, at first the master, and one of the pair before it."""

    def __init__(self, processes: HaProcesses, admin: AdminClient, random: Random) -> None:
        self._processes = processes
        self._random = random
        self.pairs = [
            MasterSlavePair(processes, admin, f"broker-{machine}", f"{machine}-one", f"{after}-two")
            for machine, after in zip(_MACHINES, (*_MACHINES[1:], _MACHINES[0]), strict=True)
        ]
        self._promoted: list[MasterSlavePair] = []

    @property
    def faults(self) -> tuple[Callable[[Ledger], Awaitable[None]], ...]:
        return (
            self.machine_killed,
            self.machine_frozen,
            self.machine_lost_with_its_disks,
            self.master_killed,
            self.master_frozen,
            self.slave_killed,
            self.slave_frozen,
        )

    def _on_machine(self) -> list[tuple[MasterSlavePair, str]]:
        """Choose a machine, and return its brokers with their pairs."""
        machine = self._random.choice(_MACHINES)
        return [
            (pair, name)
            for pair in self.pairs
            for name in (pair.master, pair.slave)
            if name.partition("-")[0] == machine
        ]

    async def machine_killed(self, ledger: Ledger) -> None:
        await self._lose(ledger, self._on_machine(), freezes=False)

    async def machine_frozen(self, ledger: Ledger) -> None:
        await self._lose(ledger, self._on_machine(), freezes=True)

    async def master_killed(self, ledger: Ledger) -> None:
        pair = self._random.choice(self.pairs)
        await self._lose(ledger, [(pair, pair.master)], freezes=False)

    async def master_frozen(self, ledger: Ledger) -> None:
        pair = self._random.choice(self.pairs)
        await self._lose(ledger, [(pair, pair.master)], freezes=True)

    async def slave_killed(self, ledger: Ledger) -> None:
        pair = self._random.choice(self.pairs)
        await self._lose(ledger, [(pair, pair.slave)], freezes=False)

    async def slave_frozen(self, ledger: Ledger) -> None:
        pair = self._random.choice(self.pairs)
        await self._lose(ledger, [(pair, pair.slave)], freezes=True)

    async def _lose(self, ledger: Ledger, brokers: list[tuple[MasterSlavePair, str]], *, freezes: bool) -> None:
        for pair, name in brokers:
            pair.lose(name, freezes=freezes)
        clock = asyncio.get_running_loop().time
        until = clock() + self._random.uniform(2.0, 6.0)
        while clock() < until:  # the duration of the fault
            await asyncio.sleep(LOOK_S)
        await ledger.grow(_AFTER)  # the masters of the other machines go on
        for pair, name in brokers:
            await pair.bring_back(name)

    async def machine_lost_with_its_disks(self, ledger: Ledger) -> None:
        """Kill a machine, promote the slaves of its masters, and let its brokers come back as slaves, empty."""
        brokers = self._on_machine()
        for pair, name in brokers:
            pair.lose(name, freezes=False)
        for pair, name in brokers:
            if name == pair.master:
                await pair.promote_slave()
                self._promoted.append(pair)
        await ledger.grow(_AFTER)
        for pair, name in brokers:
            self._processes.wipe(name)
            await pair.start(name)

    async def restore(self) -> None:
        """Let promoted masters wait for their slaves again."""
        for pair in self.pairs:
            await pair.caught_up()
        while self._promoted:
            await self._promoted.pop().acknowledge_by_slave()


SETUPS: dict[str, Callable[[HaProcesses, AdminClient, Random], Setup]] = {
    "promotion": Promotions,
    "interleaved": Interleaved,
}
"""Setups by the name of the kind of rounds."""
