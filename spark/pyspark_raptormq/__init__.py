"""RaptorMQ in Spark: `format("raptormq")` for `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`.

Spark registers the class that a package named `pyspark_...` calls `DefaultSource`; nothing has to be imported by the
job.
"""

from pyspark_raptormq.metrics import LagListener, PrometheusListener
from pyspark_raptormq.source import RaptorMQDataSource as DefaultSource

__all__ = ["DefaultSource", "LagListener", "PrometheusListener"]
