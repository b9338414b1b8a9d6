"""The data source class that Spark registers; creates schema, readers and writers.

Options are parsed in `options`; `reader` and `stream_reader` read, `sink` writes. Spark imports this module in each of
its Python processes, most of which have another purpose or only read. The methods therefore import what they use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark_raptormq.options import SourceOptions
    from pyspark_raptormq.reader import RaptorMQReader
    from pyspark_raptormq.sink import RaptorMQStreamWriter, RaptorMQWriter
    from pyspark_raptormq.stream_reader import RaptorMQStreamReader, RefusedStreamReader


class RaptorMQDataSource(DataSource):
    """Data source for topics of RaptorMQ or Apache RocketMQ brokers, for batch and streaming queries."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "raptormq"

    def schema(self) -> StructType:
        """Validate the options and return the schema."""
        from pyspark_raptormq.columns import spark_schema
        from pyspark_raptormq.options import parse_source_options

        options = parse_source_options(self.options, streaming=None)
        return spark_schema(options.columns, options.properties_as)

    def reader(self, schema: StructType) -> RaptorMQReader:
        """Return the reader of a batch query."""
        from pyspark_raptormq.pushdown import pushdown_is_on
        from pyspark_raptormq.reader import FilteringReader, RaptorMQReader

        reader = FilteringReader if pushdown_is_on() else RaptorMQReader
        return reader(self._options(schema, streaming=False))

    def streamReader(self, schema: StructType) -> RaptorMQStreamReader | RefusedStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query."""
        from pyspark_raptormq.errors import OptionError
        from pyspark_raptormq.stream_reader import RaptorMQStreamReader, RefusedStreamReader

        try:
            return RaptorMQStreamReader(self._options(schema, streaming=True))
        except OptionError as error:
            return RefusedStreamReader(error)  # Spark hides errors that this method raises

    def writer(self, schema: StructType, overwrite: bool) -> RaptorMQWriter:
        """Return the writer of a batch query."""
        from pyspark_raptormq.sink import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> RaptorMQStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of a streaming query. Output mode complete sets `overwrite`; the writer appends anyway."""
        from pyspark_raptormq.sink import stream_writer

        return stream_writer(self.options, schema)

    def _options(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        """Return the options of a query that reads with this schema."""
        from pyspark_raptormq.columns import spark_schema
        from pyspark_raptormq.errors import OptionError
        from pyspark_raptormq.options import parse_source_options

        options = parse_source_options(self.options, streaming=streaming)
        expected = spark_schema(options.columns, options.properties_as)
        if schema.names != expected.names or [f.dataType for f in schema] != [f.dataType for f in expected]:
            raise OptionError(
                f"the schema is {expected.simpleString()}; choose columns with option columns instead of .schema(...)"
            )
        return options
