"""Command `python -m raptormq_operator uninstall`, which the chart runs after `helm uninstall` as a hook.

Resources outlive the operator. Without it nobody updates their statuses, so Ready becomes Unknown; and nobody removes
the finalizer of Topics, which would block the deletion of their namespaces for ever, so it is removed::

    helm uninstall -- Deployment, roles deleted -- hook: this command -- release purged
                            | rights end at once      remove finalizers, then mark statuses
    operator ---------------x.... SIGTERM .... end    again, until a pass changes nothing

An operator whose rights do not end with the chart's roles may still write until its process ends. The passes are
therefore repeated. If the API server does not respond, the command fails after `LIMIT_S`; Helm then reports the error
and completes the uninstallation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kubernetes.aio.client import ApiClient

from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq_operator import clock
from raptormq_operator.conditions import without_operator
from raptormq_operator.kube.client import RESOURCES, KubeClient, configuration
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.lanes import bounded
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.settings import Settings
from raptormq_operator.topic_finalizer import has_finalizer, set_finalizer

KINDS = ("Topic", "BrokerCluster", "SparkPipeline")
LIMIT_S = 60.0
"""Time limit in seconds. The chart's time limit for the hook, which includes the start of its pod, is longer."""
PAUSE_S = 2.0
"""Interval in seconds between two passes. A running operator restores a changed status within it."""
REQUEST_TIMEOUT_S = 10.0

log = get_logger(__name__)


class ResourcesRemain(RaptorMQError):
    """Resources still have the finalizer, or a status that says Ready."""


class Resources(Protocol):
    """The methods of `KubeClient` that this command uses. Every call raises only `KubeError`."""

    async def page(
        self, kind: str, namespace: str | None, selector: str = "", limit: int = ..., after: str = ""
    ) -> Manifest:
        """See `KubeClient.page`."""

    async def apply(self, manifest: Manifest, manager: str = ...) -> Manifest:
        """See `KubeApi.apply`."""

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """See `KubeApi.apply_status`."""


async def run(settings: Settings) -> None:
    """Release the resources in the namespaces that the operator watched.

    Raises:
        RaptorMQError: There is no configuration for the API server, or resources remain.
    """
    async with ApiClient(await configuration()) as connections:
        api = KubeClient(connections, timeout=REQUEST_TIMEOUT_S)
        await Release(api, settings.watch_namespaces or (None,), clock.timestamp)()


class Release:
    """Removes the finalizers and marks the statuses of all resources in `namespaces`; None means all namespaces."""

    def __init__(self, api: Resources, namespaces: Sequence[str | None], now: Callable[[], str]) -> None:
        self._api = api
        self._namespaces = namespaces
        self._now = now
        self._changed = False
        self._fault: str | None = None
        """The last error of the current pass."""
        self._released: set[str] = set()
        """Uids of the Topics whose finalizer was removed."""
        self._marked: set[str] = set()
        """Uids of the resources whose status was changed."""

    async def __call__(self, *, limit: float = LIMIT_S, pause: float = PAUSE_S) -> None:
        """Repeat passes until one changes nothing and has no error.

        Raises:
            ResourcesRemain: There was no such pass within `limit` seconds.
        """
        try:
            async with asyncio.timeout(limit):
                await self._repeat(pause)
        except TimeoutError as error:
            text = self._fault or "a running operator restores the resources"
            raise ResourcesRemain(
                f"the resources of the operator were not all released within {limit:g} s: {text}. A finalizer that"
                " remains blocks the deletion of its Topic and of its namespace. To remove it, run: kubectl patch topic"
                """ NAME --type=merge -p '{"metadata":{"finalizers":null}}'"""
            ) from error
        log.info("the status of %d resources is Unknown without an operator", len(self._marked))
        if self._released:
            text = "the finalizer of %d Topics was removed: without an operator, their topics stay on the brokers"
            log.warning(text, len(self._released))

    async def _repeat(self, pause: float) -> None:
        while await self._pass():  # noqa: ASYNC110 - no event tells of the end of another operator
            await asyncio.sleep(pause)

    async def _pass(self) -> bool:
        """Return whether another pass is needed."""
        self._changed, self._fault = False, None
        found = [body for kind in KINDS for namespace in self._namespaces for body in await self._list(kind, namespace)]
        await bounded(self._free(body) for body in found if body["kind"] == "Topic" and has_finalizer(body))
        await bounded(self._mark(body) for body in found)
        return self._changed or self._fault is not None

    async def _list(self, kind: str, namespace: str | None) -> list[Manifest]:
        found: list[Manifest] = []
        after = ""
        try:
            while True:
                page = await self._api.page(kind, namespace, after=after)
                found += ({**item, "kind": kind, "apiVersion": RESOURCES[kind][0]} for item in page["items"])
                after = page["metadata"].get("continue", "")
                if not after:
                    return found
        except KubeError as error:
            if error.status != 404:  # the definitions may have been deleted before
                self._fault = str(error)
        return found

    async def _free(self, body: Manifest) -> None:
        try:
            await set_finalizer(self._api, body, present=False)
        except KubeError as error:
            self._fault = str(error)
        else:
            self._changed = True
            self._released.add(body["metadata"]["uid"])

    async def _mark(self, body: Manifest) -> None:
        status: Mapping[str, Any] = body.get("status", {})
        before = status.get("conditions", [])
        after = without_operator(before, self._now())
        if after == before:
            return
        metadata = {key: body["metadata"][key] for key in ("name", "namespace", "uid")}
        manifest = {
            "apiVersion": body["apiVersion"],
            "kind": body["kind"],
            "metadata": metadata,
            "status": {**status, "conditions": after},
        }
        try:
            await self._api.apply_status(manifest)
        except KubeError as error:
            if error.status not in (404, 409):
                self._fault = str(error)
        else:
            self._changed = True
            self._marked.add(body["metadata"]["uid"])
