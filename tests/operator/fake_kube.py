"""In-memory replacement for the Kubernetes API, with the behaviour that the operator relies on.

Server-side apply keeps the fields of other managers and removes those that its manager no longer applies. The
generation counts changes of the spec. Deletion includes the owned objects. `settle` simulates the StatefulSet
controller.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from raptormq_operator.kube.errors import Conflict, KubeError
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names

Place = tuple[str, str, str]
"""Kind, namespace, name."""


class FakeKube:
    """`raptormq_operator.kube.client.KubeApi` in memory.

    `refuse` and `refuse_lists` map a kind to the error of its writes and of its lists.
    """

    def __init__(self) -> None:
        self.objects: dict[Place, Manifest] = {}
        self.writes: list[tuple[str, str, str]] = []
        self.reads = 0
        self.rewrite: Callable[[Manifest], Manifest] = lambda manifest: manifest
        """Converts applied objects into their stored form."""
        self.refuse: dict[str, KubeError] = {}
        self.refuse_lists: dict[str, KubeError] = {}
        self.protected: set[str] = set()
        """Pods whose eviction a disruption budget forbids."""
        self._applied: dict[tuple[Place, str], Manifest] = {}
        self._versions = 0

    def put(self, manifest: Manifest) -> Manifest:
        """Write an object as another manager."""
        stored = copy.deepcopy(manifest)
        metadata = stored["metadata"]
        self._versions += 1
        metadata.setdefault("uid", f"uid-{self._versions}")
        metadata.setdefault("generation", 1)
        metadata["resourceVersion"] = str(self._versions)
        self.objects[_place(manifest)] = stored
        return stored

    def settle(self) -> None:
        """Make all StatefulSets ready with the replicas of their specs."""
        for (kind, _, _), manifest in self.objects.items():
            if kind == "StatefulSet":
                replicas = manifest["spec"]["replicas"]
                manifest["status"] = {
                    "observedGeneration": manifest["metadata"]["generation"],
                    **dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), replicas),
                }

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        self.reads += 1
        if kind == "Secret" and kind in self.refuse_lists:
            raise self.refuse_lists[kind]
        return copy.deepcopy(self.objects.get((kind, namespace, name)))

    async def select(self, kind: str, namespace: str, selector: str) -> list[Manifest]:
        self.reads += 1
        if kind in self.refuse_lists:
            raise self.refuse_lists[kind]
        wanted = dict(pair.split("=") for pair in selector.split(",") if pair)
        return [
            copy.deepcopy(manifest)
            for place, manifest in self.objects.items()
            if place[:2] == (kind, namespace) and wanted.items() <= manifest["metadata"].get("labels", {}).items()
        ]

    async def page(
        self, kind: str, namespace: str | None, selector: str = "", limit: int = 2, after: str = ""
    ) -> Manifest:
        """Return `limit` objects after the first `after`. Items of a list have no kind."""
        self.reads += 1
        if kind in self.refuse_lists:
            raise self.refuse_lists[kind]
        assert not selector
        found = [each for place, each in self.objects.items() if place[0] == kind and namespace in (None, place[1])]
        begin = int(after or 0)
        items = [
            {key: value for key, value in each.items() if key not in ("kind", "apiVersion")}
            for each in copy.deepcopy(found[begin : begin + limit])
        ]
        more = {"continue": str(begin + limit)} if begin + limit < len(found) else {}
        return {"metadata": {"resourceVersion": str(self._versions), **more}, "items": items}

    async def warnings(self, namespace: str, kind: str, name: str) -> list[Manifest]:
        if "Event" in self.refuse_lists:
            raise self.refuse_lists["Event"]
        return [
            copy.deepcopy(event)
            for place, event in self.objects.items()
            if place[:2] == ("Event", namespace) and event["type"] == "Warning"
            if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (kind, name)
        ]

    async def apply(self, manifest: Manifest, manager: str = names.FIELD_MANAGER) -> Manifest:
        self._write("apply", manifest)
        place = _place(manifest)
        current = self.objects.get(place)
        uid = manifest["metadata"].get("uid")
        if uid is not None and (current is None or current["metadata"]["uid"] != uid):
            raise Conflict(409, "uid mismatch")
        base: Manifest = copy.deepcopy(current) if current else {"metadata": {"generation": 0}}
        without = _without(base, self._applied.get((place, manager), {}), manifest)
        merged = _merged(without, manifest)
        for field in {"selector"} & manifest.get("spec", {}).keys():  # an atomic map
            merged["spec"][field] = copy.deepcopy(manifest["spec"][field])
        merged = self.rewrite(merged)
        if current is None or merged.get("spec") != current.get("spec"):
            merged["metadata"]["generation"] = base["metadata"]["generation"] + 1
        self._applied[(place, manager)] = copy.deepcopy(manifest)
        if current is not None and merged == current:
            return copy.deepcopy(current)
        return self.put(merged)

    async def apply_status(self, manifest: Manifest) -> Manifest:
        self._write("status", manifest)
        current = self.objects.get(_place(manifest))
        if current is None or current["metadata"]["uid"] != manifest["metadata"]["uid"]:
            raise KubeError(404, "not found")
        return self.put({**current, "status": manifest["status"]})

    async def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        if dry_run:
            if manifest["kind"] in self.refuse:
                raise self.refuse[manifest["kind"]]
            return copy.deepcopy(manifest)
        self._write("create", manifest)
        if _place(manifest) in self.objects:
            raise Conflict(409, "already exists")
        return self.put(manifest)

    async def replace(self, manifest: Manifest) -> Manifest:
        self._write("replace", manifest)
        current = self.objects.get(_place(manifest))
        if current is None or current["metadata"]["resourceVersion"] != manifest["metadata"]["resourceVersion"]:
            raise Conflict(409, "the object has been modified")
        return self.put(manifest)

    async def merge(self, kind: str, namespace: str, name: str, patch: Manifest) -> Manifest:
        current = self.objects.get((kind, namespace, name))
        if current is None:
            raise KubeError(404, "not found")
        self._write("merge", current)
        return self.put(_merged(current, patch))

    async def evict(self, namespace: str, pod: str, uid: str) -> bool:
        if "Eviction" in self.refuse:
            raise self.refuse["Eviction"]
        if pod in self.protected:
            return False
        await self.delete("Pod", namespace, pod, uid)
        return True

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        current = self.objects.get((kind, namespace, name))
        if current is not None and current["metadata"]["uid"] == uid:
            self._write("delete", current)
            del self.objects[(kind, namespace, name)]

    def events(self) -> list[tuple[str, str]]:
        """(type, reason) of every Event, in the order of creation."""
        return [(event["type"], event["reason"]) for (kind, _, _), event in self.objects.items() if kind == "Event"]

    def _write(self, verb: str, manifest: Manifest) -> None:
        if manifest["kind"] in self.refuse:
            raise self.refuse[manifest["kind"]]
        self.writes.append((verb, manifest["kind"], manifest["metadata"]["name"]))


def _place(manifest: Manifest) -> Place:
    return manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _merged(base: Any, patch: Any) -> Any:
    if isinstance(base, dict) and isinstance(patch, dict):
        return {**base, **{key: _merged(base.get(key), value) for key, value in patch.items()}}
    return copy.deepcopy(patch)


def _without(base: Any, before: Any, now: Any) -> Any:
    """Return `base` without the fields that were applied before and are no longer applied."""
    if not (isinstance(base, dict) and isinstance(before, dict)):
        return base
    kept = {}
    for key, value in base.items():
        if key in before and not (isinstance(now, dict) and key in now):
            continue
        kept[key] = _without(value, before.get(key), now.get(key)) if isinstance(now, dict) else value
    return kept
