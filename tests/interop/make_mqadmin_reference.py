"""Writes `reference_mqadmin.json`: what mqadmin prints with Apache RocketMQ 5.3.3, and so has to print with ours.

python -m tests.interop.make_mqadmin_reference
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.interop.make_reference import PATIENCE
from tests.interop.mqadmin import COMMANDS, SETTINGS, Place, reduced, run
from tests.interop.rocketmq_java import RocketMQServers, build

WANTED = PATIENCE | SETTINGS
OUTPUTS = Path(__file__).with_name("reference_mqadmin.json")


def main() -> None:
    built = build()
    with (
        tempfile.TemporaryDirectory() as scratch,
        RocketMQServers(built, Path(scratch), settings=WANTED) as servers,
    ):
        place = Place(servers.name_servers, f"127.0.0.1:{servers.broker_port}", Path(scratch))
        outputs = run(built, place, COMMANDS)
    document = {" ".join(command): reduced(output) for command, output in zip(COMMANDS, outputs, strict=True)}
    OUTPUTS.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
