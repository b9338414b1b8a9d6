"""Workloads and systems of each plan, the most important first."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from bench.batch import omb
from bench.batch.systems import System
from bench.batch.workload import Client, Timing, Workload

US, ROCKETMQ, KAFKA = System.RAPTORMQ, System.ROCKETMQ, System.KAFKA
ALL = (US, ROCKETMQ, KAFKA)

STEADY = Timing(warm_up_seconds=25, seconds=10)
OWN_TIMING = Timing(warm_up_seconds=5, seconds=10)
QUICK = Timing(warm_up_seconds=2, seconds=3, max_messages=500_000)

FULL_SPEED = Workload("full-speed", "as fast as it goes, 16 queues")
FIXED = Workload("fixed-rate", "20,000 msg/s, 16 queues", rate=20_000, timing=STEADY)
PUBLISH = replace(FULL_SPEED, name="publish-only", title="publish only, 16 queues", consumers=0)
SINGLE = replace(
    FULL_SPEED,
    name="no-batching",
    title="without batching (SimpleCQ), 16 queues",
    auto_batch=False,
    queue_type="SimpleCQ",
    timing=STEADY,
)
SINGLE_PUBLISH = replace(SINGLE, name="no-batching-publish-only", title="without batching, publish only", consumers=0)
SIMPLECQ_PUBLISH = replace(
    PUBLISH, name="simplecq-publish-only", title="AutoBatch on SimpleCQ, publish only", queue_type="SimpleCQ"
)
QUEUES_1000 = replace(FULL_SPEED, name="queues-1000", title="as fast as it goes, 1,000 queues", queues=1_000)
QUEUES_10000 = replace(FULL_SPEED, name="queues-10000", title="as fast as it goes, 10,000 queues", queues=10_000)
BYTES = tuple(
    replace(
        FULL_SPEED,
        name=f"batch-{kib}k",
        title=f"as fast as it goes, batches of {kib} KiB",
        batch_bytes=kib << 10,
        timing=STEADY,
    )
    for kib in (8, 128)
)
DELAYS = tuple(
    replace(FIXED, name=f"delay-{delay}", title=f"20,000 msg/s, delay {delay} ms", delay_ms=delay) for delay in (1, 50)
)

OWN = replace(FULL_SPEED, client=Client.OWN, timing=OWN_TIMING)
OWN_BATCHCQ = replace(OWN, name="own-batchcq", title="our client: BatchCQ, AutoBatch")
OWN_PUBLISH = replace(OWN, name="own-publish", title="our client: BatchCQ, AutoBatch, publish only", consumers=0)
OWN_SIMPLECQ_PUBLISH = replace(
    OWN_PUBLISH, name="own-publish-on", title="our client: SimpleCQ, AutoBatch on, publish only", queue_type="SimpleCQ"
)
OWN_SINGLE_PUBLISH = replace(
    OWN_SIMPLECQ_PUBLISH,
    name="own-publish-off",
    title="our client: SimpleCQ, AutoBatch off, publish only",
    auto_batch=False,
)
OWN_10000 = replace(
    OWN,
    name="own-queues-10000",
    title="our client: BatchCQ, AutoBatch, 10,000 queues",
    queues=10_000,
    timing=STEADY,
)
OWN_10000_PUBLISH = replace(
    OWN_10000,
    name="own-queues-10000-publish-only",
    title="our client: BatchCQ, AutoBatch, publish only, 10,000 queues",
    consumers=0,
)
OWN_BYTES = tuple(
    replace(OWN, name=f"own-batch-{kib}k", title=f"our client: BatchCQ, batches of {kib} KiB", batch_bytes=kib << 10)
    for kib in (8, 128)
)
OWN_FIXED = tuple(
    replace(OWN, name=f"own-delay-{ms}", title=f"our client: 20,000 msg/s, delay {ms} ms", rate=20_000, delay_ms=ms)
    for ms in (1, 10, 50)
)

FIRST_RUN_OFF, FIRST_RUN_ON = (
    replace(
        FULL_SPEED,
        name=f"first-run-{batch}",
        title=f"SimpleCQ, 100 queues, 4 producers, 4 consumers, AutoBatch {batch}",
        queues=100,
        producers=4,
        consumers=4,
        auto_batch=batch == "on",
        queue_type="SimpleCQ",
    )
    for batch in ("off", "on")
)
"""The first published benchmark of AutoBatch."""
OWN_FIRST_RUN_OFF, OWN_FIRST_RUN_ON = (
    replace(run, name=f"own-{run.name}", title=f"our client: {run.title}", client=Client.OWN, timing=OWN_TIMING)
    for run in (FIRST_RUN_OFF, FIRST_RUN_ON)
)

_COMPARED: dict[Workload, tuple[System, ...]] = {
    FULL_SPEED: ALL,
    PUBLISH: ALL,
    QUEUES_1000: ALL,
    FIXED: ALL,
    SINGLE: ALL,
    SINGLE_PUBLISH: (US, ROCKETMQ),
}
"""Workloads used by most goals."""
PLAN: dict[Workload, tuple[System, ...]] = {
    **_COMPARED,
    SIMPLECQ_PUBLISH: (US, ROCKETMQ),
    QUEUES_10000: ALL,
    OWN_BATCHCQ: (US,),
    OWN_PUBLISH: (US,),
    OWN_SIMPLECQ_PUBLISH: (US,),
    OWN_SINGLE_PUBLISH: (US,),
    **dict.fromkeys((FIRST_RUN_OFF, FIRST_RUN_ON), (US, ROCKETMQ)),
    **dict.fromkeys((OWN_FIRST_RUN_OFF, OWN_FIRST_RUN_ON), (US,)),
    **dict.fromkeys(BYTES, ALL),
    **dict.fromkeys(DELAYS, ALL),
    OWN_10000: (US,),
    OWN_10000_PUBLISH: (US,),
    **dict.fromkeys((*OWN_BYTES, *OWN_FIXED), (US,)),
}
OMB_PLAN: dict[Workload, tuple[System, ...]] = {
    replace(workload, timing=omb.TIMING): on
    for workload, on in (_COMPARED | dict.fromkeys((QUEUES_10000, FIRST_RUN_OFF, FIRST_RUN_ON), (US, ROCKETMQ))).items()
}
"""Workloads for the OpenMessaging Benchmark itself; without Kafka with 10,000 queues."""
QUICK_PLAN: dict[Workload, tuple[System, ...]] = {
    FULL_SPEED: ALL,
    FIXED: (US,),
    SINGLE: (US, ROCKETMQ),
    OWN_BATCHCQ: (US,),
    OWN_FIRST_RUN_ON: (US,),
}


@dataclass(frozen=True)
class Step:
    """One planned run."""

    workload: Workload
    system: System
    round: int

    @property
    def title(self) -> str:
        return f"{self.workload.title}; {self.system.value}"


def steps(
    plan: dict[Workload, tuple[System, ...]],
    rounds: int,
    names: Collection[str] = (),
    systems: Collection[System] = (),
) -> Iterator[Step]:
    """Return all runs by round; within a round, a workload runs on all systems in succession, in changing order.

    `names` and `systems` select runs (empty: all). A name that ends with `*` is a prefix.
    """
    for number in range(1, rounds + 1):
        for workload, on in plan.items():
            if names and not any(_is_chosen(workload.name, name) for name in names):
                continue
            for system in on if number % 2 else reversed(on):
                if not systems or system in systems:
                    yield Step(workload, system, number)


def _is_chosen(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
