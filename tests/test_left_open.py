"""Handles that an asynchronous test leaves open are reported, and do not prevent its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEAVING = """
import asyncio
import pytest

@pytest.mark.parametrize("error", [None, ValueError("its own")])
async def test_leaves(error: Exception | None) -> None:
    await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    if error:
        raise error
"""


def test_a_test_that_leaves_a_server_open_fails_and_ends(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(LEAVING)
    options = ["-W", "error", "-p", "tests.conftest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path / "test_it.py")]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "2 failed" in done.stdout
    assert "AssertionError: unclosed resource <TCPServer" in done.stdout
    assert "ValueError: its own" in done.stdout
