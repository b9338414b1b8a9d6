"""Check that the installed CustomResourceDefinitions have every field of those that belong to this operator.

The API server removes fields that a definition does not have: from a spec, so that the operator would change brokers
back to defaults, and from a status, which then never changes. `helm upgrade` does not update definitions, so that a new
operator often meets old ones. Such an operator is not ready and does not lead; the operator that the Deployment would
replace keeps its work. The process continues without a restart when the definitions are updated.

The installed fields are read from the OpenAPI document of our API group, which every authenticated client may read.
A newer definition has more fields and is accepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Protocol

import yaml

from raptormq.logs import get_logger
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names

CHECK_S = 5.0
"""Interval in seconds of the check while this process leads."""
GROUP_VERSION = f"apis/{names.API_VERSION}"
SHOWN = 3
"""Number of missing fields in a message."""
_ANY = "x-kubernetes-preserve-unknown-fields"

log = get_logger(__name__)


class Definitions(Protocol):
    """Source of the installed definitions, implemented by `KubeClient`. Both calls raise `KubeError`."""

    async def open_api_version(self, group_version: str) -> str | None:
        """Return an identifier of the OpenAPI document of a group, which changes with the document; None if there is
        no such group."""

    async def open_api(self, document: str) -> Manifest:
        """Return the OpenAPI document with this identifier."""


class DefinitionsTooOld(KubeError):
    """An installed definition lacks fields. The message contains the command that updates the definitions."""


class DefinitionCheck:
    """Compares the installed definitions with those of this operator. An unchanged document is compared once."""

    def __init__(self, source: Definitions) -> None:
        self._source = source
        self._accepted: str | None = None
        self._warned = False
        self.fault: str | None = "the installed CustomResourceDefinitions have not been checked yet"
        """Why the operator must not write; None after a check that found no missing field."""

    async def __call__(self) -> None:
        """Check the installed definitions.

        Raises:
            DefinitionsTooOld: A definition lacks fields.
            KubeError: The API server did not respond.
        """
        try:
            document = await self._source.open_api_version(GROUP_VERSION)
            if document is not None and document != self._accepted:
                self._compare(await self._source.open_api(document))
                self._accepted = document
        except DefinitionsTooOld as error:
            self.fault = str(error)
            raise
        except KubeError as error:
            if error.status not in (403, 404):
                raise
            if not self._warned:
                log.warning("the installed CustomResourceDefinitions cannot be compared with the operator's: %s", error)
            self._warned = True
        self.fault = None

    async def until_old(self) -> None:
        """Repeat the check until it finds an old definition.

        Raises:
            DefinitionsTooOld: A definition lacks fields.
        """
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self()
            except DefinitionsTooOld:
                raise
            except KubeError as error:  # the watches handle an API server that does not respond
                log.debug("the definitions were not checked: %s", error)

    def _compare(self, document: Mapping[str, Any]) -> None:
        installed = installed_schemas(document)
        texts = []
        for kind, schema in own_schemas().items():
            # A definition that is not installed is reported by the watch of its kind.
            missing = missing_fields(schema, installed[kind]) if kind in installed else []
            if missing:
                more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
                texts.append(f"{kind} lacks {', '.join(missing[:SHOWN])}{more}")
        if texts:
            raise DefinitionsTooOld(
                0,
                f"the installed CustomResourceDefinitions are older than this operator ({'; '.join(texts)}). Nothing"
                " is changed until they are updated from the chart of this operator: "
                "helm show crds CHART | kubectl apply --server-side --force-conflicts -f -",
            )


def own_schemas() -> dict[str, Mapping[str, Any]]:
    """Return the schemas of the definitions that belong to this operator, by kind."""
    found = {}
    for file in files("raptormq_operator").joinpath("crds").iterdir():
        definition = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        (version,) = definition["versions"]
        found[definition["names"]["kind"]] = version["schema"]["openAPIV3Schema"]
    return found


def installed_schemas(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the schemas of our kinds in an OpenAPI document, by kind."""
    schemas = document.get("components", {}).get("schemas", {}).values()
    return {
        kind["kind"]: schema
        for schema in schemas
        for kind in schema.get("x-kubernetes-group-version-kind", ())
        if f"{kind['group']}/{kind['version']}" == names.API_VERSION
    }


def missing_fields(own: Mapping[str, Any], installed: Mapping[str, Any]) -> list[str]:
    """Return the paths of the fields of `own` that `installed` lacks, without the fields below a missing one."""
    return sorted(_missing(own, installed, ""))


def _missing(own: Mapping[str, Any], installed: Mapping[str, Any], path: str) -> Iterator[str]:
    if installed.get(_ANY):
        return
    for name, inner in own.get("properties", {}).items():
        if not path and name == "metadata":
            continue  # every resource has the same
        place = f"{path}.{name}" if path else name
        other = installed.get("properties", {}).get(name)
        if other is None:
            yield place
        else:
            yield from _missing(inner, other, place)
    for key in ("items", "additionalProperties"):
        inner, other = own.get(key), installed.get(key)
        if isinstance(inner, Mapping) and isinstance(other, Mapping):
            yield from _missing(inner, other, f"{path}[]")
