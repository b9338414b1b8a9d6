"""Missing programs are built, or cause an error with advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e import tools
from raptormq.errors import ConfigError


@pytest.fixture(autouse=True)
def _forget() -> None:
    tools.tool.cache_clear()
    tools.engine.cache_clear()


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set a PATH with only the programs of a shell, and an empty cache. Return the folder of the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(tools, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(tools, "FOLDERS", (tmp_path / "cache" / "bin",))
    for variable in ("CONTAINER_ENGINE", "KIND_EXPERIMENTAL_PROVIDER"):
        monkeypatch.delenv(variable, raising=False)
    return folder


def test_the_path_comes_first_then_the_cache(empty_machine: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    in_cache = program(tmp_path / "cache" / "bin", "helm", "true")
    assert tools.tool("helm") == str(in_cache)
    tools.tool.cache_clear()
    on_path = program(empty_machine, "helm", "true")
    assert tools.tool("helm") == str(on_path)


@pytest.mark.parametrize("name", tools.ADVICE)
def test_a_missing_program_is_named_with_the_way_to_get_it(empty_machine: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not installed: install {name}"):
        tools.tool(name)
    assert list(empty_machine.iterdir()) == []


def test_with_go_it_is_built_into_the_cache(empty_machine: Path, tmp_path: Path) -> None:
    program(empty_machine, "go", 'echo "$2 $3" > "$GOBIN.log"')
    (tmp_path / "cache").mkdir()
    assert tools.tool("helm") == str(tmp_path / "cache" / "bin" / "helm")
    log = (tmp_path / "cache" / "bin.log").read_text(encoding="utf-8")
    assert log.strip() == f"-trimpath {tools.MODULES['helm']}"


def test_a_build_that_fails_says_why(empty_machine: Path) -> None:
    program(empty_machine, "go", 'echo "no network" >&2; exit 1')
    with pytest.raises(ConfigError, match="no network"):
        tools.tool("kind")


def test_the_engine_is_the_one_that_answers(empty_machine: Path) -> None:
    program(empty_machine, "docker", "exit 1")
    with pytest.raises(ConfigError, match="neither docker nor podman"):
        tools.engine()
    program(empty_machine, "podman", "exit 0")
    assert tools.engine() == "podman"
