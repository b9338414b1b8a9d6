"""Comparison of the installed definitions with those of the operator."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from raptormq_operator.definition_check import (
    GROUP_VERSION,
    DefinitionCheck,
    DefinitionsTooOld,
    missing_fields,
    own_schemas,
)
from raptormq_operator.kube.errors import KubeError

PREVIOUS = Path(__file__).resolve().parents[2] / "e2e" / "previous" / "raptormq" / "crds"


class Installed:
    """Serves the OpenAPI document of installed definitions."""

    def __init__(self) -> None:
        self.schemas: dict[str, Any] = deepcopy(own_schemas())
        self.version = 1
        self.errors: list[KubeError] = []
        self.read = 0

    async def open_api_version(self, group_version: str) -> str | None:
        assert group_version == GROUP_VERSION
        if self.errors:
            raise self.errors.pop()
        return f"/openapi/v3/{group_version}?hash={self.version}" if self.schemas else None

    async def open_api(self, document: str) -> dict[str, Any]:
        assert document.endswith(f"hash={self.version}")
        self.read += 1
        schemas = {
            kind: {
                **schema,
                "x-kubernetes-group-version-kind": [{"group": "raptormq.io", "version": "v1alpha1", "kind": kind}],
            }
            for kind, schema in self.schemas.items()
        }
        return {"components": {"schemas": {**schemas, "io.k8s.ObjectMeta": {}}}}


async def test_own_definitions_lack_nothing_and_are_compared_once() -> None:
    installed = Installed()
    check = DefinitionCheck(installed)
    assert "not been checked yet" in str(check.fault)
    await check()
    await check()
    assert check.fault is None
    assert installed.read == 1


async def test_old_definition_is_a_fault_until_it_is_updated() -> None:
    installed = Installed()
    check = DefinitionCheck(installed)
    spec = installed.schemas["BrokerCluster"]["properties"]["spec"]["properties"]
    removed = {name: spec.pop(name) for name in ("flush", "metrics", "podTemplate", "tls")}
    with pytest.raises(
        DefinitionsTooOld, match=r"BrokerCluster lacks spec.flush, spec.metrics, spec.podTemplate and 1"
    ):
        await check()
    assert check.fault is not None
    assert "helm show crds CHART | kubectl apply" in check.fault
    spec.update(removed)
    installed.version += 1
    await check()
    assert check.fault is None


async def test_missing_field_of_a_status_and_of_a_list_is_found() -> None:
    own = own_schemas()["BrokerCluster"]
    installed = deepcopy(dict(own))
    del installed["properties"]["status"]["properties"]["brokers"]["items"]["properties"]["role"]
    assert missing_fields(own, installed) == ["status.brokers[].role"]
    del installed["properties"]["status"]["properties"]["brokers"]
    assert missing_fields(own, installed) == ["status.brokers"]


def test_newer_definition_lacks_nothing() -> None:
    own = own_schemas()["Topic"]
    newer = deepcopy(dict(own))
    newer["properties"]["spec"]["properties"]["later"] = {"type": "string"}
    assert missing_fields(own, newer) == []
    assert missing_fields(newer, own) == ["spec.later"]


def test_a_definition_of_any_fields_lacks_nothing() -> None:
    assert missing_fields(own_schemas()["Topic"], {"x-kubernetes-preserve-unknown-fields": True}) == []


@pytest.mark.parametrize("file", sorted(PREVIOUS.iterdir()), ids=lambda file: file.stem)
def test_definitions_of_the_previous_release_have_only_fields_that_still_exist(file: Path) -> None:
    """A field that is removed would be lost in an upgrade."""
    definition = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
    (version,) = definition["versions"]
    previous = version["schema"]["openAPIV3Schema"]
    assert missing_fields(previous, own_schemas()[definition["names"]["kind"]]) == []


@pytest.mark.parametrize("status", [403, 404])
async def test_operator_that_may_not_read_the_document_works_and_logs_it_once(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    installed = Installed()
    installed.errors = [KubeError(status, "forbidden")] * 2
    check = DefinitionCheck(installed)
    await check()
    await check()
    assert check.fault is None
    assert caplog.text.count("cannot be compared with the operator's: forbidden") == 1


async def test_unresponsive_api_server_keeps_the_last_result() -> None:
    installed = Installed()
    check = DefinitionCheck(installed)
    installed.errors = [KubeError(0, "timeout")]
    with pytest.raises(KubeError, match="timeout"):
        await check()
    assert check.fault is not None
    await check()
    installed.errors = [KubeError(500, "etcd")]
    with pytest.raises(KubeError, match="etcd"):
        await check()
    assert check.fault is None


async def test_kinds_that_are_not_installed_are_not_its_business() -> None:
    installed = Installed()
    installed.schemas = {}
    check = DefinitionCheck(installed)
    await check()
    assert check.fault is None
