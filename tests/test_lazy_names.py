"""Packages whose names are imported at their first use."""

from __future__ import annotations

import ast
import importlib
import inspect
from typing import Any

import pytest

from raptormq.lazy_names import lazy_names


def imports_of(package: Any) -> dict[str, str]:
    """Return the module of each name that a package imports for type checkers."""
    tree = ast.parse(inspect.getsource(package))
    blocks = [node.body for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.name: str(node.module)
        for block in blocks
        for node in block
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("name", ["raptormq.client", "raptormq.client.consumer", "pyspark_raptormq"])
def test_the_names_of_a_package_are_those_that_type_checkers_see(name: str) -> None:
    package = importlib.import_module(name)
    imports = imports_of(package)
    assert imports
    assert {*imports} <= {*package.__all__}
    for each, module in imports.items():
        assert getattr(package, each) is getattr(importlib.import_module(module), each)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'missing'"):
        _ = package.missing


def test_a_name_is_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []

    def import_module(name: str) -> Any:
        imported.append(name)
        return importlib.import_module(name)

    monkeypatch.setattr("raptormq.lazy_names.import_module", import_module)
    get = lazy_names("tests.test_lazy_names", {"collections": "ChainMap Counter"})
    assert get("ChainMap").__name__ == "ChainMap"
    assert globals().pop("ChainMap").__name__ == "ChainMap"
    assert imported == ["collections"]
