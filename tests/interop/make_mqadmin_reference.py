"""Writes `reference_mqadmin.json` and `reference_mqadmin_newest.json`: the output of mqadmin with Apache RocketMQ of
the same release, which must be the same with RaptorMQ.

python -m tests.interop.make_mqadmin_reference            both
python -m tests.interop.make_mqadmin_reference newest     one of them: reference, newest
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.interop.make_reference import PATIENCE
from tests.interop.mqadmin import REFERENCES, SCRIPTS, SETTINGS, Place, reduced, run
from tests.interop.rocketmq_java import Release, RocketMQServers, build

WANTED = PATIENCE | SETTINGS


def main(names: list[str]) -> None:
    built = build()
    for release in [Release[name.upper()] for name in names] or list(SCRIPTS):
        commands = SCRIPTS[release]
        with (
            tempfile.TemporaryDirectory() as scratch,
            RocketMQServers(built, Path(scratch), settings=WANTED, release=release) as servers,
        ):
            place = Place(servers.name_servers, f"127.0.0.1:{servers.broker_port}", Path(scratch))
            outputs = run(built, place, commands, release=release)
        document = {" ".join(command): reduced(output) for command, output in zip(commands, outputs, strict=True)}
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        REFERENCES[release].write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
