"""Rounds of faults: their choice by a seed, and their results.

See also: :mod:`~tests.faults.rounds_page` writes the results to the documentation.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import TypeVar

from tests.faults.ledger import Ledger

T = TypeVar("T")


@dataclass
class Round:
    """Results of a round. Times are in seconds."""

    fault: str
    lasted: float
    acknowledged: int
    refused: int
    gap: float
    """The longest time between two acknowledgements from the fault until the end of the round."""


@dataclass
class Result:
    """Results of all rounds, and of the final checks."""

    seed: int
    rounds: list[Round] = field(default_factory=list)
    acknowledged: int = 0
    found: dict[str, list[str]] = field(default_factory=dict)
    """Violations by what was checked, such as ``lost``. A list is empty if the check has found none."""
    changed_rights: int = 0
    """Number of answered changes of users and permissions."""
    empty: int = 0
    """Number of pulls without messages, from any member."""

    @property
    def violations(self) -> list[str]:
        """All violations."""
        return [f"{check}: {each}" for check, found in self.found.items() for each in found]

    def compare(self, acknowledged: Mapping[int, Sequence[int]], stored: Mapping[int, Iterable[int]]) -> None:
        """Compare the acknowledged numbers of each queue with the stored ones. They must be stored once, in order."""
        lost, duplicated, reordered = (self.found.setdefault(each, []) for each in ("lost", "duplicated", "reordered"))
        for index, numbers in stored.items():
            counted, name = Counter(numbers), f"queue {index}"
            lost += [f"{name}: {number}" for number in acknowledged[index] if not counted[number]]
            duplicated += [f"{name}: {number}" for number, times in counted.items() if times > 1]
            reordered += [f"{name}: {second} after {first}" for first, second in pairwise(numbers) if second < first]
        self.acknowledged = sum(map(len, acknowledged.values()))


class RunningRound:
    """A round that begins now."""

    def __init__(self, ledger: Ledger) -> None:
        self._clock = asyncio.get_running_loop().time
        self._ledger = ledger
        self._count, self._refused = ledger.count, len(ledger.refused)
        self.began = self._clock()

    def end(self, fault: str) -> Round:
        """Return the results of the round, which ends now."""
        times = [self.began, *(moment for moment in self._ledger.times if moment >= self.began)]
        return Round(
            fault,
            self._clock() - self.began,
            self._ledger.count - self._count,
            len(self._ledger.refused) - self._refused,
            max(second - first for first, second in pairwise(times)),
        )


def chosen(seed: int, rounds: int, faults: Sequence[T]) -> list[T]:
    """Return the faults of this number of rounds. Each occurs once before any is repeated."""
    random = Random(seed)
    order: list[T] = []
    while len(order) < rounds:
        order += random.sample(faults, len(faults))
    return order[:rounds]
