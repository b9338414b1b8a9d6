"""Status of a BrokerCluster: pure, from the spec, what exists and what the brokers said.

Ready is the claim that clients can use the whole cluster as it was asked for, so the checks go from the objects to the
pods to the answers, and the first thing that is missing is the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raptormq_operator.cluster_probe import ClusterProbe
from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.manifests.config import denied_keys
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Member
from raptormq_operator.plan import Plan
from raptormq_operator.pod_diagnostics import NO_DIAGNOSTICS, PodDiagnostics

NOTHING: Mapping[str, Mapping[str, Any]] = {}


def refusal(cluster: Cluster) -> Verdict | None:
    """Why the spec cannot be acted on at all; None when it can. What runs already is then left alone."""
    if cluster.replication_mode != "none":
        return Verdict(
            Reason.NOT_SUPPORTED,
            f"replication.mode {cluster.replication_mode} is not available in this version, only none; since the mode "
            "cannot be changed, delete this BrokerCluster and make it anew",
        )
    denied = denied_keys(cluster)
    if denied:
        return Verdict(
            Reason.CONFIG_DENIED,
            f"these keys belong to the operator, remove them or set the field beside them: {', '.join(denied)}",
        )
    return None


def held_by_budget(pods: Sequence[str]) -> Verdict:
    """A change is written, and its pods have to wait until no other broker is away."""
    text = f"the disruption budget does not allow to evict {', '.join(pods)} for a change: another broker is away"
    return Verdict(Reason.PROGRESSING, text)


def secret_not_usable(fault: str) -> Verdict:
    """Access control needs a Secret that cannot be had."""
    return Verdict(Reason.SECRET_NOT_USABLE, fault)


def verdict(cluster: Cluster, plan: Plan, probe: ClusterProbe, words: PodDiagnostics = NO_DIAGNOSTICS) -> Verdict:
    """Whether the cluster is what the spec wants, judged after the steps of `plan` were taken.

    `words` are those of pods that are not ready.
    """
    if plan.conflicts:
        text = f"made by someone else, remove or give the cluster another name: {', '.join(plan.conflicts)}"
        return Verdict(Reason.NAME_CONFLICT, text)
    held = _held(plan)
    if plan.steps:
        return Verdict(Reason.PROGRESSING, "; ".join([f"{len(plan.steps)} objects are being changed", *held]))
    if words.failing:
        return Verdict(Reason.PODS_FAILING, "; ".join([words.failing, *held]))
    if plan.waiting:
        text = f"pods are not available yet: {', '.join(plan.waiting)}"
        texts = [text, *filter(None, [words.waiting]), *held]
        return Verdict(Reason.PODS_NOT_READY, "; ".join(texts), blocked=bool(words.waiting))
    gaps = gaps_in(cluster, probe)
    if gaps is not None:
        return Verdict(gaps.reason, "; ".join([gaps.message, *held]))
    if plan.staying:
        text = f"something else sets fields again after they were applied: {'; '.join(plan.staying)}"
        return Verdict(Reason.OBJECT_DIFFERS, "; ".join([text, *held]))
    if held:
        return Verdict(Reason.PROGRESSING, "; ".join(held))
    return _ready(cluster, probe)


def _held(plan: Plan) -> list[str]:
    """Which brokers wait with which change, and why; those that wait alike together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for held in plan.held:
        alike.setdefault((held.change, held.why), []).append(held.broker)
    return [f"waiting to be changed ({change}): {', '.join(names)}, as {why}" for (change, why), names in alike.items()]


def _ready(cluster: Cluster, probe: ClusterProbe) -> Verdict:
    """A setting that brokers do not know is most often a typing error, and harms nobody."""
    text = f"{len(cluster.members)} brokers serve and are listed by {cluster.name_servers.replicas} name servers"
    return Verdict(Reason.READY, "; ".join([text, *sorted(probe.unknown_settings)]))


def gaps_in(cluster: Cluster, probe: ClusterProbe) -> Verdict | None:
    """What is missing in the answers of name servers and brokers; None when every name server lists every broker."""
    if probe.refusals:
        return Verdict(Reason.BROKER_REFUSED, f"the operator is refused by {_said(probe.refusals)}")
    unheard = {server: said for server, said in probe.name_servers.items() if isinstance(said, str)}
    if unheard:
        return Verdict(Reason.NAME_SERVER_UNREACHABLE, _said(unheard))
    silent = {broker: said for broker, said in probe.brokers.items() if said is not None}
    if silent:
        return Verdict(Reason.BROKER_UNREACHABLE, _said(silent))
    missing = {server: probe.missing(server, cluster) for server in probe.name_servers}
    lists = [
        f"{server} does not list {', '.join(member.name for member in members)}"
        for server, members in missing.items()
        if members
    ]
    return Verdict(Reason.NOT_REGISTERED, "; ".join(lists)) if lists else None


def status(
    cluster: Cluster,
    probe: ClusterProbe,
    plan: Plan | None = None,
    previous: Mapping[str, Mapping[str, Any]] = NOTHING,
    now: str = "",
    stores: Mapping[str, Mapping[str, Any]] = NOTHING,
) -> dict[str, Any]:
    """The status without conditions. There is no plan for a spec that is refused: no broker runs that.

    `previous` are the brokers of the status before, by name: what waited then waits since then. `stores` is what is
    kept of each broker's store (`concerns`).
    """
    members = cluster.members
    serving = probe.serving(cluster)
    informed = probe.informed(cluster)
    updated = plan.updated if plan is not None else frozenset()
    held = {each.broker: each for each in plan.held} if plan is not None else {}

    def broker(member: Member) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": member.name,
            "group": member.broker_name,
            "address": member.address,
            "ready": member.name in serving,
            "updated": member.name in updated,
        }
        waits = held.get(member.name)
        if waits is not None:
            since = previous.get(member.name, {}).get("waiting", {}).get("since", now)
            found["waiting"] = {"change": waits.change, "reason": waits.why, "since": since}
        if member.name in stores:
            found["store"] = dict(stores[member.name])
        return found

    return {
        "observedGeneration": cluster.generation,
        "groups": cluster.groups,
        "selector": names.selector(names.broker_labels(cluster.name)),
        "brokersReady": f"{len(serving)}/{len(members)}",
        "brokersUpdated": f"{len(updated)}/{len(members)}",
        "nameServersReady": f"{len(informed)}/{cluster.name_servers.replicas}",
        "nameServerAddress": cluster.name_server_address,
        "brokers": [broker(member) for member in members],
    }


def _said(answers: Mapping[str, str]) -> str:
    return "; ".join(f"{address}: {text}" for address, text in answers.items())
