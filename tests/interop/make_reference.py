"""Writes `reference_outcomes.json`: the outcome of every scenario with Apache RocketMQ, which must be the same with
RaptorMQ.

The servers are 5.3.3, and the newest release for features that 5.3.3 does not have (`NEWER`).

python -m tests.interop.make_reference                        all of them
python -m tests.interop.make_reference --only SqlFilter,Pop   these, into what the file has
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.interop.outcomes import REFERENCE_FILE, reference_of
from tests.interop.rocketmq_java import Release, RocketMQServers, build
from tests.interop.scenarios import LOCK_LIVES, SETTINGS, Outcomes, play, play_some, system_properties

OUTCOMES = REFERENCE_FILE
NEWER = ("json/Priorities",)
# The reference must not refuse requests because the machine is busy (limits in ms) or the disk is full (per cent).
PATIENCE = {
    "diskMaxUsedSpaceRatio": "95",
    "waitTimeMillsInSendQueue": "60000",
    "waitTimeMillsInPullQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="How scenarios end on Apache RocketMQ.")
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of scenarios, separated by commas")
    only: list[str] | None = parser.parse_args().only
    built = build()
    settings = PATIENCE | SETTINGS
    options = system_properties(LOCK_LIVES)
    outcomes: Outcomes = {}
    for release, chosen in (
        (Release.REFERENCE, [name for name in only if name not in NEWER] if only else None),
        (Release.NEWEST, [name for name in NEWER if not only or name in only]),
    ):
        if chosen == []:
            continue
        with (
            tempfile.TemporaryDirectory() as scratch,
            RocketMQServers(built, Path(scratch), settings=settings, options=options, release=release) as servers,
        ):
            outcomes |= play_some(built, servers, chosen) if chosen else play(built, servers)
    failed = {name: entry["error"] for name, entry in outcomes.items() if "error" in entry}
    for name, error in failed.items():
        sys.stderr.write(f"{name}: {error}\n")
    if failed:
        raise SystemExit(f"{len(failed)} scenarios failed on the reference")
    known = json.loads(OUTCOMES.read_text(encoding="utf-8")) if only else {}
    recorded = {name: entry for name, entry in outcomes.items() if reference_of(name) == name}
    document = known | {name: entry["outcome"] for name, entry in recorded.items()}
    document = dict(sorted(document.items()))
    OUTCOMES.write_text(json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
