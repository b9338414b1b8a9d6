"""The Spark source of RaptorMQ: `spark.read.format("raptormq")` and `spark.readStream.format("raptormq")`.

Spark registers the class that a package named `pyspark_...` calls `DefaultSource`; nothing has to be imported by the
job.
"""

from pyspark_raptormq.metrics import LagListener
from pyspark_raptormq.source import RaptorMQDataSource as DefaultSource

__all__ = ["DefaultSource", "LagListener"]
