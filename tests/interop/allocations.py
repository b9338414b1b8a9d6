"""Groups and queues with the allocation of the official client: `tests/golden/allocations.json`.

python -m tests.interop.allocations      writes this file again, with the newest client
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from tests.interop.rocketmq_java import JavaBuild, Release, build, java

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "allocations.json"
PROGRAM = "io.raptormq.interop.rebalance.Allocations"
SEED = 40
ROOMS = ("east", "north", "west", "\U0001f600", "")


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def cases() -> list[dict[str, Any]]:
    """Return cases of all strategies. Queues and members are in the order of the client."""
    chosen = random.Random(SEED)
    made: list[dict[str, Any]] = []
    for number in range(140):
        strategy, settings = _strategy(chosen, number)
        brokers = [_broker(chosen) for _ in range(chosen.randint(1, 4))]
        topic = chosen.choice(["orders", "%RETRY%g", "\U0001f600 orders", "über"])
        if strategy == "CONFIG":
            topic = "orders"  # Java's list contains queues of one topic
        queues = {(topic, broker, queue) for broker in brokers for queue in range(chosen.randint(1, 8))}
        ordered = sorted(queues, key=lambda queue: (_utf16(queue[0]), _utf16(queue[1]), queue[2]))
        names = {_member(chosen) for _ in range(chosen.choice([1, 2, 3, 3, 7, 20]))}
        if strategy == "CONFIG":
            settings = {"configured": sorted(chosen.sample(range(len(ordered)), len(ordered) // 2))}
        made.append(
            {"strategy": strategy, "queues": [*map(list, ordered)], "members": sorted(names, key=_utf16)} | settings
        )
    return made


def _strategy(chosen: random.Random, number: int) -> tuple[str, dict[str, Any]]:
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("AVG", {}),
        ("AVG_BY_CIRCLE", {}),
        ("CONSISTENT_HASH", {"nodes": chosen.choice([1, 3, 10, 100])}),
        ("MACHINE_ROOM", {"rooms": chosen.sample(ROOMS[:4], 2)}),
        ("NEARBY_AVG", {}),
        ("NEARBY_CIRCLE", {}),
        ("CONFIG", {}),
    ]
    return kinds[number % len(kinds)]


def _broker(chosen: random.Random) -> str:
    end = chosen.choice(["", "", "", "@", "@x"])
    return f"{chosen.choice(ROOMS[:4])}@broker-{chosen.choice('abcdef')}{end}"


def _member(chosen: random.Random) -> str:
    return f"{chosen.choice(ROOMS[:4])}@10.0.0.{chosen.randint(1, 99)}#{chosen.randint(1, 9)}\U0001f600\uf000"


def ask_java(built: JavaBuild, made: list[dict[str, Any]], folder: Path) -> list[list[list[int]]]:
    """Return the allocation of each case, as indexes of queues by member."""
    (folder / "cases.json").write_text(json.dumps(made), encoding="utf-8")
    process = java(
        PROGRAM,
        [str(folder / "cases.json")],
        class_path=built.client_class_path(Release.NEWEST),
        log=folder / "allocations.log",
        options=["-Dfile.encoding=UTF-8"],
    )
    lines = process.finish(60)
    return [json.loads(line.removeprefix("shares ")) for line in lines if line.startswith("shares ")]


def main() -> None:
    made = cases()
    with tempfile.TemporaryDirectory() as folder:
        shares = ask_java(build(), made, Path(folder))
    lines = [json.dumps(case | {"shares": share}) for case, share in zip(made, shares, strict=True)]
    GOLDEN.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
