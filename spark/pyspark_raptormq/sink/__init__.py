"""The sink: rows of a DataFrame become messages, `df.write.format("raptormq")` and `df.writeStream`.

    source --(schema, options)--> writer --(Arrow batches)--> rows --(messages)--> sender --> brokers

`options` and `schema` are checked on the driver before anything is sent; `rows` is pure; `sender` sends and waits for
every acknowledgement. It knows nothing of reading.
"""

from pyspark_raptormq.sink.writer import RaptorMQStreamWriter, RaptorMQWriter, batch_writer, stream_writer

__all__ = ["RaptorMQStreamWriter", "RaptorMQWriter", "batch_writer", "stream_writer"]
