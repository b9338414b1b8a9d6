"""Names, labels and ports of everything the operator makes: deterministic, so that a second attempt finds the first.

<cluster>-namesrv                  headless Service, StatefulSet, ConfigMap and budget of the name servers
<cluster>-broker                   budget of all brokers, where groups are not replicated
<cluster>-broker-<group>           headless Service of a group, and its budget where groups are replicated
<cluster>-admin, <cluster>-operator  Secrets of access control, unless the spec names others
<cluster>-broker-<group>-<member>  StatefulSet and ConfigMap of a broker; its pod ends in -0, its claim is store-<pod>
"""

GROUP = "raptormq.io"
API_VERSION = f"{GROUP}/v1alpha1"
FIELD_MANAGER = "raptormq-operator"

NAME_SERVER_PORT = 9876
BROKER_PORT = 10911

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
CLUSTER_LABEL = f"{GROUP}/cluster"
GROUP_LABEL = f"{GROUP}/group"
MEMBER_LABEL = f"{GROUP}/member"
COMPONENT_LABEL = "app.kubernetes.io/component"
CONFIG_HASH_ANNOTATION = f"{GROUP}/config-hash"
MANIFEST_HASH_ANNOTATION = f"{GROUP}/manifest-hash"
REVISION_LABEL = "controller-revision-hash"
"""Kubernetes' own label of a StatefulSet's pod: the revision of the template that it was made from."""
TOPIC_FINALIZER = f"{GROUP}/topic"


def name_server(cluster: str) -> str:
    return f"{cluster}-namesrv"


def broker(group: int) -> str:
    """RocketMQ's brokerName of a group."""
    return f"broker-{group}"


def brokers(cluster: str) -> str:
    return f"{cluster}-broker"


def admin_secret(cluster: str) -> str:
    return f"{cluster}-admin"


def operator_secret(cluster: str) -> str:
    return f"{cluster}-operator"


def group_service(cluster: str, group: int) -> str:
    return f"{cluster}-broker-{group}"


def member(cluster: str, group: int, index: int) -> str:
    return f"{cluster}-broker-{group}-{index}"


def managed_labels(cluster: str) -> dict[str, str]:
    """Labels by which the operator finds its own objects of a cluster."""
    return {MANAGED_BY_LABEL: FIELD_MANAGER, CLUSTER_LABEL: cluster}


def name_server_labels(cluster: str) -> dict[str, str]:
    return managed_labels(cluster) | {COMPONENT_LABEL: "name-server", "app.kubernetes.io/name": "raptormq"}


def broker_labels(cluster: str, group: int | None = None, index: int | None = None) -> dict[str, str]:
    """Labels of brokers: of all, of those of one group, or of one member."""
    labels = managed_labels(cluster) | {COMPONENT_LABEL: "broker", "app.kubernetes.io/name": "raptormq"}
    if group is not None:
        labels[GROUP_LABEL] = str(group)
    if index is not None:
        labels[MEMBER_LABEL] = str(index)
    return labels


def selector(labels: dict[str, str]) -> str:
    """Labels in the form of a list request's labelSelector."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
