"""Spark data source `raptormq` for `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`.

Spark registers the class `DefaultSource` of every installed package named `pyspark_...`, so jobs need no import.
"""

from pyspark_raptormq.metrics import LagListener, PrometheusListener
from pyspark_raptormq.source import RaptorMQDataSource as DefaultSource

__all__ = ["DefaultSource", "LagListener", "PrometheusListener"]
