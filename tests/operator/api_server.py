"""Simulation of how the API server validates and stores objects: specs that a definition accepts, and manifests as they
are stored.

`tests/api/test_convergence.py` submits the same specs to a real API server.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from random import Random
from typing import Any

from hypothesis import strategies as st

from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.quantity import quantity
from tests.operator.resources import schema

WORDS = st.sampled_from(["a", "b", "ssd", "zone-1"])
SELECTORS = st.fixed_dictionaries(
    {"matchLabels": st.dictionaries(WORDS, WORDS, min_size=1, max_size=2)},
    optional={"matchExpressions": st.just([{"key": "a", "operator": "Exists", "values": []}])},
)
AFFINITIES = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.sampled_from(
            [
                None,
                {},
                {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [],
                },
            ]
        ),
        "podAntiAffinity": st.none()
        | st.builds(
            lambda selector: {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname", "namespaces": []}
                ]
            },
            SELECTORS,
        ),
    },
)
TOLERATIONS = st.lists(
    st.sampled_from(
        [
            {"key": "", "operator": "Exists"},
            {"key": "a", "operator": "Exists", "value": ""},
            {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 0},
            {"key": "a", "value": "", "effect": "NoSchedule"},
            {"key": "a", "operator": "Equal", "value": ""},
        ]
    ),
    max_size=3,
)
"""Affinities and tolerations that both the definition and a pod accept."""
SPECIAL = {"affinity": AFFINITIES, "tolerations": TOLERATIONS}
NAMES = st.from_regex(r"[a-z]([a-z0-9]{0,8})", fullmatch=True)
FOR_NAMES = {
    "image": st.sampled_from(["raptormq:1", "registry.example/raptormq@sha256:0"]),
    "name": NAMES,
    "secretName": NAMES,
    "storageClassName": NAMES,
    "priorityClassName": NAMES,
    "nodeSelector": st.dictionaries(WORDS, WORDS | st.just(""), max_size=2),
    "labels": st.dictionaries(WORDS, WORDS | st.just(""), max_size=2),
    "annotations": st.dictionaries(WORDS, st.text("ab \u00e9\n", max_size=5), max_size=2),
    "config": st.dictionaries(st.sampled_from(["fileReservedTime", "maxMessageSize"]), st.sampled_from(["48", ""])),
}
"""Values of fields whose format the definition does not specify, but the API server checks."""


@st.composite
def specs(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """Specs that the definition of a kind accepts, including its CEL rules."""
    spec: dict[str, Any] = draw(_values(schema(kind)["properties"]["spec"], ""))
    if kind == "BrokerCluster":
        spec["replication"], spec["replicas"] = {"mode": "none"}, 1
        if spec.get("groups", 1) > 2:
            spec["groups"] = 2
        if spec.get("metrics", {}).get("port") in (9876, 10909, 10911, 10912):
            del spec["metrics"]
        if not 0 < (quantity(spec.get("storage", {}).get("size", "1")) or 0) <= 1 << 50:
            del spec["storage"]
        access = spec.get("accessControl", {})
        if access.get("adminSecretName") == access.get("operatorSecretName"):
            access.pop("operatorSecretName", None)
        for part in (spec, spec.get("nameServers", {})):
            _fit_requests(part.get("resources", {}))
    return spec


def _fit_requests(resources: dict[str, Any]) -> None:
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    if (quantity(limits.get("memory")) or 0) < 64 << 20:
        limits.pop("memory", None)
    for name in requests.keys() & limits.keys():
        if (quantity(requests[name]) or 0) > (quantity(limits[name]) or 0):
            requests[name] = limits[name]


def _values(part: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
    if name in SPECIAL:
        return SPECIAL[name]
    if name in FOR_NAMES:
        return FOR_NAMES[name]
    if "enum" in part:
        return st.sampled_from(part["enum"])
    if "x-kubernetes-int-or-string" in part:
        texts = st.from_regex(part["pattern"], fullmatch=True).filter(lambda text: len(text) <= part["maxLength"])
        return texts | st.integers(part["minimum"], min(part.get("maximum", 2**40), 2**40))
    kind = part["type"]
    if kind == "boolean":
        return st.booleans()
    if kind == "integer":
        return st.integers(part.get("minimum", -(2**31)), part.get("maximum", 2**31))
    if kind == "string":
        return st.from_regex(part.get("pattern", "^[a-z]{1,8}$"), fullmatch=True).filter(
            lambda text: len(text) <= part.get("maxLength", 64)
        )
    if kind == "array":
        items = _values(part["items"], "")
        return st.lists(items, max_size=2, unique_by=str)
    properties = {key: _values(inner, key) for key, inner in part.get("properties", {}).items()}
    required = {key: properties.pop(key) for key in part.get("required", ())}
    return st.fixed_dictionaries(required, optional=properties)


def as_stored(manifest: Manifest, random: Random) -> Manifest:
    """Return an object as the API server returns it: without empty fields, with normalized quantities, and with fields
    of other managers and defaults.
    """
    stored: Manifest = _stored(manifest, "", random)
    return stored


_KEPT_EMPTY = frozenset({"emptyDir", "nodeAffinity", "podAntiAffinity", "podAffinity"})
_MAPS_OF_TEXTS = frozenset({"annotations", "labels", "data", "matchLabels", "nodeSelector", "selector"})
_LISTS_WITH_OTHERS = frozenset({"containers", "volumes", "ownerReferences"})


def _stored(value: Any, name: str, random: Random) -> Any:
    if name in ("requests", "limits"):
        return {key: canonical(text) for key, text in value.items()}
    if isinstance(value, list):
        items = [_stored(item, "item", random) for item in value]
        if name in _LISTS_WITH_OTHERS and random.random() < 0.5:
            items.insert(0, {"name": "injected", "uid": "injected"})
        return items
    if not isinstance(value, dict):
        return value
    if name in _MAPS_OF_TEXTS and all(isinstance(text, str) for text in value.values()):
        return {**value, **({"theirs": "x"} if name in ("annotations", "labels", "data") else {})}
    found = {
        key: _stored(inner, key, random)
        for key, inner in value.items()
        if inner not in (None, "", [], {}) or (inner == {} and key in _KEPT_EMPTY)
    }
    added = name in ("spec", "template", "metadata", "") and "matchLabels" not in value
    return found | ({"defaulted": 1} if added else {})


_BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
_DECIMAL = {0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E", -3: "m", -6: "u", -9: "n"}


def canonical(value: Any) -> str:
    """Normalize a quantity like the API server (apimachinery, resource.Quantity): no fraction, and the largest unit
    that permits this.
    """
    text = str(value)
    amount = quantity(text)
    assert amount is not None
    binary = text.endswith("i")
    if binary and amount == amount.to_integral_value() and amount >= 1024:
        power = 0
        while power < 6 and amount % 1024 == 0:
            amount, power = amount / 1024, power + 1
        return f"{int(amount)}{_BINARY[power]}"
    nano = int((amount * 10**9).to_integral_value(ROUND_CEILING))
    exponent = -9
    while nano and nano % 1000 == 0 and exponent < 18:
        nano, exponent = nano // 1000, exponent + 3
    return f"{Decimal(nano):f}{_DECIMAL[exponent] if nano else ''}"
