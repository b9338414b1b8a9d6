"""Writes `reference_outcomes.json`: how every scenario ends on Apache RocketMQ 5.3.3, and so has to end on ours.

python -m tests.interop.make_reference                        all of them
python -m tests.interop.make_reference --only SqlFilter,Pop   these, into what the file has
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.interop.outcomes import REFERENCE_FILE
from tests.interop.rocketmq_java import RocketMQServers, build
from tests.interop.scenarios import LOCK_LIVES, SETTINGS, play, play_some, system_properties

OUTCOMES = REFERENCE_FILE
# A busy machine (limits in ms) or a well-filled disk (per cent) must not make the reference shed load.
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
    with (
        tempfile.TemporaryDirectory() as scratch,
        RocketMQServers(built, Path(scratch), settings=settings, options=options) as servers,
    ):
        outcomes = play_some(built, servers, only) if only else play(built, servers)
    failed = {name: entry["error"] for name, entry in outcomes.items() if "error" in entry}
    for name, error in failed.items():
        sys.stderr.write(f"{name}: {error}\n")
    if failed:
        raise SystemExit(f"{len(failed)} scenarios failed on the reference")
    known = json.loads(OUTCOMES.read_text(encoding="utf-8")) if only else {}
    document = known | {name: entry["outcome"] for name, entry in outcomes.items()}
    document = dict(sorted(document.items()))
    OUTCOMES.write_text(json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
