"""Dataclass for the spec of a SparkPipeline, after the API server has filled in the defaults.

The schema is crds/sparkpipelines.yaml. `raptormq_operator.manifests.pipeline` builds Kubernetes objects from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raptormq_operator.model import names
from raptormq_operator.model.definitions import needs_current_definition


@dataclass(frozen=True, slots=True)
class Application:
    """The Python file of a pipeline; exactly one of `file`, `config_map` and `url` is not empty."""

    file: str
    config_map: str
    key: str
    """Key of the file in the ConfigMap."""
    url: str

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Application:
        source = spec.get("configMap", {})
        return cls(spec.get("file", ""), source.get("name", ""), source.get("key", ""), spec.get("url", ""))


@dataclass(frozen=True, slots=True)
class PodSize:
    """Resources of a pod: the CPU request, and the memory as request and limit."""

    cpu: str
    memory: str

    @property
    def mebibytes(self) -> int:
        """The memory in MiB."""
        number, unit = int(self.memory[:-2]), self.memory[-2:]
        return number * 1024 if unit == "Gi" else number


@dataclass(frozen=True, slots=True)
class Executors:
    """Number, size and placement of the executor pods."""

    least: int
    most: int
    cores: int
    size: PodSize
    on_driver_node: bool

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Executors:
        size = PodSize(spec["cpu"], spec["memory"])
        return cls(spec["min"], spec.get("max", spec["min"]), spec["cores"], size, spec["onDriverNode"])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The volume of the checkpoint."""

    claim: str
    owned: bool
    """Whether the operator creates the claim."""
    folder: str
    size: str
    storage_class_name: str | None
    access_mode: str
    when_deleted: str

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], pipeline: str) -> Checkpoint:
        return cls(
            claim=spec.get("claimName") or names.pipeline_claim(pipeline),
            owned="claimName" not in spec,
            folder=spec.get("folder", pipeline),
            size=spec["size"],
            storage_class_name=spec.get("storageClassName"),
            access_mode=spec["accessMode"],
            when_deleted=spec["whenDeleted"],
        )

    @property
    def place(self) -> tuple[str, str]:
        """Claim and folder, which must not be those of another pipeline of the namespace."""
        return self.claim, self.folder


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Restarts of the driver after its end."""

    type: str
    """`Always`, `OnFailure` or `Never`."""
    backoff_s: int
    max_backoff_s: int
    progress_deadline_s: int
    """Time in seconds without a completed task or batch after which an active query counts as stalled."""

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> RestartPolicy:
        return cls(
            type=spec["type"],
            backoff_s=spec["backoffSeconds"],
            max_backoff_s=spec["maxBackoffSeconds"],
            progress_deadline_s=spec["progressDeadlineSeconds"],
        )

    def delay(self, failures: int) -> int:
        """Return the delay in seconds before the restart after this number of consecutive failures, at least one."""
        return int(min(self.max_backoff_s, self.backoff_s * 2 ** min(failures - 1, 20)))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One SparkPipeline."""

    name: str
    namespace: str
    uid: str
    generation: int
    created: str
    by_spark_operator: bool
    """Whether the driver is run by the operator of Apache Spark instead of RaptorMQ's operator."""
    cluster: str
    topics: tuple[str, ...]
    image: str
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    application: Application
    arguments: tuple[str, ...]
    spark_conf: Mapping[str, str]
    driver: PodSize
    executors: Executors
    stateful: bool
    checkpoint: Checkpoint
    credentials_secret: str | None
    tls_secret: str | None
    restart_policy: RestartPolicy
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]

    @classmethod
    @needs_current_definition
    def from_object(cls, body: Mapping[str, Any]) -> Pipeline:
        """Parse a resource of the API server.

        Raises:
            OldDefinition: A field with a default is missing.
        """
        metadata, spec = body["metadata"], body["spec"]
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=metadata["generation"],
            created=metadata["creationTimestamp"],
            by_spark_operator=spec["runBy"] == "SparkKubernetesOperator",
            cluster=spec["clusterRef"]["name"],
            topics=tuple(spec["topics"]),
            image=spec["image"],
            image_pull_policy=spec["imagePullPolicy"],
            image_pull_secrets=tuple(spec["imagePullSecrets"]),
            application=Application.from_spec(spec["application"]),
            arguments=tuple(spec["arguments"]),
            spark_conf=spec["sparkConf"],
            driver=PodSize(spec["driver"]["cpu"], spec["driver"]["memory"]),
            executors=Executors.from_spec(spec["executors"]),
            stateful=spec["stateful"],
            checkpoint=Checkpoint.from_spec(spec["checkpoint"], metadata["name"]),
            credentials_secret=spec.get("credentials", {}).get("secretName"),
            tls_secret=spec.get("tls", {}).get("secretName"),
            restart_policy=RestartPolicy.from_spec(spec["restartPolicy"]),
            node_selector=spec["nodeSelector"],
            tolerations=tuple(spec["tolerations"]),
        )
