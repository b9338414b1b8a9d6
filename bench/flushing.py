"""Cost of SYNC_FLUSH: rates of 64 threads of the Java client with SYNC_FLUSH and with ASYNC_FLUSH."""

from __future__ import annotations

from pathlib import Path

from bench.figure import Figure
from bench.load_run import LoadPlan, run
from bench.peers import System, running
from tests.interop.rocketmq_java import build

SENDERS = 64


def flushing(folder: Path, warm_up_seconds: int, seconds: int) -> list[Figure]:
    """Measure the ratio of the rate with SYNC_FLUSH to that with ASYNC_FLUSH."""
    plan = LoadPlan([f"sync:{SENDERS}"], warm_up_seconds, seconds, max_messages=2_000_000)
    rates = {}
    for kind in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        place = folder / kind
        with running(System.RAPTORMQ, build(), place, settings={"flushDiskType": kind}) as server:
            (result,) = run(build(), server, plan, place / "load.log", [])
        rates[kind] = result.messages_per_second
    share = rates["SYNC_FLUSH"] / rates["ASYNC_FLUSH"]
    what = f"{SENDERS} senders, SYNC_FLUSH ({rates['SYNC_FLUSH']:,.0f}/s) over ASYNC_FLUSH"
    return [Figure(what, share, "x", 0.6, at_least=True)]
