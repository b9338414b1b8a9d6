"""Publishers: decorators of handlers whose results are sent to a topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.response.publish_type import PublishType
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, PublisherSpec

from raptormq.client import Delay, MessageExt, SendResult
from raptormq.faststream.config import RaptorBrokerConfig
from raptormq.faststream.producer import RaptorProducer
from raptormq.faststream.response import RaptorPublishCommand

if TYPE_CHECKING:
    from faststream._internal.types import PublisherMiddleware
    from faststream.response import PublishCommand


@dataclass(kw_only=True)
class RaptorPublisherConfig(PublisherUsecaseConfig):
    """What one publisher sends."""

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
        """Return the channel."""
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

    async def publish(
        self,
        message: Any,
        topic: str = "",
        *,
        key: str | None = None,
        tag: str | None = None,
        keys: Sequence[str] = (),
        delay: Delay | None = None,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a value; see :meth:`raptormq.faststream.RaptorBroker.publish`. Omitted arguments are the publisher's."""
        command = RaptorPublishCommand(
            message,
            _publish_type=PublishType.PUBLISH,
            topic=topic or self.topic,
            key=key or self._config.key,
            tag=tag or self._config.tag,
            keys=keys,
            delay=delay,
            headers=self._config.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            timeout=timeout,
        )
        result: SendResult = await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return result

    async def request(
        self,
        message: Any,
        topic: str = "",
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send a value and return the reply; see :meth:`raptormq.faststream.RaptorBroker.request`."""
        command = RaptorPublishCommand(
            message,
            _publish_type=PublishType.REQUEST,
            topic=topic or self.topic,
            key=key or self._config.key,
            tag=tag or self._config.tag,
            headers=self._config.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            timeout=timeout,
        )
        return await self._basic_request(command, producer=self._outer_config.producer)

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
