"""Programs for tests that are built once. They are in folders of the user's cache, named by a hash of their sources.

A folder is `${XDG_CACHE_HOME:-~/.cache}/raptormq/<kind>-<hash>`. The file `complete` is written last, and a folder
without it is built again. A file lock makes a second builder wait for the first one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

BUILD_TIMEOUT_S = 900
OUTPUT_TAIL_CHARACTERS = 4000


class BuildError(Exception):
    """A build tool is missing or has failed. The message contains the end of its output."""


def cached(kind: str, project: Path, sources: Iterable[Path], build: Callable[[Path], None]) -> Path:
    """Return the folder that is built from `sources` (files below `project`). If it does not exist, `build` fills it.

    Raises BuildError, or what `build` raises.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raptormq"
    folder = cache / f"{kind}-{_hash(project, sources)}"
    if not (folder / "complete").exists():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{kind}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "complete").exists():
                sys.stderr.write(f"building {kind} programs into {folder} (first time only)\n")
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                build(folder)
                (folder / "complete").touch()
    return folder


def _hash(project: Path, sources: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(sources):
        digest.update(str(path.relative_to(project)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def run_tool(command: Sequence[str], *, folder: Path | None = None) -> None:
    """Run a build tool. Raises BuildError if it is missing, fails, or takes more than 15 minutes."""
    name = command[0]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise BuildError(f"{name} is not installed; `make test-interop` installs it") from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{name} did not end within {BUILD_TIMEOUT_S} s") from error
    if done.returncode != 0:
        output = (done.stdout + done.stderr)[-OUTPUT_TAIL_CHARACTERS:]
        raise BuildError(f"{name} failed with exit code {done.returncode}:\n{output}")
