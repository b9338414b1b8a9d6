"""Requests to the Kubernetes API, sent with the official client (`kubernetes.aio`).

Writes are forced server-side applies with the operator's field manager: the operator owns the fields that it sets, and
fields set by others remain. Objects are plain JSON values, because the client has no models for custom resources and
comparisons need the exact values of the API server. Tests replace the protocol `KubeApi`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol
from urllib.parse import parse_qsl

import aiohttp
from kubernetes.aio.client import ApiClient, ApiException, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.aio.watch import Watch

from raptormq.errors import ConfigError
from raptormq_operator.kube.errors import KubeError, error_for
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.metrics import API_CALLS
from raptormq_operator.model import names

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
CALLS_AT_ONCE = 32
"""Maximum number of concurrent requests. Further requests wait in FIFO order. As each lane sends only a few at a time,
a cluster with many writes does not delay the others."""
PAGE_SIZE = 500

RESOURCES = {
    "BrokerCluster": (names.API_VERSION, "brokerclusters"),
    "ConfigMap": ("v1", "configmaps"),
    "Event": ("v1", "events"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "Pod": ("v1", "pods"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "Role": ("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings"),
    "Secret": ("v1", "secrets"),
    "Service": ("v1", "services"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "SparkApplication": ("spark.apache.org/v1", "sparkapplications"),
    "SparkPipeline": (names.API_VERSION, "sparkpipelines"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "Topic": (names.API_VERSION, "topics"),
}
"""Kind -> API version and plural."""
_KINDS = {plural: kind for kind, (_, plural) in RESOURCES.items()}


class KubeApi(Protocol):
    """Requests to the API server. Every call raises only `KubeError`."""

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return the object; None if it does not exist."""

    async def select(self, kind: str, namespace: str, selector: str) -> list[Manifest]:
        """Return the objects with these labels. `kind` and `apiVersion`, which list items lack, are filled in."""

    async def warnings(self, namespace: str, kind: str, name: str) -> list[Manifest]:
        """Return the existing Events of type Warning about an object."""

    async def apply(self, manifest: Manifest, manager: str = names.FIELD_MANAGER) -> Manifest:
        """Create the object, or update the fields that `manager` owns, by server-side apply."""

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """Update the status of an existing object by server-side apply."""

    async def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create the object. Raises `Conflict` if it exists. With `dry_run` the API server only validates it."""

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace the object. Raises `Conflict` if its resourceVersion is out of date."""

    async def merge(self, kind: str, namespace: str, name: str, patch: Manifest) -> Manifest:
        """Apply a JSON merge patch."""

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete the object with this uid. An object that is already deleted or was recreated is ignored."""

    async def evict(self, namespace: str, pod: str, uid: str) -> bool:
        """Evict the pod with this uid. Return False if its disruption budget does not allow the eviction now."""


async def configuration() -> Configuration:
    """Return address and credentials of the API server, from the pod's service account or else from the kubeconfig.

    The client reads the service account's token again every minute.

    Raises:
        ConfigError: There is neither a service account nor a kubeconfig.
    """
    found = Configuration()
    found.connection_pool_maxsize = 0  # each watch holds a connection; `CALLS_AT_ONCE` is the limit for the others
    try:
        load_incluster_config(client_configuration=found)
    except ConfigException:
        try:
            await load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=found)
        except ConfigException as error:
            text = "no service account and no kubeconfig found to connect to the Kubernetes API server"
            raise ConfigError(f"{text}: {error}") from error
    return found


class KubeClient:
    """`KubeApi` over the connections of `api`."""

    def __init__(
        self, api: ApiClient, *, timeout: float = REQUEST_TIMEOUT_S, at_once: int | None = CALLS_AT_ONCE
    ) -> None:
        """`at_once` limits concurrent requests; None removes the limit, for the few urgent requests for the lease."""
        self._api = api
        self._timeout = timeout
        self._line: AbstractAsyncContextManager[Any] = asyncio.Semaphore(at_once) if at_once else nullcontext()

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

    async def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        where = path(manifest["kind"], manifest["metadata"]["namespace"])
        query = {"dryRun": "All"} if dry_run else None
        return await self._request("POST", where, manifest, "application/json", query)

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

    async def evict(self, namespace: str, pod: str, uid: str) -> bool:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self._request("POST", path("Pod", namespace, pod) + "/eviction", body, "application/json")
        except KubeError as error:
            if error.status == 429:
                return False
            if error.status not in (404, 409):
                raise
        return True

    async def page(
        self, kind: str, namespace: str | None, selector: str = "", limit: int = PAGE_SIZE, after: str = ""
    ) -> Manifest:
        """Return one page of a list: `items`, and in `metadata` the resourceVersion and the token of the next page
        (`continue`). `after` is the token of the previous page. Without a namespace all namespaces are listed.

        Raises:
            KubeError: The request failed; status 410 if `after` has expired.
        """
        query = {"limit": str(limit), "labelSelector": selector, "continue": after}
        return await self._request(
            "GET", path(kind, namespace), query={key: text for key, text in query.items() if text}
        )

    async def open_api_version(self, group_version: str) -> str | None:
        """Return the path of the OpenAPI document of a group, such as `apis/GROUP/VERSION`. The path contains a hash of
        the document. None if no kind of the group is defined.

        Raises:
            KubeError: The request failed.
        """
        documents = await self._request("GET", "/openapi/v3")
        found: str | None = documents.get("paths", {}).get(group_version, {}).get("serverRelativeURL")
        return found

    async def open_api(self, document: str) -> Manifest:
        """Return the OpenAPI document at a path.

        Raises:
            KubeError: The request failed.
        """
        where, _, query = document.partition("?")
        return await self._request("GET", where, query=dict(parse_qsl(query)))

    async def watch(
        self, kind: str, namespace: str | None, selector: str, version: str, *, seconds: int, quiet: float
    ) -> AsyncIterator[tuple[str, Manifest]]:
        """Yield events after a resourceVersion: `ADDED`, `MODIFIED` or `DELETED` with the object, or `BOOKMARK` with
        only a newer resourceVersion. An initial `BOOKMARK` with the given version signals that the watch has started.
        The API server ends the watch after `seconds`.

        Raises:
            KubeError: The request failed (status 410 if the version is too old), or nothing arrived for `quiet` s.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=quiet)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            "labelSelector": selector,
        }
        where = path(kind, namespace)
        given = {key: text for key, text in query.items() if text}
        response = await self._open("GET", where, None, None, given, timeout)

        async def begun(**_: object) -> aiohttp.ClientResponse:
            return response

        try:
            yield "BOOKMARK", {"metadata": {"resourceVersion": version}}
            async with Watch() as watch:
                async for event in watch.stream(begun, timeout_seconds=seconds):
                    if not isinstance(event, dict):
                        raise ValueError(f"not an event: {event!r:.80}")
                    yield event["type"], event["object"]
        except ApiException as error:  # an event of type ERROR
            raise error_for(int(error.status or 0), str(error.reason)) from error
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise KubeError(0, f"watch {where}: {str(error) or type(error).__name__}") from error
        finally:
            response.close()

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
        timeout = aiohttp.ClientTimeout(total=self._timeout, sock_connect=CONNECT_TIMEOUT_S)
        async with self._line:
            response = await self._open(method, where, body, content_type, query or {}, timeout)
            try:
                result: Manifest = await response.json(content_type=None)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise KubeError(0, f"{method} {where}: {str(error) or type(error).__name__}") from error
            finally:
                response.release()
        return result

    async def _open(
        self,
        method: str,
        where: str,
        body: Manifest | None,
        content_type: str | None,
        query: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Return a successful response whose body has not been read yet."""
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if content_type else {})
        try:
            verb, url, headers, data, _ = await self._api.param_serialize(
                method,
                where,
                query_params=list(query.items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = await self._api.call_api(verb, url, headers, data, _request_timeout=timeout)
            response: aiohttp.ClientResponse = answer.response
            API_CALLS.labels(method, _kind_in(where), response.status).inc()
            if response.status < 400:
                return response
            text = await response.text()
        except (aiohttp.ClientError, ApiException, TimeoutError, ValueError, OSError) as error:
            API_CALLS.labels(method, _kind_in(where), 0).inc()
            raise KubeError(0, f"{method} {where}: {str(error) or type(error).__name__}") from error
        raise error_for(response.status, _message(text, f"{method} {where}: HTTP {response.status}"))


def path(kind: str, namespace: str | None, name: str | None = None) -> str:
    """Return the path of a collection in one or all namespaces, or of an object."""
    version, plural = RESOURCES[kind]
    prefix = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    collection = f"{prefix}/namespaces/{namespace}/{plural}" if namespace else f"{prefix}/{plural}"
    return collection if name is None else f"{collection}/{name}"


def _kind_in(where: str) -> str:
    """Return the kind of the object or collection at a path: `/api/v1[/namespaces/NAME]/PLURAL...`, or
    `/apis/GROUP/VERSION...`; empty for another path.
    """
    parts = where.split("/")[3 if where.startswith("/api/") else 4 :] or [""]
    plural = parts[2] if parts[0] == "namespaces" and len(parts) > 2 else parts[0]
    return _KINDS.get(plural, "")


def _path_of(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return path(manifest["kind"], metadata["namespace"], metadata["name"])


def _message(text: str, otherwise: str) -> str:
    """Return the message of a Status object. Proxies in front of the API server may return other documents."""
    try:
        answer = json.loads(text)
    except ValueError:
        return otherwise
    message = answer.get("message") if isinstance(answer, dict) else None
    return str(message) if message else otherwise
