"""Command `python -m e2e operator-scale`: measurements of an operator with many clusters and Topics, one line each.

    silent    a cluster of 1,500 Topics with an unresponsive broker, and a healthy one (--minutes, default 2)
    restart   restart of the operator with 20 clusters and 3,040 Topics; again with 500 foreign ConfigMaps of 500 kB
    topics    creation of 1,000 Topics at the same time
    idle      31 clusters, 1,500 Topics and 30 clusters with rejected specs, without changes

The operator is a process on a real kube-apiserver and etcd. Name servers and brokers are simulated in a separate
process, so that only the operator is measured. The target is in parentheses after each value.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.api.control_plane import ControlPlane
from tests.api.operator_process import OperatorProcess, until
from tests.api.peers import broker
from tests.api.resources import make, peers, post, reasons, topics
from tests.api.stand_ins import settling

LONG_S = 300.0


def say(what: str, figure: str, goal: str) -> None:
    """Print one line."""
    sys.stdout.write(f"{what:70} {figure:>24}   [{goal}]\n")
    sys.stdout.flush()


def metric(operator: OperatorProcess, name: str) -> float:
    """Return the sum of all samples of a metric."""
    found = re.findall(rf"^{name}(?:{{[^}}]*}})? ([0-9.e+]+)$", operator.ask("/metrics")[1], re.MULTILINE)
    return sum(map(float, found))


@contextmanager
def environment(*clusters: tuple[str, str, int, int]) -> Iterator[tuple[Path, ControlPlane]]:
    """Context: a control plane with these clusters and their simulated servers, without an operator."""
    with tempfile.TemporaryDirectory(prefix="operator-scale-") as name:
        folder = Path(name)
        with ControlPlane(folder) as plane, peers(folder, *clusters), settling(plane):
            plane.define()
            for namespace in sorted({cluster[0] for cluster in clusters}):
                plane.namespace(namespace)
            for namespace, cluster, _, groups in clusters:
                make(plane, namespace, "BrokerCluster", cluster, groups=groups)
            yield folder, plane


def all_ready(plane: ControlPlane, namespace: str, plural: str, count: int) -> bool:
    found = reasons(plane, namespace, plural)
    return len(found) == count and set(found.values()) == {"Ready"}


async def silent(minutes: float) -> None:
    clusters = [("sick", "demo", 2, 2), *((f"well-{number}", "demo", 2, 1) for number in range(3))]
    with environment(*clusters) as (folder, plane), OperatorProcess(folder, plane.kubeconfig()) as operator:
        post(plane, topics("sick", "demo", (f"t{number}" for number in range(1500))))
        for namespace, *_ in clusters:
            await until("ready", lambda where=namespace: all_ready(plane, where, "brokerclusters", 1), LONG_S)  # type: ignore[misc]
        await until("all Topics are ready", lambda: all_ready(plane, "sick", "topics", 1500), LONG_S, every=1.0)
        (folder / f"silent-{broker('sick', 'demo', 1)}").touch()
        took = await until("it says so", lambda: not all_ready(plane, "sick", "brokerclusters", 1), LONG_S)
        say("a silent broker: the cluster says Ready=False after", f"{took:.1f} s", "< 10 s")
        worst, alive, ends = 0.0, 0, time.monotonic() + 60 * minutes
        number = 0
        while time.monotonic() < ends:
            namespace = f"well-{number % 3}"
            make(plane, namespace, "Topic", f"t{number}")
            name = f"t{number}"
            took = await until("made", lambda where=namespace, n=name: reasons(plane, where)[n] == "Ready", LONG_S)  # type: ignore[misc]
            worst = max(worst, took)
            alive += operator.ask("/healthz")[0] != 200
            number += 1
            await asyncio.sleep(5.0)
        say(f"meanwhile, of {number} new Topics elsewhere, the slowest is Ready after", f"{worst:.2f} s", "< 2 s")
        text = f"{alive} in {minutes:g} min, {'runs' if operator.process.poll() is None else 'ended'}"
        say("failed liveness probes, and the process", text, "0 in 15 min, runs")


async def begun_anew(folder: Path, plane: ControlPlane, name: str, objects: int) -> tuple[float, float, float, float]:
    """Start an operator. Return the times of its first reconciliation and of completion in seconds since it leads, and
    its CPU seconds and memory in MB after completion."""
    with OperatorProcess(folder, plane.kubeconfig(), name) as operator:
        await until("it leads", lambda: operator.leads, LONG_S)
        first = await until("a reconciliation", lambda: metric(operator, "raptormq_operator_reconciliations_total") > 0)
        begun = time.monotonic() - first

        def settled() -> bool:
            text = operator.ask("/metrics")[1]
            ready = len(re.findall(r"^raptormq_operator_resource_ready{", text, re.MULTILINE))
            return ready == objects and "raptormq_operator_queue_depth 0.0" in text.splitlines()

        await until("settled", settled, LONG_S)
        took, cpu = time.monotonic() - begun, operator.cpu_seconds()
        await asyncio.sleep(10.0)
        memory = operator.resident_mb()
        operator.terminate()
        return first, took, cpu, memory


async def restart(_minutes: float) -> None:
    clusters = [(f"shop-{number}", "demo", 2, 1) for number in range(20)]
    with environment(*clusters) as (folder, plane):
        with OperatorProcess(folder, plane.kubeconfig()) as operator:
            for namespace, *_ in clusters:
                post(plane, topics(namespace, "demo", (f"t{number}" for number in range(152))))
            for namespace, *_ in clusters:
                await until("ready", lambda where=namespace: all_ready(plane, where, "topics", 152), LONG_S)  # type: ignore[misc]
                await until("ready", lambda where=namespace: all_ready(plane, where, "brokerclusters", 1), LONG_S)  # type: ignore[misc]
            operator.terminate()
        first, settled, cpu, memory = await begun_anew(folder, plane, "second", 3060)
        say("begun anew with 20 clusters, 3,040 Topics: first reconciliation after", f"{first:.1f} s", "< 3 s")
        say("settled after", f"{settled:.1f} s", "< 15 s")
        say("CPU until then, with the interpreter's start", f"{cpu:.1f} s", "< 12 s")
        say("resident", f"{memory:.0f} MB", "< 160 MB")
        plane.namespace("foreign")
        data = {"text": "x" * 500_000}
        path = "/api/v1/namespaces/foreign/configmaps"
        post(plane, ((path, {"metadata": {"name": f"big-{number}"}, "data": data}) for number in range(500)))
        *_, with_foreign = await begun_anew(folder, plane, "third", 3060)
        say("resident with 500 foreign ConfigMaps of 500 kB", f"{with_foreign:.0f} MB", "no difference")


def writes(plane: ControlPlane) -> float:
    """Return the number of write requests for Topics and Events."""
    text = str(plane.request("GET", "/metrics"))
    rows = re.findall(r"^apiserver_request_total{(.*)} ([0-9.e+]+)$", text, re.MULTILINE)
    return sum(
        float(count)
        for labels, count in rows
        if re.search(r'resource="(topics|events)"', labels) and re.search(r'verb="(APPLY|PATCH|POST|PUT)"', labels)
    )


async def made_at_once(_minutes: float) -> None:
    with (
        environment(("shop", "demo", 2, 1)) as (folder, plane),
        OperatorProcess(folder, plane.kubeconfig()),
    ):
        await until("ready", lambda: all_ready(plane, "shop", "brokerclusters", 1), LONG_S)
        await asyncio.sleep(5.0)
        before, begun = writes(plane), time.monotonic()
        await asyncio.to_thread(post, plane, topics("shop", "demo", (f"t{number}" for number in range(1000))))
        await until("all are ready", lambda: all_ready(plane, "shop", "topics", 1000), LONG_S, every=0.5)
        took = time.monotonic() - begun
        await asyncio.sleep(5.0)
        say("1,000 Topics made: all Ready after", f"{took:.1f} s", "< 20 s")
        say("API calls of the operator for each", f"{(writes(plane) - before - 1000) / 1000:.1f}", "3")


async def idle(_minutes: float) -> None:
    clusters = [(f"shop-{number}", "demo", 2, 1) for number in range(31)]
    with environment(*clusters) as (folder, plane):
        plane.namespace("refused")
        for number in range(30):
            make(plane, "refused", "BrokerCluster", f"refused-{number}", config={"brokerId": "7"})
        for number in range(31):
            post(plane, topics(f"shop-{number}", "demo", (f"t{each}" for each in range(1500 // 31 + 1))))
        with OperatorProcess(folder, plane.kubeconfig()) as operator:
            for namespace, *_ in clusters:
                await until("ready", lambda where=namespace: all_ready(plane, where, "brokerclusters", 1), LONG_S)  # type: ignore[misc]
                await until("ready", lambda where=namespace: all_ready(plane, where, "topics", 49), LONG_S)  # type: ignore[misc]
            await asyncio.sleep(120.0)
            before, seconds = operator.cpu_seconds(), 60.0
            await asyncio.sleep(seconds)
            share = 100 * (operator.cpu_seconds() - before) / seconds
            say("idle with 31 clusters, 1,519 Topics, 30 refused clusters", f"{share:.1f} % of a core", "< 2 %")
            say("resident", f"{operator.resident_mb():.0f} MB", "< 160 MB")


def main(arguments: Sequence[str]) -> int:
    """Run all measurements, or the named ones."""
    parser = argparse.ArgumentParser(prog="python -m e2e operator-scale", description="figures of a large operator")
    measure = {"silent": silent, "restart": restart, "topics": made_at_once, "idle": idle}
    parser.add_argument("figures", nargs="*", help=f"of {', '.join(measure)}; all of them by default")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long a broker is silent")
    options = parser.parse_args(arguments)
    unknown = set(options.figures) - measure.keys()
    if unknown:
        parser.error(f"there is no figure {', '.join(sorted(unknown))}")
    for name in options.figures or measure:
        asyncio.run(measure[name](options.minutes))
    return 0
