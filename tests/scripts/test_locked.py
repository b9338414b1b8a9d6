"""The part of the lock file that an image installs: complete, hashed, and for one version of Python."""

from __future__ import annotations

import re

import pytest

from scripts import locked

LOCK = locked.LOCK.read_text(encoding="utf-8")
VERSIONS = ("3.11", "3.12.4", "3.13")


@pytest.mark.parametrize("python", VERSIONS)
@pytest.mark.parametrize("extras", [set(), {"operator"}, {"spark"}, {"operator", "spark"}], ids=sorted)
def test_everything_that_is_needed_is_locked_for_every_version(python: str, extras: set[str]) -> None:
    environment = locked.environment_for(python)
    blocks = locked.locked_blocks(LOCK, environment)
    names = locked.needed("raptormq", extras, environment)
    assert names <= blocks.keys()
    assert {"orjson", "uvloop"} <= names
    assert ("kopf" in names, "pyspark" in names) == ("operator" in extras, "spark" in extras)


def test_what_only_developers_need_stays_out() -> None:
    names = locked.needed("raptormq", {"operator", "spark"}, locked.environment_for("3.11"))
    assert names.isdisjoint({"pytest", "ruff", "mypy", "hypothesis"})


@pytest.mark.parametrize("python", VERSIONS)
def test_a_block_is_one_requirement_with_hashes_and_no_marker(python: str) -> None:
    for name, block in locked.locked_blocks(LOCK, locked.environment_for(python)).items():
        head, *hashes = block.splitlines()
        assert re.fullmatch(r"[a-z0-9-]+==[^ ;]+ \\", head), name
        assert hashes, name
        assert all(re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes), name


def test_of_two_entries_the_one_that_applies_is_taken() -> None:
    lock = (
        "thing==1.0 ; python_full_version < '3.12' \\\n    --hash=sha256:aa\n"
        "thing==2.0 ; python_full_version >= '3.12' \\\n    --hash=sha256:bb\n"
    )
    for python, version in (("3.11.9", "1.0"), ("3.12.1", "2.0")):
        blocks = locked.locked_blocks(lock, locked.environment_for(python))
        assert blocks["thing"].startswith(f"thing=={version} \\\n")


def test_a_name_that_the_lock_does_not_have_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(locked, "locked_blocks", lambda *_: {})
    monkeypatch.setattr("sys.argv", ["locked.py", "operator"])
    assert locked.main() == 2
    assert "requirements.lock has no" in capsys.readouterr().err
