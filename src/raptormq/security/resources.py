"""Resources and actions of permissions (``Resource``, ``Action``): ``Topic:orders``, ``Group:billing*``, ``Cluster:*``,
or ``*`` for all resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from raptormq.protocol.topic_names import RETRY_PREFIX

ANY_TYPE = "Any"
_TYPES = {"unknown": "Unknown", "any": "Any", "cluster": "Cluster", "namespace": "Namespace"} | {
    "topic": "Topic",
    "group": "Group",
}
ACTIONS = ("Unknown", "All", "Any", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
_ACTIONS = {name.lower(): name for name in ACTIONS}


class Pattern(IntEnum):
    """How a resource is compared with a name, from the most to the least specific way."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource, or a pattern of resources."""

    kind: str
    name: str = ""
    pattern: Pattern = Pattern.LITERAL

    @property
    def key(self) -> str:
        """Text form, the inverse of :func:`parse_resource`."""
        if self.kind == ANY_TYPE:
            return "*"
        return f"{self.kind}:{self.name}{'' if self.pattern is Pattern.LITERAL else '*'}"

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key by precedence: a literal, a longer prefix, a shorter prefix, all of a type, all resources."""
        return self.kind == ANY_TYPE, self.pattern, -len(self.name)

    def matches(self, other: Resource) -> bool:
        """Return whether ``other``, a literal, matches this pattern."""
        if self.kind == ANY_TYPE:
            return True
        if self.kind != other.kind:
            return False
        if self.pattern is Pattern.LITERAL:
            return self.name == other.name
        return self.pattern is Pattern.ANY or other.name.startswith(self.name)


class RequiredPermission(NamedTuple):
    """A permission that a request requires: any of ``actions`` on ``resource``."""

    resource: Resource
    actions: tuple[str, ...]


def parse_resource(text: str | None) -> Resource | None:
    """Return the resource, or None if the text is empty or has an unknown type, which RocketMQ ignores."""
    if not text or text.isspace():
        return None
    if text == "*":
        return Resource(ANY_TYPE, pattern=Pattern.ANY)
    kind, _, name = text.partition(":")
    known = _TYPES.get(kind.lower())
    if known is None:
        return None
    if name == "*":
        return Resource(known, pattern=Pattern.ANY)
    if name.endswith("*"):
        return Resource(known, name.partition("*")[0], Pattern.PREFIXED)
    return Resource(known, name)


def action_named(text: str) -> str | None:
    """Return the canonical name of an action, or None for an unknown one."""
    return _ACTIONS.get(text.lower())


def resources_of(topic: str) -> list[Resource]:
    """Return the resources of a topic name. The resource of a retry topic is its group. The retry topic of POP
    consumption, ``%RETRY%group+topic``, has two resources, the group and the original topic.
    """
    if not topic.startswith(RETRY_PREFIX):
        return [Resource("Topic", topic)]
    group, plus, popped = topic.removeprefix(RETRY_PREFIX).partition("+")  # neither name can contain a plus
    found = [group_resource(group)]
    return [*found, Resource("Topic", popped)] if plus else found


def group_resource(group: str) -> Resource:
    """Return the resource of a group. ``group`` may also be the name of its retry topic."""
    return Resource("Group", group.removeprefix(RETRY_PREFIX))
