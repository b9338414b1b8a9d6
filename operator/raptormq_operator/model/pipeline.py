"""Dataclass for the spec of a SparkPipeline, after the API server has filled in the defaults.

The schema is crds/sparkpipelines.yaml. `raptormq_operator.manifests.pipeline` builds Kubernetes objects from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raptormq_operator.model import names
from raptormq_operator.model.cluster import Scheduling
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
    """Resources of a pod: the CPU request, the memory as request and limit, and the CPU limit if there is one."""

    cpu: str
    memory: str
    cpu_limit: str | None = None

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> PodSize:
        return cls(spec["cpu"], spec["memory"], spec.get("cpuLimit"))

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
        size = PodSize.from_spec(spec)
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


Reference = tuple[str, str, frozenset[str]]
"""Kind and name of an object, and the keys that it must have."""


@dataclass(frozen=True, slots=True)
class Additions:
    """What the application needs in all its pods besides the fields of the operator."""

    env: tuple[Mapping[str, Any], ...]
    """Environment variables, as in a container."""
    volumes: tuple[Mapping[str, Any], ...]
    """Volumes, as in a pod spec."""
    volume_mounts: tuple[Mapping[str, Any], ...]
    py_files: tuple[str, ...]
    """Paths and URLs of Python files and archives that are importable in driver and executors."""

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Additions:
        return cls(*(tuple(spec.get(name, ())) for name in ("env", "volumes", "volumeMounts", "pyFiles")))

    @property
    def references(self) -> list[Reference]:
        """The objects of `env` and `volumes` without which the pods do not start."""
        found: list[Reference] = []
        for variable in self.env:
            for kind in ("Secret", "ConfigMap"):
                source = variable.get("valueFrom", {}).get(_field_of(kind) + "KeyRef")
                if source is not None and not source.get("optional", False):
                    found.append((kind, source["name"], frozenset({source["key"]})))
        for volume in self.volumes:
            for kind, field in _VOLUME_SOURCES.items():
                source = volume.get(_field_of(kind))
                if source is not None and not source.get("optional", False):
                    keys = frozenset(item["key"] for item in source.get("items", ()))
                    found.append((kind, source[field], keys))
        return found


_VOLUME_SOURCES = {"Secret": "secretName", "ConfigMap": "name", "PersistentVolumeClaim": "claimName"}
"""Kind -> the field with its name in the source of a volume."""


def _field_of(kind: str) -> str:
    """Return the name of the field for a source of this kind."""
    return kind[0].lower() + kind[1:]


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
    suspended: bool
    """Whether there must be no driver."""
    cluster: str
    topics: tuple[str, ...]
    topic_pattern: str
    """Regular expression in place of the topics, empty without one."""
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
    scheduling: Scheduling
    service_account_name: str
    """Name of the account of the pods."""
    owns_service_account: bool
    """Whether the operator creates the account."""
    additions: Additions

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
            suspended=spec.get("suspend", False),
            cluster=spec["clusterRef"]["name"],
            topics=tuple(spec.get("topics", ())),
            topic_pattern=spec.get("topicPattern", ""),
            image=spec["image"],
            image_pull_policy=spec["imagePullPolicy"],
            image_pull_secrets=tuple(spec["imagePullSecrets"]),
            application=Application.from_spec(spec["application"]),
            arguments=tuple(spec["arguments"]),
            spark_conf=spec["sparkConf"],
            driver=PodSize.from_spec(spec["driver"]),
            executors=Executors.from_spec(spec["executors"]),
            stateful=spec["stateful"],
            checkpoint=Checkpoint.from_spec(spec["checkpoint"], metadata["name"]),
            credentials_secret=spec.get("credentials", {}).get("secretName"),
            tls_secret=spec.get("tls", {}).get("secretName"),
            restart_policy=RestartPolicy.from_spec(spec["restartPolicy"]),
            scheduling=Scheduling.from_spec(
                {"nodeSelector": spec["nodeSelector"], "tolerations": spec["tolerations"]} | spec.get("scheduling", {})
            ),
            service_account_name=spec.get("serviceAccountName", names.driver(metadata["name"])),
            owns_service_account="serviceAccountName" not in spec,
            additions=Additions.from_spec(spec),
        )

    @property
    def references(self) -> list[Reference]:
        """The objects that the spec refers to, besides those with a reason of their own."""
        account: Reference = ("ServiceAccount", self.service_account_name, frozenset())
        return [*self.additions.references, *(() if self.owns_service_account else (account,))]
