"""The errors of the Spark connector; all are `RaptorMQError`s and their text is what a Spark user reads in the driver's
log.

    RaptorMQError
    |- ConfigError
    |  |- OptionError       an option of `.option(...)` is unknown, missing, malformed or contradicts another one
    |  |- SchemaError       a DataFrame that is to be written has a column that is unknown, wrong or missing
    |  |- OffsetFormatError an offset document is not what `offsets` describes
    |  `- CheckpointError   a folder is no checkpoint, or not one that can be rewritten now
    `- ClientError
       |- NameServerUnreachable
       |- MissingTopic      no name server knows the topic
       |- DataLoss          records that were promised are gone (option failOnDataLoss)
       |- RowError          a row cannot be a message
       `- SendFailed        the brokers have not taken rows within the retry time

Source: the corresponding failures of Spark's Kafka connector.
"""

from __future__ import annotations

from raptormq.errors import ClientError, ConfigError


class OptionError(ConfigError):
    """An option of the data source is unusable; the text names it."""


class SchemaError(ConfigError):
    """A DataFrame cannot be written as it is; the text names the column."""


class OffsetFormatError(ConfigError):
    """An offset document of a checkpoint or of an option cannot be understood."""


class CheckpointError(ConfigError):
    """A checkpoint cannot be read, or not be rewritten."""


class NameServerUnreachable(ClientError):
    """None of the addresses of option `nameServer` answers."""


class MissingTopic(ClientError):
    """A topic to read has no route."""


class DataLoss(ClientError):
    """Offsets that should be read are no longer, or not any more, in the queue."""


class RowError(ClientError):
    """A row cannot be a message; the text says where it stands."""


class SendFailed(ClientError):
    """Rows were not acknowledged, or not as safely as option acks wants."""
