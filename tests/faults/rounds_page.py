"""The page of the documentation with the results of rounds of faults. Each kind of rounds has a section between two
comments, and a run replaces the one of its kind.
"""

from __future__ import annotations

import statistics

from tests.faults.rounds import Result, Round

_BEGIN, _END = "<!-- rounds: {} -->\n", "<!-- end -->\n"
_SECTION = """\

## {title}

`{command} --kind {kind} --rounds {rounds} --seed {seed}`

| {names} |
|{lines}|
| {counts} |

| fault | rounds | median gap, s | longest gap, s |
|---|---|---|---|
{rows}
"""
_COMMAND = "python -m tests.faults.fault_rounds"


def row(number: int, each: Round) -> str:
    """Return the row of a round in the table that a run prints."""
    return f"| {number} | {each.fault} | {each.lasted:.1f} | {each.acknowledged} | {each.refused} | {each.gap:.2f} |"


def with_section(page: str, kind: str, title: str, result: Result) -> str:
    """Return the page with the section of a kind of rounds replaced, or added at the end."""
    counts = {"rounds": len(result.rounds), "acknowledged": result.acknowledged}
    if result.changed_rights:
        counts["changed rights"] = result.changed_rights
    counts |= {check: len(found) for check, found in result.found.items()}
    section = _SECTION.format(
        title=title, command=_COMMAND, kind=kind, rounds=len(result.rounds), seed=result.seed,
        names=" | ".join(counts), lines="|".join("---" for _ in counts),
        counts=" | ".join(f"{count:,}" for count in counts.values()), rows=_rows(result),
    )  # fmt: skip
    begin = _BEGIN.format(kind)
    head, found, rest = page.partition(begin)
    tail = rest.partition(_END)[2] if found else ""
    return f"{head.rstrip()}\n\n{begin}{section}\n{_END}{tail}"


def _rows(result: Result) -> str:
    by_fault: dict[str, list[float]] = {}
    for each in result.rounds:
        by_fault.setdefault(each.fault, []).append(each.gap)
    return "\n".join(
        f"| {fault} | {len(own)} | {statistics.median(own):.2f} | {max(own):.2f} |"
        for fault, own in sorted(by_fault.items())
    )
