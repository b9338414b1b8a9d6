"""Errors of the Spark connector. All are `RaptorMQError`s; their messages appear in the driver's log.

    RaptorMQError
    |- ConfigError
    |  |- OptionError       an option is unknown, missing, malformed or contradicts another option
    |  |- SchemaError       a DataFrame to write has an unknown, invalid or missing column
    |  |- OffsetFormatError an offset document does not have the format of `offsets`
    |  `- CheckpointError   a folder is not a checkpoint, or cannot be rewritten now
    `- ClientError
       |- NameServerUnreachable
       |- MissingTopic      the topic has no route
       |- BrokerUnavailable queues to read belong to a broker that is not available (option failOnUnavailableBroker)
       |- DataLoss          messages to read are missing (option failOnDataLoss)
       |- RowError          a row cannot be converted to a message
       |- SendFailed        rows were not acknowledged within the retry time
       `- DifferentReplay   a batch that was published before has other rows now (option failOnDifferentReplay)

Source: the corresponding failures of Spark's Kafka connector.
"""

from __future__ import annotations

from raptormq.errors import ClientError, ConfigError


class OptionError(ConfigError):
    """An option of the data source is invalid. The message names the option."""


class SchemaError(ConfigError):
    """A DataFrame cannot be written. The message names the column."""


class OffsetFormatError(ConfigError):
    """An offset document in a checkpoint or an option is invalid."""


class CheckpointError(ConfigError):
    """A checkpoint cannot be read or rewritten."""


class NameServerUnreachable(ClientError):
    """No name server of option `nameServer` responds."""


class MissingTopic(ClientError):
    """A topic has no route."""


class BrokerUnavailable(ClientError):
    """A batch query would not read all queues, because a broker is not available."""


class DataLoss(ClientError):
    """Offsets to read are not in the queue."""


class RowError(ClientError):
    """A row cannot be converted to a message. The message names row and partition."""


class SendFailed(ClientError):
    """Rows were not acknowledged, or were stored less safely than option acks requires."""


class DifferentReplay(ClientError):
    """The rows of a batch are not in the topic, because a batch with this number, or a later one, was published before
    with other rows."""
