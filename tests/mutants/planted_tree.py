"""A copy of the tree to which bugs are applied, one at a time, and runs of pytest in it.

See also: :mod:`~tests.mutants.mutant` has the bugs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import cache_from_source
from pathlib import Path

from tests.mutants.mutant import Mutant

_SOURCES = ("src", "operator", "spark")
_RUN_LIMIT_S = 1800
_OUTPUT_LINES = 40


class Verdict(StrEnum):
    """Result of a test run."""

    FOUND = "found"
    SURVIVED = "survived"
    UNKNOWN = "unknown"
    """No test has failed, but not all have passed: a file cannot be collected, a fixture fails, or the run does not
    end.
    """


@dataclass(frozen=True)
class Run:
    """One run of pytest."""

    verdict: Verdict
    seconds: float
    output: str
    """Its last lines."""


class PlantedTree:
    """A copy of all files of ``root`` that git tracks or would add, below the empty folder ``folder``."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = folder / "tree"
        self._scratch = folder / "pytest"
        self._report = folder / "report.xml"
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
        for name in names:
            if (root / name).is_file():
                target = self.root / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, target)

    @contextmanager
    def with_bug(self, mutant: Mutant) -> Iterator[None]:
        """Context in which the copy has the bug.

        Raises:
            StaleMutant: The bug cannot be applied.
        """
        path = self.root / mutant.file
        sound, planted = path.read_text(encoding="utf-8"), mutant.planted(self.root)
        self._write(path, planted)
        try:
            yield
        finally:
            self._write(path, sound)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        if (
            path.suffix == ".py"
        ):  # a cached file from the same second and with the same size would be used for the new text, too
            Path(cache_from_source(str(path))).unlink(missing_ok=True)

    def run(self, tests: Iterable[str]) -> Run:
        """Run ``tests`` until the first failure."""
        self._report.unlink(missing_ok=True)
        places = [f"--basetemp={self._scratch}", f"--junitxml={self._report}"]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *places, *tests]
        # It precedes the folder of the editable install, also in programs that tests start.
        path = os.pathsep.join(str(self.root / each) for each in _SOURCES)
        started = time.monotonic()
        with subprocess.Popen(
            command,
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=_RUN_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                output += f"\nno end within {_RUN_LIMIT_S} s"
        verdict = self._verdict(process.returncode)
        return Run(verdict, time.monotonic() - started, "\n".join(output.splitlines()[-_OUTPUT_LINES:]))

    def _verdict(self, code: int) -> Verdict:
        if code == 0:
            return Verdict.SURVIVED
        if code == 1 and self._report.exists():
            suites = ET.parse(self._report).getroot().iter("testsuite")
            if any(int(suite.get("failures", "0")) for suite in suites):
                return Verdict.FOUND
        return Verdict.UNKNOWN
