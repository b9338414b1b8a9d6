"""Detection of resources whose defaults come from an older CustomResourceDefinition than the one in crds/."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from raptormq.errors import RaptorMQError


class OldDefinition(RaptorMQError):
    """The installed CustomResourceDefinition lacks a field that the operator needs."""


@contextmanager
def filled_in(body: Mapping[str, Any]) -> Iterator[None]:
    """Context for parsing the resource `body`: converts a KeyError.

    Raises:
        OldDefinition: A field is missing.
    """
    try:
        yield
    except KeyError as error:
        kind = body.get("kind", "the resource")
        text = f"{kind} has no field {error}: the installed CustomResourceDefinitions are older than the operator"
        raise OldDefinition(f"{text}, update them from crds/ of the chart") from error
