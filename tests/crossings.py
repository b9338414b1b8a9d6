"""Crossings: features in each mode of replication under each condition, and the tests that set up both sides.

`python -m tests.crossings` writes docs/explanation/crossings.md from the markers of tests:

    @pytest.mark.crossing("sends", "dledger", "fail-over")       tests
    @crossing("sends", "dledger", "fail-over")                   scenarios of e2e, which pytest does not run

A test has one marker for each cell that it sets up: the feature is used in a cluster of that mode, and the condition
is true at that time. `tests/faults/test_crossings.py` sets up many cells at once and has no markers: they are those of
`MATRIX`. The markers are read from the sources, so the page needs no run. A cell without a test has a
reason in `CANNOT_MEET`, or the page lists it as open.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "crossings.md"
FOLDERS = ("tests", "e2e")

FEATURES: Mapping[str, str] = {
    "sends": "single sends, synchronous, asynchronous and one-way",
    "batches": "lists, AutoBatch and topics of type BatchCQ",
    "transactions": "half messages, commit, rollback and check-back",
    "delays": "delay levels, delivery times and recalls",
    "retries": "send-back, retry topics and dead letters",
    "request-reply": "requests and replies",
    "exactly-once": "staged lists and their commit",
    "pulls": "pulls and held pulls",
    "offsets": "committed offsets, resets, start offsets of new groups",
    "pop": "POP: receive, acknowledge, change of the invisible time",
    "ordered": "ordered consumption and queue locks",
    "rebalance": "groups of consumers and the handover of queues",
    "topics": "creation, change and deletion of topics and groups",
    "conversion": "conversion between SimpleCQ and BatchCQ",
    "users": "users and permissions and their changes",
    "settings": "settings changed at run time and by rolling updates",
    "retention": "expiry and deletion of segments",
    "damage": "scrub and repair of damaged data",
    "transfer": "transfer of leadership and promotion",
    "members": "replaced, added and removed copies",
    "queries": "queries by key, id and time",
    "python-client": "the Python client: producers and consumers",
    "spark-source": "the Spark source",
    "spark-sink": "the Spark sink",
    "operator": "reconciliation by the operator and its status",
}
MODES: Mapping[str, str] = {"none": "no replication", "master-slave": "master and slave", "dledger": "Dledger groups"}
CONDITIONS: Mapping[str, str] = {
    "access-control": "access control on",
    "tls": "TLS enforcing",
    "full-disk": "disk full",
    "restart": "restart",
    "fail-over": "fail-over",
    "upgrade": "upgrade from 0.2.0",
    "old-client": "old Java client",
}

_NOBODY_TAKES_OVER = "without replication no other broker takes over"
_NOT_IN_OLD_CLIENTS = "Java clients before 5 have no such request"
CANNOT_MEET: Mapping[tuple[str, str, str], str] = {
    **{(feature, "none", "fail-over"): _NOBODY_TAKES_OVER for feature in FEATURES},
    **{("pop", mode, "old-client"): _NOT_IN_OLD_CLIENTS for mode in MODES},
    **{("exactly-once", mode, "old-client"): "only the Spark sink stages lists" for mode in MODES},
    **{("python-client", mode, "old-client"): "the client is ours" for mode in MODES},
    **{("spark-source", mode, "old-client"): "the source is a client of its own" for mode in MODES},
    **{("spark-sink", mode, "old-client"): "the sink is a client of its own" for mode in MODES},
    **{("retention", mode, "old-client"): "no request of a client is part of it" for mode in MODES},
    **{("damage", mode, "old-client"): "no request of a client is part of it" for mode in MODES},
    **{("operator", mode, "old-client"): "the operator uses the Python client" for mode in MODES},
    **{("conversion", "dledger", condition): "the queues of a group are not converted" for condition in CONDITIONS},
    ("users", "master-slave", "fail-over"): "a slave does not copy users and permissions",
    **{("transfer", "none", condition): "there is one copy" for condition in CONDITIONS if condition != "fail-over"},
    **{("members", "none", condition): "there is one copy" for condition in CONDITIONS if condition != "fail-over"},
}
"""Reasons why the two sides of a cell cannot meet, by (feature, mode, condition)."""

MATRIX: Mapping[tuple[str, str], tuple[str, ...]] = {
    (mode, condition): tuple(
        feature
        for feature in (
            "sends", "batches", "transactions", "delays", "retries", "request-reply", "pulls", "offsets", "pop",
            "ordered", "rebalance", "topics", "conversion", "users", "queries", "python-client",
        )
        if (feature, mode, condition) not in CANNOT_MEET
    )
    for mode in MODES
    for condition in ("access-control", "tls", "full-disk", "restart", "fail-over")
    if (mode, condition) != ("none", "fail-over")
}  # fmt: skip
"""Features that are used together on one cluster, by (mode, condition)."""
MATRIX_TEST = "tests/faults/test_crossings.py::test_features_hold_under_a_condition"


@dataclass(frozen=True, slots=True, order=True)
class Crossing:
    """A cell of the page and one test for it."""

    feature: str
    mode: str
    condition: str
    test: str
    """``path::name`` below the root of the repository."""

    @property
    def cell(self) -> tuple[str, str, str]:
        return self.feature, self.mode, self.condition


Function = TypeVar("Function", bound=Callable[..., object])


def crossing(feature: str, mode: str, condition: str) -> Callable[[Function], Function]:
    """Mark a scenario of e2e as the test of a cell. The page reads the source; the decorator changes nothing."""
    del feature, mode, condition
    return lambda function: function


def collect(root: Path = ROOT) -> list[Crossing]:
    """Return the crossings of the markers of all tests below ``root``, sorted.

    Raises:
        ValueError: the arguments of a marker are not three known words.
    """
    return sorted(each for folder in FOLDERS for path in (root / folder).rglob("*.py") for each in _of_file(root, path))


def _of_file(root: Path, path: Path) -> Iterator[Crossing]:
    source = path.read_text(encoding="utf-8")
    if "crossing(" not in source:
        return
    place = path.relative_to(root).as_posix()
    tree = ast.parse(source)
    module = [call for call in ast.walk(tree) if isinstance(call, ast.Assign) and _is_pytestmark(call)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = list(node.decorator_list)
            if node.name.startswith("test_"):
                marks += [part for mark in module for part in ast.walk(mark.value) if isinstance(part, ast.Call)]
            for mark in marks:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func).rpartition(".")[2] == "crossing":
                    yield _crossing(mark, f"{place}::{node.name}")


def _is_pytestmark(assignment: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in assignment.targets)


def _crossing(mark: ast.Call, test: str) -> Crossing:
    words = [each.value if isinstance(each, ast.Constant) else None for each in mark.args]
    if len(words) != 3 or mark.keywords:
        raise ValueError(f"{test}: crossing() takes a feature, a mode and a condition")
    for word, known in zip(words, (FEATURES, MODES, CONDITIONS), strict=True):
        if word not in known:
            raise ValueError(f"{test}: crossing({word!r}) is not one of {', '.join(known)}")
    feature, mode, condition = map(str, words)
    return Crossing(feature, mode, condition, test)


_HEAD = """# Crossings

Faults are found where two parts meet. Each table shows the features of RaptorMQ in one mode of replication, under
conditions that every cluster meets sooner or later. A number is the number of tests that set up both sides; they are
listed below. A letter is the reason why the two cannot meet. An empty cell is open: no test sets up both.

`python -m tests.crossings` generates this page from the markers `crossing(feature, mode, condition)` of the tests, and
a test compares it.
"""


def render(crossings: list[Crossing]) -> str:
    """Return the page."""
    by_cell: dict[tuple[str, str, str], list[str]] = {}
    for each in crossings:
        by_cell.setdefault(each.cell, []).append(each.test)
    reasons = {reason: chr(ord("a") + number) for number, reason in enumerate(dict.fromkeys(CANNOT_MEET.values()))}
    parts = [_HEAD, "\n## Features\n\n", *(f"- **{name}**: {text}\n" for name, text in FEATURES.items())]
    for mode, title in MODES.items():
        parts += _table(mode, title, by_cell, reasons)
    parts += ["\n## Reasons\n\n", *(f"- {letter}: {reason}\n" for reason, letter in reasons.items())]
    total = len(FEATURES) * len(MODES) * len(CONDITIONS)
    met = len(by_cell)
    apart = len(CANNOT_MEET.keys() - by_cell.keys())
    parts.append(f"\nOf {total} cells, {met} have tests, {apart} cannot meet, and {total - met - apart} are open.\n")
    return "".join(parts) + _tests(by_cell)


def _table(
    mode: str, title: str, by_cell: Mapping[tuple[str, str, str], list[str]], reasons: Mapping[str, str]
) -> Iterator[str]:
    yield f"\n## {title.capitalize()}\n\n| | {' | '.join(CONDITIONS.values())} |\n"
    yield f"|---|{'---|' * len(CONDITIONS)}\n"
    for feature in FEATURES:
        cells = []
        for condition in CONDITIONS:
            cell = feature, mode, condition
            reason = CANNOT_MEET.get(cell)
            cells.append(str(len(by_cell[cell])) if cell in by_cell else reasons[reason] if reason else "")
        yield f"| {feature} | {' | '.join(cells)} |\n"


def _tests(by_cell: Mapping[tuple[str, str, str], list[str]]) -> str:
    parts = ["\n## Tests\n"]
    for mode, title in MODES.items():
        parts.append(f"\n### {title.capitalize()}, by feature\n\n")
        for feature in FEATURES:
            for condition, text in CONDITIONS.items():
                tests = by_cell.get((feature, mode, condition), [])
                if tests:
                    parts.append(f"- {feature}, {text}: {', '.join(f'`{test}`' for test in tests)}\n")
    return "".join(parts)


def of_matrix() -> list[Crossing]:
    """Return the crossings of the test that sets up many at once."""
    return [
        Crossing(feature, mode, condition, MATRIX_TEST)
        for (mode, condition), features in MATRIX.items()
        for feature in features
    ]


def page() -> str:
    """Return the page for the tests of this repository."""
    return render(of_matrix() + collect())


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
