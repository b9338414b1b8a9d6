"""The unchanged demo with a small library: a real broker process, the real client, a real Spark query.

It runs in a separate process, because it starts and stops its own session.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(300)
def test_every_byte_of_every_line_comes_back(tmp_path: Path) -> None:
    contents = {
        "plain/a.py": b"import os\n\nprint(os)\n" * 500,
        "bytes/b.py": bytes(range(256)) * 4 + b"\n\r\n\x0c\n\x00",
        "long.py": b"x" * 100_000 + b"\n",
    }
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    command = [sys.executable, "-m", "demo", str(tmp_path)]
    finished = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "Equal: lines, bytes and checksums of all 3 packages, 1,509 lines." in finished.stdout
