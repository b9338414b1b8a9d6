"""Status of a BrokerCluster: pure, from the spec, what exists and what the brokers said.

Ready is the claim that clients can use the whole cluster as it was asked for, so the checks go from the objects to the
pods to the answers, and the first thing that is missing is the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raptormq_operator.cluster_probe import ClusterProbe
from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.manifests.config import denied_keys
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.plan import Plan
from raptormq_operator.pod_diagnostics import NO_DIAGNOSTICS, PodDiagnostics


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


def verdict(cluster: Cluster, plan: Plan, probe: ClusterProbe, words: PodDiagnostics = NO_DIAGNOSTICS) -> Verdict:
    """Whether the cluster is what the spec wants, judged after the steps of `plan` were taken.

    `words` are those of pods that are not ready.
    """
    if plan.conflicts:
        text = f"made by someone else, remove or give the cluster another name: {', '.join(plan.conflicts)}"
        return Verdict(Reason.NAME_CONFLICT, text)
    if plan.steps:
        return Verdict(Reason.PROGRESSING, f"{len(plan.steps)} objects are being changed")
    if words.failing:
        return Verdict(Reason.PODS_FAILING, words.failing)
    if plan.waiting:
        text = f"pods are not available yet: {', '.join(plan.waiting)}"
        return Verdict(Reason.PODS_NOT_READY, f"{text}; {words.waiting}" if words.waiting else text)
    return gaps_in(cluster, probe) or _ready(cluster, probe)


def _ready(cluster: Cluster, probe: ClusterProbe) -> Verdict:
    """A setting that brokers do not know is most often a typing error, and harms nobody."""
    text = f"{len(cluster.members)} brokers serve and are listed by {cluster.name_servers.replicas} name servers"
    return Verdict(Reason.READY, "; ".join([text, *sorted(probe.unknown_settings)]))


def gaps_in(cluster: Cluster, probe: ClusterProbe) -> Verdict | None:
    """What is missing in the answers of name servers and brokers; None when every name server lists every broker."""
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


def status(cluster: Cluster, probe: ClusterProbe) -> dict[str, Any]:
    """The status without conditions."""
    members = cluster.members
    registered = probe.registered(cluster)
    servers = cluster.name_servers.replicas
    knowing = sum(not probe.missing(server, cluster) for server in probe.name_servers)
    return {
        "observedGeneration": cluster.generation,
        "groups": cluster.groups,
        "selector": names.selector(names.broker_labels(cluster.name)),
        "brokersReady": f"{len(registered)}/{len(members)}",
        "nameServersReady": f"{knowing}/{servers}",
        "nameServerAddress": cluster.name_server_address,
        "brokers": [
            {
                "name": member.name,
                "group": member.broker_name,
                "address": member.address,
                "ready": member.name in registered,
            }
            for member in members
        ],
    }


def _said(answers: dict[str, str]) -> str:
    return "; ".join(f"{address}: {text}" for address, text in answers.items())
