"""The README of the chart is generated from values.yaml."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def chart_readme() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chart_readme", ROOT / "scripts" / "chart_readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_what_the_script_writes(chart_readme: ModuleType) -> None:
    found = chart_readme.README.read_text(encoding="utf-8")
    assert found == chart_readme.readme(), "python scripts/chart_readme.py"


def test_a_value_without_comment_is_refused_by_name(chart_readme: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"image\.tag has no comment"):
        chart_readme.values("# An image.\nimage:\n  # Its name.\n  name: x\n  tag: y\n")


def test_every_value_is_in_the_schema(chart_readme: ModuleType) -> None:
    schema = json.loads((chart_readme.CHART / "values.schema.json").read_text(encoding="utf-8"))
    for value in chart_readme.values((chart_readme.CHART / "values.yaml").read_text(encoding="utf-8")):
        part = schema
        for name in value.name.removesuffix(".*").split("."):
            if "$ref" in part:
                part = schema["definitions"][part["$ref"].rpartition("/")[2]]
            assert name in part["properties"], value.name
            part = part["properties"][name]
