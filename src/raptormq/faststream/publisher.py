"""Publishers: decorators of handlers whose results are sent to a topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.response.publish_type import PublishType
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, PublisherSpec

from raptormq.client import MessageExt, SendResult
from raptormq.errors import RaptorMQError
from raptormq.faststream.config import RaptorBrokerConfig
from raptormq.faststream.producer import RaptorProducer
from raptormq.faststream.response import PublishOptions, RaptorPublishCommand, RequestOptions
from raptormq.logs import get_logger

if TYPE_CHECKING:
    from faststream._internal.types import PublisherMiddleware
    from faststream.response import PublishCommand

log = get_logger(__name__)


@dataclass(kw_only=True)
class RaptorPublisherConfig(PublisherUsecaseConfig):
    """Configuration of one publisher."""

    topic: str
    key: str | None
    tag: str | None
    headers: dict[str, str]


@dataclass(kw_only=True)
class RaptorPublisherSpecificationConfig(PublisherSpecificationConfig):
    """AsyncAPI fields of a publisher."""

    topic: str


class RaptorPublisherSpecification(PublisherSpecification[RaptorBrokerConfig, RaptorPublisherSpecificationConfig]):
    """Describes a publisher for AsyncAPI."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The topic with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        """The key of the channel."""
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Return the AsyncAPI channel by its key."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        message = MessageSpec(title=f"{self.name}:Message", payload=payload)
        spec = PublisherSpec(
            address=self.topic,
            description=self.config.description_,
            operation=Operation(message=message, bindings=None),
            bindings=None,
        )
        return {self.name: spec}


class RaptorPublisher(PublisherUsecase):
    """Sends values to one topic."""

    _outer_config: RaptorBrokerConfig

    def __init__(self, config: RaptorPublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
        super().__init__(config, specification)
        self._config = config

    @property
    def topic(self) -> str:
        """The topic with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self._config.topic}"

    async def publish(self, message: Any, topic: str = "", **options: Unpack[PublishOptions]) -> SendResult:
        """Send a value as `RaptorBroker.publish` does. Omitted arguments have the values of the publisher."""
        command = self._command(message, PublishType.PUBLISH, topic, options)
        result: SendResult = await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return result

    async def request(self, message: Any, topic: str = "", **options: Unpack[RequestOptions]) -> Any:
        """Send a value and return the reply; see :meth:`raptormq.faststream.RaptorBroker.request`."""
        command = self._command(message, PublishType.REQUEST, topic, options)
        return await self._basic_request(command, producer=self._outer_config.producer)

    def _command(self, message: Any, kind: PublishType, topic: str, options: RequestOptions) -> RaptorPublishCommand:
        own = RequestOptions(key=self._config.key, tag=self._config.tag, headers=self._config.headers)
        new_id = self._outer_config.id_generator
        return RaptorPublishCommand.build(message, kind, topic or self.topic, options, new_id, own)

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        command = RaptorPublishCommand.from_cmd(cmd)
        command.destination = self.topic
        command.add_headers(self._config.headers, override=False)
        command.key = command.key or self._config.key
        command.tag = command.tag or self._config.tag
        await self._basic_publish(command, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)


class ReplyPublisher(FakePublisher):
    """Sends the result of a handler to the caller that waits for it (``request``)."""

    __slots__ = ("_request",)

    def __init__(self, producer: RaptorProducer, request: MessageExt) -> None:
        super().__init__(producer=producer)
        self._request = request

    def patch_command(self, cmd: PublishCommand) -> RaptorPublishCommand:
        """Return the command as a reply."""
        command = RaptorPublishCommand.from_cmd(super().patch_command(cmd))
        command.request = self._request
        return command

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Send the reply. An error is logged: the handler has succeeded, and must not be called again because the
        caller has gone.
        """
        try:
            await super()._publish(cmd, _extra_middlewares=_extra_middlewares)
        except RaptorMQError as error:
            log.warning("request %s gets no reply: %s", self._request.message_id, error)
