"""Writes `reference_outcomes.json`: how every scenario ends on Apache RocketMQ 5.3.3, and so has to end on ours.

python -m tests.interop.make_reference
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.interop.rocketmq_java import RocketMQServers, build
from tests.interop.scenarios import play

OUTCOMES = Path(__file__).with_name("reference_outcomes.json")
# A busy machine (limits in ms) or a well-filled disk (per cent) must not make the reference shed load.
PATIENCE = {
    "diskMaxUsedSpaceRatio": "95",
    "waitTimeMillsInSendQueue": "60000",
    "waitTimeMillsInPullQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
}


def main() -> None:
    built = build()
    with tempfile.TemporaryDirectory() as scratch, RocketMQServers(built, Path(scratch), settings=PATIENCE) as servers:
        outcomes = play(built, servers)
    failed = {name: entry["error"] for name, entry in outcomes.items() if "error" in entry}
    for name, error in failed.items():
        sys.stderr.write(f"{name}: {error}\n")
    if failed:
        raise SystemExit(f"{len(failed)} scenarios failed on the reference")
    document = {name: entry["outcome"] for name, entry in sorted(outcomes.items())}
    OUTCOMES.write_text(json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
