"""Settings that brokers, routers, subscribers and publishers share."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faststream._internal.configs import BrokerConfig
from faststream._internal.logger import DefaultLoggerStorage
from faststream._internal.logger.logging import get_broker_logger

from raptormq.client import ClientConfig, Producer
from raptormq.faststream.producer import RaptorProducer

if TYPE_CHECKING:
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.context import ContextRepo


@dataclass(kw_only=True)
class RaptorBrokerConfig(BrokerConfig):
    """Settings of a broker or router."""

    producer: RaptorProducer = field(default_factory=lambda: RaptorProducer(None, None))
    client_config: ClientConfig = field(default_factory=ClientConfig)

    def connect(self, producer: Producer) -> None:
        """Set the started producer that publishes."""
        self.producer.connect(producer, self.fd_config._serializer, self.broker_codec)

    def disconnect(self) -> None:
        """Remove the producer; later publishes raise `IncorrectState`."""
        self.producer.disconnect()


class LoggerStorage(DefaultLoggerStorage):
    """Creates the logger of a broker if the application passes none."""

    __slots__ = ("_widths",)

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"topic": 5, "group": 5}

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Keep the columns of topics and groups as wide as the longest name."""
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        """Return the logger; create it on the first call."""
        if (known := self._get_logger_ref()) is not None:
            return known
        columns = " | ".join(f"%({name})-{width}s" for name, width in self._widths.items())
        made: logging.Logger = get_broker_logger(
            name="raptormq",
            default_context=dict.fromkeys(self._widths, ""),
            message_id_ln=10,
            fmt=f"%(asctime)s %(levelname)-8s - {columns} | %(message_id)-10s - %(message)s",
            context=context,
            log_level=self.logger_log_level,
        )
        self._logger_ref.add(made)
        return made
