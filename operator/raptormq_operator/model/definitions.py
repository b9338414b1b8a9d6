"""Detection of resources whose defaults come from an older CustomResourceDefinition than the one in crds/."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from raptormq.errors import RaptorMQError

P = ParamSpec("P")
C = TypeVar("C")
T = TypeVar("T")


class OldDefinition(RaptorMQError):
    """The installed CustomResourceDefinition lacks a field that the operator needs."""


def needs_current_definition(
    parse: Callable[Concatenate[C, Mapping[str, Any], P], T],
) -> Callable[Concatenate[C, Mapping[str, Any], P], T]:
    """Decorate the parser of a resource: a KeyError for a missing field becomes an :class:`OldDefinition`."""

    @wraps(parse)
    def parse_resource(cls: C, body: Mapping[str, Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return parse(cls, body, *args, **kwargs)
        except KeyError as error:
            kind = body.get("kind", "the resource")
            text = f"{kind} has no field {error}: the installed CustomResourceDefinitions are older than the operator"
            raise OldDefinition(f"{text}, update them from crds/ of the chart") from error

    return parse_resource
