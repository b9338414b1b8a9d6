"""Spark with our data source, beside Spark with its Kafka connector.

    command --> plan --> connector --(requests)--> session (a process with a Spark session)
                    `--> readers  (the reader without Spark)        `--> comparison --> table

`requests` and `session` import only the standard library and PySpark, because they run in the environment of the Kafka
connector, too.
"""
