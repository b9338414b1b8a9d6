"""Sink of the data source: sends the rows of a DataFrame as messages (`df.write` and `df.writeStream`).

    source --(schema, options)--> writer --(Arrow batches)--> rows --(encoded batches, messages)--> sender --> brokers

The driver validates `options` and `schema` before anything is sent. `rows` and `encoder` are pure. `sender` sends
batches and messages and waits for all acknowledgements. The sink is independent of the modules for reading.
"""

from pyspark_raptormq.sink.writer import RaptorMQStreamWriter, RaptorMQWriter, batch_writer, stream_writer

__all__ = ["RaptorMQStreamWriter", "RaptorMQWriter", "batch_writer", "stream_writer"]
