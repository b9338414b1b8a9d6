"""Tasks exclude the modules of their process from garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from pyspark_raptormq.task_process import spare_modules_in_collections


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    TaskContext._setTaskContext(None)
    gc.unfreeze()


def test_only_the_first_task_of_a_process_freezes_objects() -> None:
    spare_modules_in_collections()
    assert gc.get_freeze_count() == 0, "this process runs no task"
    TaskContext._setTaskContext(TaskContext())
    spare_modules_in_collections()
    assert gc.get_freeze_count() > 0
    kept = [[number] for number in range(10)]
    spare_modules_in_collections()
    assert any(each is kept for each in gc.get_objects()), "it is frozen, too"
