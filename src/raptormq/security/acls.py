"""Permissions of users (``Acl``, ``AclAuthorizationHandler``), stored in ``acls.json``.

An ACL belongs to a subject ``User:name`` and has at most two policies, Custom and Default. A policy is a list of
entries (resource, actions, source addresses, decision). If Custom entries match a request, one of them applies.
Otherwise a matching Default entry applies. Of several matching entries, the one with the most specific resource
applies. If no entry matches, the request is denied.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from raptormq.errors import BodyError
from raptormq.security.resources import Resource, action_named, parse_resource
from raptormq.security.users import denied

POLICY_TYPES = ("Custom", "Default")
_POLICY_TYPES = {name.lower(): name for name in POLICY_TYPES}
_DECISIONS = {"allow": "Allow", "deny": "Deny"}
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Entry:
    """Allows or denies ``actions`` on ``resource`` from the addresses ``source_ips`` (empty: all addresses)."""

    resource: Resource
    actions: tuple[str, ...]
    source_ips: tuple[str, ...]
    decision: str

    def matches(self, resource: Resource, actions: Iterable[str], source_ip: str) -> bool:
        """Return whether the entry covers any of ``actions`` on ``resource`` from ``source_ip``."""
        return (
            self.resource.matches(resource)
            and ("All" in self.actions or any(action in self.actions for action in actions))
            and (not self.source_ips or any(_contains(network, source_ip) for network in self.source_ips))
        )

    @property
    def precedence(self) -> tuple[tuple[int, int, int], bool]:
        """Sort key: the entry with the lowest key applies. Deny precedes Allow for the same resource."""
        return self.resource.rank, self.decision != "Deny"

    def to_dict(self) -> dict[str, Any]:
        """Return the entry in the format of mqadmin."""
        shown: dict[str, Any] = {"actions": list(self.actions), "decision": self.decision}
        shown["resource"] = self.resource.key
        if self.source_ips:
            shown["sourceIps"] = list(self.source_ips)
        return shown


Policies = dict[str, dict[Resource, Entry]]
"""Entries by policy type and resource, in order of creation."""


class AclTable:
    """All ACLs by subject (``User:name``)."""

    def __init__(self, saved: dict[str, Any] | None = None) -> None:
        """Load a saved table.

        Raises:
            BodyError: the table does not have the expected format.
        """
        self._acls = _parse_acls(saved or {})
        self._changed: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after every change."""
        self._changed.append(callback)

    def adopt(self, saved: dict[str, Any]) -> None:
        """Replace all ACLs by those of another copy, in the form of :meth:`to_dict`.

        Raises:
            BodyError, Refused: the table does not have the expected shape; nothing is changed.
        """
        acls = _parse_acls(saved)
        if acls != self._acls:
            self._acls = acls
            self._notify()

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of the file."""
        return {"acls": [_shown(subject, policies) for subject, policies in self._acls.items()]}

    def shown(self, subject: str) -> dict[str, Any] | None:
        """Return one ACL in the format of mqadmin, or None."""
        policies = self._acls.get(subject)
        return None if policies is None else _shown(subject, policies)

    def matching(self, subject_filter: str | None, resource_filter: str | None) -> list[dict[str, Any]]:
        """Return the ACLs whose subject contains ``subject_filter``, with the entries whose resource contains
        ``resource_filter``. If a subject contains ``resource_filter``, all its entries are returned.
        """
        found: list[dict[str, Any]] = []
        for subject in sorted(self._acls):
            if subject_filter and subject_filter not in subject:
                continue
            everything = not resource_filter or resource_filter in subject
            policies = {
                kind: {
                    resource: entry
                    for resource, entry in entries.items()
                    if everything or (resource_filter or "") in resource.key
                }
                for kind, entries in self._acls[subject].items()
            }
            kept = {kind: entries for kind, entries in policies.items() if entries}
            if kept:
                found.append(_shown(subject, kept))
        return found

    def put(self, subject: str, policies: Policies) -> None:
        """Add entries to the ACL of a subject. An entry replaces the entry of the same resource."""
        known = self._acls.setdefault(subject, {})
        for kind, entries in policies.items():
            known.setdefault(kind, {}).update(entries)
        self._notify()

    def delete(self, subject: str, kind: str | None = None, resource: Resource | None = None) -> None:
        """Remove an ACL or, with ``resource``, its entry in the policy ``kind`` (default: Custom)."""
        policies = self._acls.get(subject)
        if policies is None:
            return
        if resource is not None:
            entries = policies.get(kind or "Custom", {})
            entries.pop(resource, None)
            if not entries:
                policies.pop(kind or "Custom", None)
        if resource is None or not policies:
            del self._acls[subject]
        self._notify()

    def denial_reason(self, subject: str, resource: Resource, actions: Iterable[str], source_ip: str) -> str | None:
        """Return why a request is denied, or None if it is allowed."""
        policies = self._acls.get(subject, {})
        requested = tuple(actions)
        for kind in POLICY_TYPES:
            matching = [
                entry for entry in policies.get(kind, {}).values() if entry.matches(resource, requested, source_ip)
            ]
            if matching:
                applied = min(matching, key=lambda entry: entry.precedence)
                return "the decision is deny." if applied.decision == "Deny" else None
        return "no matched policies."

    def _notify(self) -> None:
        for callback in self._changed:
            callback()


def _parse_acls(saved: dict[str, Any]) -> dict[str, Policies]:
    return {str(acl.get("subject")): parse_policies(acl) for acl in saved.get("acls", [])}


def parse_policies(acl: dict[str, Any]) -> Policies:
    """Parse the policies of a request body or of the saved table.

    Raises:
        BodyError: the body does not have the expected format.
        Refused: the body has no valid policy (code 16).
    """
    policies: Policies = {}
    try:
        for policy in acl.get("policies") or []:
            kind = _POLICY_TYPES.get(str(policy.get("policyType")).lower(), "Custom")
            entries = policy.get("entries") or []
            parsed = [_parse_entry(entry) for entry in entries]
            if parsed:
                policies.setdefault(kind, {}).update((entry.resource, entry) for entry in parsed)
    except (AttributeError, TypeError) as error:
        raise BodyError(f"not an ACL: {error}") from error
    if not policies:
        raise denied("The policies is empty.")
    return policies


def policy_type(text: str | None) -> str | None:
    """Return the canonical name of a policy type, or None for an unknown one."""
    return _POLICY_TYPES.get((text or "").lower())


def _parse_entry(entry: dict[str, Any]) -> Entry:
    resource = parse_resource(entry.get("resource"))
    if resource is None:
        raise denied("The resource is null.")
    named = (action_named(str(action)) for action in entry.get("actions") or [])
    actions = tuple(dict.fromkeys(action for action in named if action is not None))
    if not actions:
        raise denied("The actions is empty.")
    if "Any" in actions:
        raise denied("The actions can not be Any.")
    source_ips = tuple(str(address) for address in entry.get("sourceIps") or [])
    for address in source_ips:
        if not address.strip():
            raise denied("The source ip is empty.")
        if _network(address) is None:
            raise denied("The source ip is invalid.")
    decision = _DECISIONS.get(str(entry.get("decision")).lower())
    if decision is None:
        raise denied("The decision is null or illegal.")
    return Entry(resource, actions, source_ips, decision)


def _shown(subject: str, policies: Policies) -> dict[str, Any]:
    shown = [
        {"entries": [entry.to_dict() for entry in entries.values()], "policyType": kind}
        for kind, entries in policies.items()
    ]
    return {"policies": shown, "subject": subject}


@lru_cache(maxsize=1024)
def _network(text: str) -> _Network | None:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return None


def _contains(network: str, address: str) -> bool:
    parsed = _network(network)
    try:
        return parsed is not None and ipaddress.ip_address(address) in parsed
    except ValueError:
        return False
