"""Benchmarks of Spark with RaptorMQ's data source, compared with Spark's Kafka connector.

    command --> plan --> connector --(requests)--> session (a process with a Spark session)
                    `--> readers  (the reader without Spark)        `--> comparison --> table

`requests` and `session` import only the standard library and PySpark, because they run in the environment of the Kafka
connector, too.
"""
