"""Programs for end-to-end and chart tests: from the PATH, from the cache, or built from Go modules into the cache.

If a program is missing and cannot be built, the error says how to install it. Tests are never skipped because of a
missing program.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from raptormq.errors import ConfigError

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raptormq"
FOLDERS = (CACHE / "bin", CACHE / "kind-node" / "bin")
MODULES = {"helm": "helm.sh/helm/v3/cmd/helm@v3.22.0", "kind": "sigs.k8s.io/kind@v0.30.0"}
"""Go modules from which `go install` builds the programs."""
ADVICE = {
    "helm": "install helm 3 (helm.sh), or Go 1.24 or newer and this builds it",
    "kind": "install kind (kind.sigs.k8s.io), or Go 1.24 or newer and this builds it",
    "kubectl": "install kubectl (kubernetes.io/docs/tasks/tools) of version 1.29 or newer",
    "promtool": "install promtool (prometheus.io/download), or on Debian call scripts/install.sh promtool",
}


@cache
def tool(name: str) -> str:
    """Return the path of a program.

    Raises:
        ConfigError: The program is missing and cannot be built. The message says how to install it.
    """
    places = [*os.environ["PATH"].split(os.pathsep), *map(str, FOLDERS)]
    found = shutil.which(name, path=os.pathsep.join(places))
    return found or _built(name)


@cache
def engine() -> str:
    """Return `docker` or `podman`, whichever is available. CONTAINER_ENGINE or kind's variable selects one if both are.

    Raises:
        ConfigError: Neither is available.
    """
    chosen = os.environ.get("CONTAINER_ENGINE") or os.environ.get("KIND_EXPERIMENTAL_PROVIDER")
    for name in [chosen] if chosen else ["docker", "podman"]:
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0:
            return name
    raise ConfigError(f"{chosen or 'neither docker nor podman'} does not respond: start docker, or install podman")


def _built(name: str) -> str:
    if name not in MODULES or shutil.which("go") is None:
        raise ConfigError(f"{name} is not installed: {ADVICE[name]}")
    target = CACHE / "bin"
    environment = os.environ | {"GOBIN": str(target), "CGO_ENABLED": "0"}
    done = subprocess.run(
        ["go", "install", "-trimpath", MODULES[name]], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ConfigError(f"{name} could not be built: {ADVICE[name]}\n{done.stderr.strip()[-2000:]}")
    return str(target / name)
