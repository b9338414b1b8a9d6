"""The resource definitions: one source, one copy in the chart, and a description of every field for `kubectl
explain`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "crds").glob("*.yaml"))


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def parts(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return every schema below one, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from parts(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from parts(schema[key], f"{path}[]")


def test_the_chart_has_the_same_bytes() -> None:
    copies = {path.name: path.read_bytes() for path in (ROOT / "helm" / "raptormq" / "crds").iterdir()}
    assert copies == {path.name: path.read_bytes() for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_kinds_can_be_looked_at_and_their_status_is_apart(path: Path) -> None:
    (version,) = load(path)["spec"]["versions"]
    columns = {column["name"] for column in version["additionalPrinterColumns"]}
    assert {"Ready", "Reason", "Age"} <= columns
    assert "status" in version["subresources"]
    schema = version["schema"]["openAPIV3Schema"]
    for column in version["additionalPrinterColumns"]:
        head = column["jsonPath"].lstrip(".").split("[")[0].split(".")
        if head[0] in ("spec", "status"):
            assert head[1] in schema["properties"][head[0]]["properties"], column["name"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_field_of_the_spec_is_explained(path: Path) -> None:
    (version,) = load(path)["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    explained_elsewhere = ("tolerations[]", "[]")
    silent = [name for name, part in parts(spec) if "description" not in part and not name.endswith("[]")]
    assert [name for name in silent if not any(mark in name for mark in explained_elsewhere)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_comma_cuts_a_description_in_two(path: Path) -> None:
    """In a flow mapping the text after a comma is a key, which a server-side apply refuses."""
    (version,) = load(path)["spec"]["versions"]
    found = [(name, key) for name, part in parts(version["schema"]["openAPIV3Schema"]) for key in part if " " in key]
    assert found == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_a_rule_reads_from_a_default_is_in_the_default(path: Path) -> None:
    """The API server checks rules against a default before it adds nested defaults."""
    (version,) = load(path)["spec"]["versions"]
    offenders = [
        f"{name}: {rule['rule']} reads {field}"
        for name, part in parts(version["schema"]["openAPIV3Schema"])
        for rule in part.get("x-kubernetes-validations", [])
        for field in part.get("properties", {})
        if "default" in part and f"self.{field} " in rule["rule"] + " " and field not in part["default"]
        if f"has(self.{field})" not in rule["rule"]
    ]
    assert offenders == []
