"""Garbage collection in the Python processes of Spark's tasks. No I/O.

`pyspark.daemon` runs a full collection after every task. It visits about 70,000 objects of imported modules, none of
which is garbage, and takes 15 to 30 ms of CPU time, more than the rest of a small task.

Used by `partition` and the sink.
"""

from __future__ import annotations

import gc

from pyspark import TaskContext


def spare_modules_in_collections() -> None:
    """Exclude all existing objects from later collections. Has no effect outside of a task, or after the first call.

    Objects that are created later, such as those of the rows, are collected as usual.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
