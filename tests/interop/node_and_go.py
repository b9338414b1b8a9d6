"""Node.js programs with ali-ons (`tests/interop/node`), and the Go program with rocketmq-client-go
(`tests/interop/go`).

The folders (see `build_cache`) contain `node_modules`, where the scenarios of the checkout find modules by NODE_PATH,
and `interop`, the Go program. Lock files pin every version by its hash: `package-lock.json`, `go.sum`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.interop.build_cache import cached, run_tool
from tests.interop.rocketmq_java import WatchedProcess

NODE_PROJECT = Path(__file__).with_name("node")
GO_PROJECT = Path(__file__).with_name("go")


def start_node(arguments: Sequence[str], *, log: Path) -> WatchedProcess:
    """Start `main.js`; `arguments` are name server, prefix and scenarios. Raises BuildError."""
    modules = node_modules()
    environment = {**os.environ, "NODE_PATH": str(modules)}
    command = ["node", str(NODE_PROJECT / "main.js"), *arguments]
    return WatchedProcess("node", command, log=log, environment=environment)


def start_go(arguments: Sequence[str], *, log: Path) -> WatchedProcess:
    """Start the Go program; `arguments` are name server, prefix and scenarios. Raises BuildError."""
    return WatchedProcess("go", [str(go_program()), *arguments], log=log)


def node_modules() -> Path:
    """Return the folder with the installed modules of `package-lock.json`."""
    sources = [NODE_PROJECT / "package.json", NODE_PROJECT / "package-lock.json"]
    return cached("node", NODE_PROJECT, sources, _install_modules) / "node_modules"


def go_program() -> Path:
    """Return the program, built from the current sources."""
    return cached("go", GO_PROJECT, GO_PROJECT.glob("*.*"), _build_program) / "interop"


def _install_modules(folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(NODE_PROJECT / name, folder)
    run_tool(["npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"], folder=folder)


def _build_program(folder: Path) -> None:
    run_tool(["go", "vet", "./..."], folder=GO_PROJECT)
    run_tool(["go", "build", "-o", str(folder / "interop"), "."], folder=GO_PROJECT)
