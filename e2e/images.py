"""Builds the images from the checkout and returns their references on the nodes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from e2e.errors import Failed
from e2e.tools import engine

ROOT = Path(__file__).resolve().parents[1]
BUILD_TIMEOUT_S = 1200


def build(script: str, tag: str, base_image: str | None) -> str:
    """Run a build script with a tag. Return the reference of the image on a node."""
    environment = os.environ | {"CONTAINER_ENGINE": engine()}
    if base_image:
        environment["BASE_IMAGE"] = base_image
    done = subprocess.run(
        [str(ROOT / script), tag],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise Failed(f"{script}: exit code {done.returncode}\n{done.stdout.strip()[-3000:]}")
    # podman stores an image without a host under localhost/, docker under its default host, which is usually omitted.
    return f"localhost/{tag}" if engine() == "podman" else tag
