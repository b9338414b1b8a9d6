"""Spark data source `raptormq` for `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`.

Spark registers the class `DefaultSource` of every installed package named `pyspark_...`, so jobs need no import. It
imports the package in many short Python processes; the listeners are therefore imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_raptormq.source import RaptorMQDataSource as DefaultSource
from raptormq.lazy_names import lazy_names

if TYPE_CHECKING:
    from pyspark_raptormq.metrics import LagListener, PrometheusListener

__all__ = ["DefaultSource", "LagListener", "PrometheusListener"]

__getattr__ = lazy_names(__name__, {"pyspark_raptormq.metrics": "LagListener PrometheusListener"})
