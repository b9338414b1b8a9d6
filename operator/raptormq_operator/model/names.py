"""Names, labels and ports of all objects. Names are deterministic, so that a retry finds existing objects.

<cluster>-namesrv                  headless Service, StatefulSet, ConfigMap and budget of the name servers
<cluster>-broker                   disruption budget of all brokers, if groups are not replicated
<cluster>-broker-<group>           headless Service of a group, and its budget if groups are replicated
<cluster>-broker-<group>-leader    Service of the leader of a group, if groups are replicated
<cluster>-admin, <cluster>-operator  default names of the Secrets of access control
<cluster>-broker-<group>-<member>  StatefulSet and ConfigMap of a broker; its pod ends in -0, its claim is store-<pod>
<pipeline>-driver                  pod, headless Service, ServiceAccount, Role and RoleBinding of a SparkPipeline
<pipeline>-spark                   ConfigMap of a SparkPipeline
<pipeline>-checkpoint              default name of the volume claim of a SparkPipeline
"""

GROUP = "raptormq.io"
API_VERSION = f"{GROUP}/v1alpha1"
FIELD_MANAGER = "raptormq-operator"

NAME_SERVER_PORT = 9876
BROKER_PORT = 10911
HA_PORT = 10912
"""Port on which a master serves its slaves."""
REPLICATION_PORT = 10913
"""Port for connections between the members of a Dledger group."""
LEADER_PORT = 10912
"""Port on which only the leader of a group listens, and to which its Service connects. Other brokers listen on it for
slaves, which a Dledger group does not have.
"""

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
CLUSTER_LABEL = f"{GROUP}/cluster"
GROUP_LABEL = f"{GROUP}/group"
MEMBER_LABEL = f"{GROUP}/member"
SLOT_LABEL = f"{GROUP}/slot"
"""Slot of a broker. Brokers with the same slot share a node: always in the interleaved layout, otherwise preferably."""
PIPELINE_LABEL = f"{GROUP}/pipeline"
COMPONENT_LABEL = "app.kubernetes.io/component"
SPARK_DRIVER = "spark-driver"
CONFIG_HASH_ANNOTATION = f"{GROUP}/config-hash"
ACCEPT_LOSS_ANNOTATION = f"{GROUP}/accept-loss"
"""Annotation of a BrokerCluster: the member that may be promoted although its lag is large or its log begins late."""
STORE_ANNOTATION = f"{GROUP}/store"
"""Annotation of a volume claim: replication mode and uid of the cluster that has written its store last."""
USE_CLAIMS_ANNOTATION = f"{GROUP}/use-claims"
"""Annotation of a BrokerCluster: claims of earlier clusters, separated by commas, that it may use in any case."""
MANIFEST_HASH_ANNOTATION = f"{GROUP}/manifest-hash"
REVISION_LABEL = "controller-revision-hash"
"""Label that Kubernetes sets on pods of a StatefulSet: the revision of the pod template."""
TOPIC_FINALIZER = f"{GROUP}/topic"


def name_server(cluster: str) -> str:
    return f"{cluster}-namesrv"


def broker(group: int) -> str:
    """Return RocketMQ's brokerName of a group."""
    return f"broker-{group}"


def brokers(cluster: str) -> str:
    return f"{cluster}-broker"


def admin_secret(cluster: str) -> str:
    return f"{cluster}-admin"


def operator_secret(cluster: str) -> str:
    return f"{cluster}-operator"


def group_service(cluster: str, group: int) -> str:
    return f"{cluster}-broker-{group}"


def leader_service(cluster: str, group: int) -> str:
    return f"{cluster}-broker-{group}-leader"


def member(cluster: str, group: int, index: int) -> str:
    return f"{cluster}-broker-{group}-{index}"


def driver(pipeline: str) -> str:
    return f"{pipeline}-driver"


def spark_config(pipeline: str) -> str:
    return f"{pipeline}-spark"


def pipeline_claim(pipeline: str) -> str:
    return f"{pipeline}-checkpoint"


def pipeline_labels(pipeline: str) -> dict[str, str]:
    """Return the labels of all objects of a SparkPipeline that the operator creates. Executors have only the last
    label.
    """
    return {MANAGED_BY_LABEL: FIELD_MANAGER, "app.kubernetes.io/name": "spark-pipeline", PIPELINE_LABEL: pipeline}


def driver_labels(pipeline: str) -> dict[str, str]:
    return pipeline_labels(pipeline) | {COMPONENT_LABEL: SPARK_DRIVER}


def managed_labels(cluster: str) -> dict[str, str]:
    """Return the labels by which the operator finds its objects of a cluster."""
    return {MANAGED_BY_LABEL: FIELD_MANAGER, CLUSTER_LABEL: cluster}


def name_server_labels(cluster: str) -> dict[str, str]:
    return managed_labels(cluster) | {COMPONENT_LABEL: "name-server", "app.kubernetes.io/name": "raptormq"}


def broker_labels(cluster: str, group: int | None = None, index: int | None = None) -> dict[str, str]:
    """Return the labels of all brokers, of the brokers of one group, or of one member."""
    labels = managed_labels(cluster) | {COMPONENT_LABEL: "broker", "app.kubernetes.io/name": "raptormq"}
    if group is not None:
        labels[GROUP_LABEL] = str(group)
    if index is not None:
        labels[MEMBER_LABEL] = str(index)
    return labels


def selector(labels: dict[str, str]) -> str:
    """Return labels in the form of the query parameter labelSelector."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
