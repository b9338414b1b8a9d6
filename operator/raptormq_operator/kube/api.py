"""The few verbs of the Kubernetes API that the operator needs, on aiohttp, which kopf brings along.

Writes are server-side apply under our own field manager with force: what the operator sets it owns, what others
add stays.
`KubeApi` is a protocol so that tests can put a table of objects in its place; `HttpKubeApi` is the real one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol, Self

import aiohttp

from raptormq_operator.kube.connection import Connection
from raptormq_operator.kube.errors import KubeError, error_for
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names

REQUEST_TIMEOUT_S = 30.0

RESOURCES = {
    "BrokerCluster": (names.API_VERSION, "brokerclusters"),
    "ConfigMap": ("v1", "configmaps"),
    "Event": ("v1", "events"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
    "Pod": ("v1", "pods"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "Service": ("v1", "services"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "Topic": (names.API_VERSION, "topics"),
}
"""Kind -> API version and plural."""


class KubeApi(Protocol):
    """Every call raises `KubeError` and nothing else."""

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """The object, None when there is none."""

    async def select(self, kind: str, namespace: str, selector: str) -> list[Manifest]:
        """Objects with these labels; each has its kind, which the API leaves out of list items."""

    async def warnings(self, namespace: str, kind: str, name: str) -> list[Manifest]:
        """The Events of type Warning about an object that the API server still has."""

    async def apply(self, manifest: Manifest, manager: str = names.FIELD_MANAGER) -> Manifest:
        """Makes the object or changes the fields that `manager` owns."""

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """The same for the status of an object that exists."""

    async def create(self, manifest: Manifest) -> Manifest:
        """Makes the object; `Conflict` when it is there."""

    async def replace(self, manifest: Manifest) -> Manifest:
        """Writes the whole object; `Conflict` when its resourceVersion is not the newest."""

    async def merge(self, kind: str, namespace: str, name: str, patch: Manifest) -> Manifest:
        """JSON merge patch."""

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Deletes exactly this object; nothing happens when it is gone or another one has its name."""


class HttpKubeApi:
    """`KubeApi` over HTTPS. Use as an asynchronous context manager."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._connection.ssl_context)
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        try:
            return await self._request("GET", path(kind, namespace, name))
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def select(self, kind: str, namespace: str, selector: str) -> list[Manifest]:
        return await self._list(kind, namespace, {"labelSelector": selector})

    async def warnings(self, namespace: str, kind: str, name: str) -> list[Manifest]:
        fields = f"type=Warning,involvedObject.kind={kind},involvedObject.name={name}"
        return await self._list("Event", namespace, {"fieldSelector": fields})

    async def apply(self, manifest: Manifest, manager: str = names.FIELD_MANAGER) -> Manifest:
        return await self._apply(_path_of(manifest), manifest, manager)

    async def apply_status(self, manifest: Manifest) -> Manifest:
        return await self._apply(_path_of(manifest) + "/status", manifest, names.FIELD_MANAGER)

    async def create(self, manifest: Manifest) -> Manifest:
        where = path(manifest["kind"], manifest["metadata"]["namespace"])
        return await self._request("POST", where, manifest, "application/json")

    async def replace(self, manifest: Manifest) -> Manifest:
        return await self._request("PUT", _path_of(manifest), manifest, "application/json")

    async def merge(self, kind: str, namespace: str, name: str, patch: Manifest) -> Manifest:
        return await self._request("PATCH", path(kind, namespace, name), patch, "application/merge-patch+json")

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._request("DELETE", path(kind, namespace, name), options, "application/json")
        except KubeError as error:
            if error.status not in (404, 409):
                raise

    async def _list(self, kind: str, namespace: str, query: Mapping[str, str]) -> list[Manifest]:
        answer = await self._request("GET", path(kind, namespace), query=query)
        return [{**item, "kind": kind, "apiVersion": RESOURCES[kind][0]} for item in answer["items"]]

    async def _apply(self, where: str, manifest: Manifest, manager: str) -> Manifest:
        query = {"fieldManager": manager, "force": "true"}
        return await self._request("PATCH", where, manifest, "application/apply-patch+yaml", query)

    async def _request(
        self,
        method: str,
        where: str,
        body: Manifest | None = None,
        content_type: str | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Manifest:
        if self._session is None:
            raise KubeError(0, "the API client is not open")
        headers = dict(self._connection.headers())
        if content_type is not None:
            headers["Content-Type"] = content_type
        data = None if body is None else json.dumps(body).encode()
        url = self._connection.server + where
        try:
            async with self._session.request(method, url, params=query, data=data, headers=headers) as response:
                answer = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise KubeError(0, f"{method} {where}: {str(error) or type(error).__name__}") from error
        if response.status >= 400:
            raise error_for(response.status, _message(answer, f"{method} {where}: HTTP {response.status}"))
        result: Manifest = answer
        return result


def path(kind: str, namespace: str, name: str | None = None) -> str:
    """Path of a collection, or of one object."""
    version, plural = RESOURCES[kind]
    prefix = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    collection = f"{prefix}/namespaces/{namespace}/{plural}"
    return collection if name is None else f"{collection}/{name}"


def _path_of(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return path(manifest["kind"], metadata["namespace"], metadata["name"])


def _message(answer: Any, otherwise: str) -> str:
    message = answer.get("message") if isinstance(answer, dict) else None
    return str(message) if message else otherwise
