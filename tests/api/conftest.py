"""Fixtures for tests with a real kube-apiserver. All tests share one control plane, and each test has its own
namespace.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.api.control_plane import ControlPlane

_numbers = count()


def _new_name() -> str:
    """Return the name of a namespace. It differs between two runs on one machine, whose servers would have the same
    addresses otherwise (`peers.address_of`).
    """
    return f"shop-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="session")
def shared_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Shared control plane, for tests that do not change definitions and do not stop the API server."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), {"limited": "limited-token"}) as plane:
        plane.define()
        yield plane


@pytest.fixture
def own_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Control plane of one test, which may change or stop it."""
    with ControlPlane(tmp_path, {"limited": "limited-token"}) as plane:
        plane.define()
        yield plane


@pytest.fixture
def namespace(shared_plane: ControlPlane) -> str:
    """A new namespace on the shared control plane."""
    name = _new_name()
    shared_plane.namespace(name)
    return name


@pytest.fixture
def namespaces() -> Callable[[ControlPlane, int], list[str]]:
    """Return a function that creates new namespaces."""

    def make(plane: ControlPlane, number: int) -> list[str]:
        names = [_new_name() for _ in range(number)]
        for name in names:
            plane.namespace(name)
        return names

    return make
