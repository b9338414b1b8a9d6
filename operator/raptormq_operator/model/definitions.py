"""Resources that the API server has filled in with the defaults of an older definition than the one in crds/."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from raptormq.errors import RaptorMQError


class OldDefinition(RaptorMQError):
    """The definition in this Kubernetes does not know a field that the operator needs."""


@contextmanager
def filled_in(body: Mapping[str, Any]) -> Iterator[None]:
    """While a resource is read.

    Raises:
        OldDefinition: a field is missing.
    """
    try:
        yield
    except KeyError as error:
        kind = body.get("kind", "the resource")
        text = f"{kind} has no field {error}: the definitions in this Kubernetes are older than the operator"
        raise OldDefinition(f"{text}, bring them up to date with the chart's crds/") from error
