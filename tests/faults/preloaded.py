"""Libraries in C that are preloaded into a real server."""

from __future__ import annotations

import subprocess
from pathlib import Path


def build_library(source: Path, folder: Path) -> Path:
    """Build a library in ``folder``.

    Raises:
        CalledProcessError: The library cannot be built; the compiler has printed the reason.
    """
    library = folder / f"{source.stem}.so"
    warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", *warnings, "-o", str(library), str(source)], check=True)
    return library
