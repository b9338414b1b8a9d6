"""Writes docs/reference/conformance.md from a run of all scenarios: `python -m tests.interop.make_conformance`."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.interop.features import FEATURES
from tests.interop.outcomes import BEFORE, OTHER_WORDS, REFERENCE, Difference, differences, reference_of
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import build
from tests.interop.scenarios import SETTINGS, Outcomes, play

TABLE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "conformance.md"
CLIENTS = {
    "json": "Java 5.5.0",
    "binary": "Java 5.5.0, binary headers",
    "old": "Java 4.9.8",
    "node": "ali-ons 3.12",
    "go": "rocketmq-client-go 2.1.2",
    "raw": "single requests",
}
_HEAD = """# Conformance

The behaviour of RaptorMQ as the official clients observe it, compared with Apache RocketMQ 5.3.3, and with 5.5.0 for
priorities. Each scenario of `tests/interop` runs against both systems. The outcome of a scenario consists of several
parts, which are compared one by one. Intended differences are listed below with their reasons
(`tests/interop/allowed_differences.json`). `python -m tests.interop.make_conformance` generates this page, and a test
compares it with every run. If a row names two versions of a client, both have run the scenario.

The same suite compares the following, which this table does not contain: mqadmin ([mqadmin.md](mqadmin.md)), access
control (`test_access_control.py`), TLS (`test_tls.py`), IPv6 (`test_ipv6.py`), the RaptorMQ client with Apache RocketMQ
5.3.3 and 4.9.7 (`test_python_client.py`, `test_old_server.py`), and stores that one system writes and the other one
opens (`test_store_exchange.py`).

| feature | scenario | client | parts | outcome |
|---|---|---|---|---|
"""


def render(outcomes: Outcomes) -> str:
    """Return the page for these outcomes."""
    found = {name: differences(name, entry.get("outcome") or {}) for name, entry in outcomes.items()}
    rows = [
        f"| {feature if number == 0 else ''} | {name.partition('/')[2]} | {_clients(name, found)} "
        f"| {len(REFERENCE[name])} | {_verdict(found[name])} |\n"
        for feature, names in FEATURES.items()
        for number, name in enumerate(names)
    ]
    return _HEAD + "".join(rows) + "\n## Intended differences\n\n" + "".join(_reasons(found))


def _clients(name: str, found: dict[str, list[Difference]]) -> str:
    """Return the clients that have run a scenario. The older client version is included if its outcome is the same."""
    client, _, scenario = name.partition("/")
    before = found.get(f"{client}{BEFORE}{scenario}")
    if before is None or _verdict(before) != _verdict(found[name]):
        return CLIENTS[client]
    return CLIENTS[client].replace("5.5.0", "5.5.0 and 5.3.3")


def _verdict(found: list[Difference]) -> str:
    kinds = Counter(_kind(difference) for difference in found)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "equal"


def _kind(difference: Difference) -> str:
    if difference.reason is None:
        return "DIFFERENT"
    return "other wording" if difference.reason == OTHER_WORDS else "intended"


def _reasons(found: dict[str, list[Difference]]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name in sorted(set(map(reference_of, found))):
        for difference in found[name]:
            if difference.reason is not None and difference.reason != OTHER_WORDS:
                by_reason.setdefault(difference.reason, []).append(f"{name} ({difference.part})")
    played = [each for name, each in found.items() if reference_of(name) == name]
    words = sum(_kind(difference) == "other wording" for each in played for difference in each)
    lines = [f"- {_sentence(reason)} *{'; '.join(where)}*\n" for reason, where in sorted(by_reason.items())]
    return [*lines, f"- In {words} responses with the same code, {OTHER_WORDS}.\n"]


def _sentence(reason: str) -> str:
    return reason[0].upper() + reason[1:] + "."


def main() -> None:
    built = build()
    with tempfile.TemporaryDirectory() as scratch, RaptorMQDev(Path(scratch), settings=SETTINGS) as servers:
        outcomes = play(built, servers)
    for name, entry in outcomes.items():
        if "error" in entry:
            sys.stderr.write(f"{name}: {entry['error']}\n")
    TABLE.write_text(render(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()
