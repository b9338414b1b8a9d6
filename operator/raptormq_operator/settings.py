"""Settings of the operator's process, read from environment variables that the chart sets."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from raptormq.errors import ConfigError
from raptormq.logs import LogFormat


@dataclass(frozen=True, slots=True)
class Settings:
    """One field for each variable."""

    image: str
    """RAPTORMQ_IMAGE (required): default image of brokers and name servers."""
    namespace: str
    """POD_NAMESPACE (default `default`): namespace of the Lease."""
    identity: str
    """POD_NAME (default: the host name): holder name in the Lease."""
    lease_name: str
    """LEASE_NAME (default raptormq-operator): name of the Lease."""
    watch_namespaces: tuple[str, ...]
    """WATCH_NAMESPACES (default empty): comma-separated namespaces to watch; empty for all."""
    dns_domain: str
    """CLUSTER_DOMAIN (default cluster.local): DNS domain of the Kubernetes cluster."""
    spark_pipelines: bool | None
    """SPARK_PIPELINES: true if the operator has the permissions to run SparkPipelines; false if it must refuse them.
    Unset by a chart without this resource, which is then not watched.
    """
    port: int
    """HTTP_PORT (default 8080): port of /healthz, /readyz and /metrics."""
    log_level: str
    """LOG_LEVEL (default INFO): DEBUG, INFO, WARNING or ERROR, in upper or lower case."""
    log_format: LogFormat
    """LOG_FORMAT (default text): text or json, with one line per record."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings from environment variables.

        Raises:
            ConfigError: A variable is missing or invalid.
        """
        image = environment.get("RAPTORMQ_IMAGE", "")
        if not image:
            raise ConfigError("RAPTORMQ_IMAGE must name the image of brokers and name servers")
        port = environment.get("HTTP_PORT", "8080")
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"HTTP_PORT must be a port number, not {port!r}")
        level = environment.get("LOG_LEVEL", "INFO").upper()
        if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ConfigError(f"LOG_LEVEL must be DEBUG, INFO, WARNING or ERROR, not {level!r}")
        form = environment.get("LOG_FORMAT", "text").lower()
        if form not in ("text", "json"):
            raise ConfigError(f"LOG_FORMAT must be text or json, not {form!r}")
        pipelines = environment.get("SPARK_PIPELINES", "").lower()
        if pipelines not in ("", "true", "false"):
            raise ConfigError(f"SPARK_PIPELINES must be true or false, not {pipelines!r}")
        watched = environment.get("WATCH_NAMESPACES", "").split(",")
        return cls(
            image=image,
            namespace=environment.get("POD_NAMESPACE", "default"),
            identity=environment.get("POD_NAME", socket.gethostname()),
            lease_name=environment.get("LEASE_NAME", "") or "raptormq-operator",
            watch_namespaces=tuple(dict.fromkeys(name.strip() for name in watched if name.strip())),
            dns_domain=environment.get("CLUSTER_DOMAIN", "cluster.local"),
            spark_pipelines=pipelines == "true" if pipelines else None,
            port=int(port),
            log_level=level,
            log_format="json" if form == "json" else "text",
        )
