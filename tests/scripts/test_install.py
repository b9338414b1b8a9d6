"""scripts/install.sh promtool: no action if the program exists, advice if it cannot be installed, otherwise only the
program.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "install.sh"
OF_THE_SYSTEM = ("bash", "dirname", "flock", "id", "install", "mktemp", "rm", "touch", "mkdir")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Create the only folder of the PATH, with the programs that the script calls, but neither apt-get nor promtool."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in OF_THE_SYSTEM:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return folder


def add(folder: Path, name: str, script: str = "true") -> None:
    (folder / name).write_text(f"#!{folder / 'bash'}\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def install(programs: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    places = {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    command = [str(programs / "bash"), str(SCRIPT), "promtool"]
    return subprocess.run(command, env=places, capture_output=True, text=True, timeout=60, check=False)


def test_nothing_is_done_where_it_is_on_the_path(programs: Path, tmp_path: Path) -> None:
    add(programs, "promtool")
    done = install(programs, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "cache").exists()


def test_where_there_are_no_debian_packages_it_says_what_to_install(programs: Path, tmp_path: Path) -> None:
    done = install(programs, tmp_path)
    assert done.returncode == 1
    assert "please install promtool (prometheus.io/download)" in done.stderr


def test_it_is_taken_out_of_the_package_and_the_rest_left(programs: Path, tmp_path: Path) -> None:
    add(programs, "apt-get", '[ "$1" = update ] || touch prometheus_1_amd64.deb')
    add(programs, "dpkg-deb", 'mkdir -p "$3/usr/bin"; touch "$3/usr/bin/promtool" "$3/usr/bin/prometheus"')
    before = set(tmp_path.iterdir())
    done = install(programs, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "cache" / "raptormq" / "bin").iterdir()] == ["promtool"]
    assert set(tmp_path.iterdir()) - before == {tmp_path / "cache"}
    add(programs, "apt-get", "exit 1")
    assert (install(programs, tmp_path).returncode, install(programs, tmp_path).stderr) == (0, "")


def test_a_package_that_cannot_be_had_fails(programs: Path, tmp_path: Path) -> None:
    add(programs, "apt-get", '[ "$1" = update ] || { echo "E: no network" >&2; exit 100; }')
    add(programs, "dpkg-deb")
    done = install(programs, tmp_path)
    assert done.returncode != 0
    assert "E: no network" in done.stderr
    assert not (tmp_path / "cache").exists()
