"""Writes a status with its Ready condition when it differs from what is there, and tells people of transitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from raptormq_operator.conditions import Concern, Reason, Verdict, concern_conditions, ready_condition
from raptormq_operator.kube.client import KubeApi
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.metrics import READY, REASON

QUIET_REASONS = frozenset(
    {Reason.READY, Reason.PROGRESSING, Reason.PODS_NOT_READY, Reason.CLUSTER_NOT_READY, Reason.DELETING}
)
"""Reasons that belong to normal life unless they block; all others are worth a warning Event."""
NO_CONCERNS: Mapping[Concern, str] = {}


class StatusWriter:
    """The one place where statuses are written."""

    def __init__(self, api: KubeApi, events: EventRecorder, now: Callable[[], str]) -> None:
        self._api = api
        self._events = events
        self._now = now
        self._reasons: dict[tuple[str, str, str], Reason] = {}

    async def write(
        self,
        body: Manifest,
        status: dict[str, Any],
        verdict: Verdict,
        concerns: Mapping[Concern, str] = NO_CONCERNS,
        *,
        told: bool = False,
    ) -> Manifest | None:
        """`body` is the resource as it was read; its old status decides what changes. With `told` an Event has said it
        already. Returns the resource with the new status, None when nothing was written. Raises `KubeError`."""
        metadata, before = body["metadata"], body.get("status", {})
        previous: list[dict[str, Any]] = before.get("conditions", [])
        condition = ready_condition(verdict, metadata["generation"], previous, self._now())
        further = concern_conditions(concerns, metadata["generation"], previous, self._now())
        self._measure(body, verdict)
        after = {**status, "conditions": [condition, *further]}
        if after == before:
            return None
        address = {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
        manifest = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": address, "status": after}
        try:
            written = await self._api.apply_status(manifest)
        except KubeError as error:
            if error.status in (404, 409):  # deleted meanwhile, or made anew under the same name
                return None
            raise
        if not told:
            await self._tell(body, previous, condition, verdict)
        for each in further:
            if not _said_before(previous, each, "message"):
                await self._events.warning(body, each["reason"], each["message"])
        return written

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """The resource is gone: its metrics go too."""
        READY.labels(kind, namespace, name)  # removing one that never was is an error
        READY.remove(kind, namespace, name)
        self._forget_reason((kind, namespace, name))

    def _measure(self, body: Manifest, verdict: Verdict) -> None:
        place = (body["kind"], body["metadata"]["namespace"], body["metadata"]["name"])
        READY.labels(*place).set(verdict.ready)
        if self._reasons.get(place) != verdict.reason:
            self._forget_reason(place)
            self._reasons[place] = verdict.reason
            REASON.labels(*place, verdict.reason).set(1)

    def _forget_reason(self, place: tuple[str, str, str]) -> None:
        reason = self._reasons.pop(place, None)
        if reason is not None:
            REASON.remove(*place, reason)

    async def _tell(
        self, body: Manifest, previous: list[dict[str, Any]], condition: dict[str, Any], verdict: Verdict
    ) -> None:
        """A warning says the words of the condition, again when they change; what is normal is said once."""
        if verdict.reason in QUIET_REASONS and not verdict.blocked:
            if not _said_before(previous, condition, "reason"):
                await self._events.normal(body, condition["reason"], condition["message"])
        elif not _said_before(previous, condition, "message"):
            await self._events.warning(body, condition["reason"], condition["message"])


def _said_before(previous: list[dict[str, Any]], condition: dict[str, Any], field: str) -> bool:
    """Whether the condition was there with the same reason and the same value of this field."""
    return any(
        before["type"] == condition["type"]
        and before["reason"] == condition["reason"]
        and before[field] == condition[field]
        for before in previous
    )
