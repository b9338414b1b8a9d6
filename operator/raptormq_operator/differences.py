"""Differences between an object on the API server and the wanted manifest.

The API server adds defaults, omits empty values and normalizes quantities; other controllers add their own fields.
None of these is a difference. The comparison follows the merge strategies of server-side apply (Kubernetes
documentation, "Server-Side Apply", merge strategy):

    map                   each wanted field; fields of others are ignored
    atomic map            as one value: an additional key in the selector of a Service selects other pods
    list of maps by keys  each wanted item, matched by its keys; admission plugins may insert items
    atomic list           item by item; a different length is a difference

Other normalizations of the API server are detected by an apply that changes nothing (`convergence`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any, NamedTuple

from raptormq_operator.quantity import quantity

_ATOMIC_MAPS = frozenset({"labelSelector", "namespaceSelector", "nodeSelector", "selector"})
_KEYS_OF_LISTS = {
    "containers": ("name",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
    # containerPort identifies ports of a container, port those of a Service.
    "ports": ("containerPort", "port", "protocol"),
}
"""Fields that identify an item, by the name of the list."""
_WITH_QUANTITIES = frozenset({"limits", "requests"})
_FRACTIONS = (Decimal("1E-3"), Decimal("1E-6"), Decimal("1E-9"))
_MAX_TEXT = 120
_ABSENT = object()


class Difference(NamedTuple):
    """A field whose value differs from the wanted value. Values are JSON texts; "" when the field is absent."""

    field: str
    """Path of the field: `spec.template.spec.containers[name=broker].image`."""
    has: str
    wants: str

    def __str__(self) -> str:
        return f"{self.field} is {_cut(self.has) or 'not set'}, wanted {_cut(self.wants)}"


def differences(observed: Any, wanted: Any) -> tuple[Difference, ...]:
    """Return the fields of `wanted` that `observed` lacks or has with another value. Both are JSON values."""
    return tuple(_differences(observed, wanted, ""))


def _differences(observed: Any, wanted: Any, path: str) -> Iterator[Difference]:
    field = path.rpartition(".")[2].partition("[")[0]
    if _is_empty(wanted) and (observed is _ABSENT or _is_empty(observed)):
        return
    if isinstance(wanted, dict) and isinstance(observed, dict):
        if field in _ATOMIC_MAPS:
            if _without_empty(observed) != _without_empty(wanted):
                yield _difference(path, observed, wanted)
            return
        for key, value in wanted.items():
            yield from _differences(observed.get(key, _ABSENT), value, f"{path}.{key}" if path else str(key))
    elif isinstance(wanted, list) and isinstance(observed, list):
        yield from _in_lists(observed, wanted, path, _KEYS_OF_LISTS.get(field))
    elif not _same(observed, wanted, path):
        yield _difference(path, observed, wanted)


def _in_lists(observed: list[Any], wanted: list[Any], path: str, keys: tuple[str, ...] | None) -> Iterator[Difference]:
    if keys is None:
        if len(observed) != len(wanted):
            yield _difference(path, observed, wanted)
            return
        for number, (has, wants) in enumerate(zip(observed, wanted, strict=True)):
            yield from _differences(has, wants, f"{path}[{number}]")
        return
    by_keys = {_identity(item, keys): item for item in observed}
    for item in wanted:
        identity = _identity(item, keys)
        where = ",".join(f"{key}={value}" for key, value in identity)
        yield from _differences(by_keys.get(identity, _ABSENT), item, f"{path}[{where}]")


def _identity(item: Any, keys: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((key, item[key]) for key in keys if isinstance(item, Mapping) and key in item)


def _same(observed: Any, wanted: Any, path: str) -> bool:
    if observed is _ABSENT:
        return False
    if isinstance(observed, bool) != isinstance(wanted, bool):  # True == 1 in Python, not in JSON
        return False
    return bool(observed == wanted) or (_is_quantity(path) and _same_quantity(observed, wanted))


def _is_quantity(path: str) -> bool:
    """Return whether a path such as `....resources.requests.cpu` has a quantity. The server normalizes quantities:
    1000m to 1, and 1.3333Gi to millionths of a byte."""
    parents = path.split(".")[-3:-1]
    return parents[:1] == ["resources"] and parents[-1] in _WITH_QUANTITIES


def _same_quantity(observed: Any, wanted: Any) -> bool:
    """Compare quantities. The server rounds up to a representable unit: 860.916588Pi to thousandths of a byte."""
    has, wants = quantity(observed), quantity(wanted)
    if has is None or wants is None:
        return False
    return has == wants or any(has == wants.quantize(unit, ROUND_CEILING) for unit in _FRACTIONS)


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_empty(inner) for key, inner in value.items() if not _is_empty(inner)}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def _is_empty(value: Any) -> bool:
    """Return whether the API server omits this value in most fields."""
    return value is None or value in ({}, [], "")


def _difference(path: str, observed: Any, wanted: Any) -> Difference:
    return Difference(path, "" if observed is _ABSENT else _text(observed), _text(wanted))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."
