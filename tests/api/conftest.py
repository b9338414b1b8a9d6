"""One control plane for all tests of this folder; each test has a namespace of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.api.control_plane import ControlPlane

_numbers = count()


@pytest.fixture(scope="session")
def shared_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """For tests that leave definitions and the API server as they are."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), {"limited": "limited-token"}) as plane:
        plane.define()
        yield plane


@pytest.fixture
def own_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """For tests that do not."""
    with ControlPlane(tmp_path, {"limited": "limited-token"}) as plane:
        plane.define()
        yield plane


@pytest.fixture
def namespace(shared_plane: ControlPlane) -> str:
    """A new one on the shared control plane."""
    name = f"shop-{next(_numbers)}"
    shared_plane.namespace(name)
    return name


@pytest.fixture
def namespaces() -> Callable[[ControlPlane, int], list[str]]:
    """Makes so many new ones."""

    def make(plane: ControlPlane, number: int) -> list[str]:
        names = [f"shop-{next(_numbers)}" for _ in range(number)]
        for name in names:
            plane.namespace(name)
        return names

    return make
