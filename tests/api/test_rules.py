"""The rules of the definitions on a real API server: the same cases as in e2e."""

from __future__ import annotations

import json
import urllib.error
from typing import Any

import pytest

from e2e import rules
from raptormq_operator.kube.client import path
from tests.api.control_plane import ControlPlane


def answer(plane: ControlPlane, namespace: str, kind: str, name: str, spec: dict[str, Any], dry_run: str) -> str:
    """Return the API server's error for a resource; empty if it is accepted."""
    manifest = json.loads(rules.manifest(kind, namespace, name, spec))
    where = f"{path(kind, namespace, name)}?fieldManager=test&force=true{dry_run}"
    try:
        plane.request("PATCH", where, manifest, "application/apply-patch+yaml")
    except urllib.error.HTTPError as error:
        return error.read().decode()
    return ""


@pytest.fixture
def ruled(shared_plane: ControlPlane, namespace: str) -> str:
    """A namespace with the resources for the update rules."""
    for kind, name, spec in rules.BASES:
        assert answer(shared_plane, namespace, kind, name, spec, "") == ""
    return namespace


def test_every_case_is_answered_as_it_has_to_be(shared_plane: ControlPlane, ruled: str) -> None:
    wrong = []
    for kind, (name, spec, refusal) in rules.CASES:
        said = answer(shared_plane, ruled, kind, name, spec, "&dryRun=All")
        if (refusal not in said) if refusal else said:
            wrong.append(f"{kind} {name} {spec}: expected {refusal or 'no complaint'!r}, it said {said!r}")
    assert wrong == []
