"""The part of requirements.lock that a set of extras needs, for one version of Python: what an image installs.

    python scripts/locked.py --python 3.11 operator > requirements.txt

The lock serves everyone, with all extras and all versions of Python. Dependencies are read from the distributions
that are installed here (`make install` has all of them), so nothing is resolved anew and no index is asked; versions
and hashes are the lock's own. Environment markers are evaluated for the wanted version and left out of the result.
"""

from __future__ import annotations

import argparse
import re
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).resolve().parents[1] / "requirements.lock"


def environment_for(python: str) -> dict[str, str]:
    """Marker values of this machine under another version of Python."""
    environment = {name: str(value) for name, value in default_environment().items()}
    environment["python_version"] = ".".join(python.split(".")[:2])
    environment["python_full_version"] = python if python.count(".") == 2 else f"{python}.0"
    return environment


def needed(root: str, extras: set[str], environment: dict[str, str]) -> set[str]:
    """Canonical names of everything that `root` needs, `root` itself excluded."""
    found: set[tuple[str, str]] = set()
    pending = [(root, extra) for extra in {"", *extras}]
    while pending:
        item = pending.pop()
        if item in found:
            continue
        found.add(item)
        name, extra = item
        for requirement in map(Requirement, distribution(name).requires or []):
            marker = requirement.marker
            if marker is None or marker.evaluate(environment | {"extra": extra}):
                pending += [(canonicalize_name(requirement.name), more) for more in {"", *requirement.extras}]
    return {name for name, _ in found} - {root}


def locked_blocks(lock: str, environment: dict[str, str]) -> dict[str, str]:
    """Name -> its lines in the lock, with the marker taken out; a name that is locked twice has one that applies."""
    blocks: dict[str, str] = {}
    for block in re.finditer(r"^([A-Za-z0-9._-]+)==[^ ]+( ; [^\\\n]*)? \\\n(?: .*\n)+", lock, flags=re.MULTILINE):
        marker = block[2] or ""
        if not marker or Marker(marker.removeprefix(" ; ")).evaluate(environment):
            blocks[canonicalize_name(block[1])] = block[0].replace(marker, "", 1)
    return blocks


def main() -> int:
    """Prints the requirements; complains about one that the lock does not have."""
    parser = argparse.ArgumentParser(description="the part of requirements.lock that some extras need")
    parser.add_argument("--python", default=".".join(map(str, sys.version_info[:3])), help="version of Python")
    parser.add_argument("extras", nargs="*", help="extras of raptormq")
    options = parser.parse_args()
    environment = environment_for(options.python)
    blocks = locked_blocks(LOCK.read_text(encoding="utf-8"), environment)
    names = needed("raptormq", set(options.extras), environment)
    missing = sorted(names - blocks.keys())
    if missing:
        sys.stderr.write(f"locked.py: requirements.lock has no {', '.join(missing)}\n")
        return 2
    sys.stdout.writelines(blocks[name] for name in sorted(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
