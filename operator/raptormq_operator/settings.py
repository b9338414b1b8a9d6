"""Settings of the operator's process, all from its environment, which the chart fills in."""

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
    """RAPTORMQ_IMAGE: image of brokers and name servers where a BrokerCluster names none. Required."""
    namespace: str
    """POD_NAMESPACE: namespace of the Lease, `default` outside of a cluster."""
    identity: str
    """POD_NAME: holder of the Lease, the host's name outside of a cluster."""
    lease_name: str
    """LEASE_NAME: the Lease of this installation, raptormq-operator."""
    watch_namespaces: tuple[str, ...]
    """WATCH_NAMESPACES: comma-separated, empty for all."""
    dns_domain: str
    """CLUSTER_DOMAIN: DNS domain of the Kubernetes cluster, cluster.local."""
    port: int
    """HTTP_PORT of /healthz, /readyz and /metrics, 8080."""
    log_level: str
    """LOG_LEVEL, in upper or lower case, INFO."""
    log_format: LogFormat
    """LOG_FORMAT: text or json, one line for each record in either, text."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Reads the variables.

        Raises:
            ConfigError: one is missing or not of its kind.
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
        watched = environment.get("WATCH_NAMESPACES", "").split(",")
        return cls(
            image=image,
            namespace=environment.get("POD_NAMESPACE", "default"),
            identity=environment.get("POD_NAME", socket.gethostname()),
            lease_name=environment.get("LEASE_NAME", "") or "raptormq-operator",
            watch_namespaces=tuple(dict.fromkeys(name.strip() for name in watched if name.strip())),
            dns_domain=environment.get("CLUSTER_DOMAIN", "cluster.local"),
            port=int(port),
            log_level=level,
            log_format="json" if form == "json" else "text",
        )
