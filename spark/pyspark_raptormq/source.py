"""The data source class that Spark registers; creates schema, readers and writers.

Options are parsed in `options`; `reader` and `stream_reader` read, `sink` writes. Spark imports this module in each of
its Python processes, most of which have another purpose or only read. The methods therefore import what they use.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark_raptormq.options import SourceOptions
    from pyspark_raptormq.reader import RaptorMQReader
    from pyspark_raptormq.sink import RaptorMQStreamWriter, RaptorMQWriter
    from pyspark_raptormq.stream_reader import RaptorMQStreamReader, RefusedStreamReader


_FIRST_VERSION = (4, 2)
"""The first version of Spark with limits of micro-batches for Python sources."""


class RaptorMQDataSource(DataSource):
    """Data source for topics of RaptorMQ or Apache RocketMQ brokers, for batch and streaming queries.

    Raises:
        OptionError: This version of Spark is too old.
    """

    def __init__(self, options: dict[str, str]) -> None:
        check_version(pyspark.__version__)
        super().__init__(options)

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


def check_version(version: str) -> None:
    """Check the version of Spark.

    Raises:
        OptionError: It is too old.
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < _FIRST_VERSION:
        from pyspark_raptormq.errors import OptionError

        raise OptionError(
            f"the format raptormq needs Spark 4.2 or 4.3, and this is Spark {version}: upgrade Spark on the driver and "
            'the executors; pip install "raptormq[spark]" installs a suitable pyspark'
        )
