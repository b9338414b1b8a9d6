"""Published values: the response of a handler, and the command that middlewares receive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from faststream.response import PublishCommand, Response
from faststream.response.publish_type import PublishType

from raptormq.client import Delay, MessageExt


class RaptorResponse(Response):
    """The result of a handler, with the attributes of its message.

    Args:
        body: the value.
        headers: properties.
        correlation_id: that of the handled message by default.
        key: sharding key, see :meth:`raptormq.faststream.RaptorBroker.publish`.
        tag: tag.
        delay: when the message is delivered.
    """

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        delay: Delay | None = None,
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.key = key
        self.tag = tag
        self.delay = delay

    def get_publish_key(self) -> str | None:
        """Return the sharding key."""
        return self.key

    def as_publish_command(self) -> RaptorPublishCommand:
        """Return the command that publishes the response."""
        return RaptorPublishCommand(
            self.body,
            _publish_type=PublishType.PUBLISH,
            headers=self.headers,
            correlation_id=self.correlation_id,
            key=self.key,
            tag=self.tag,
            delay=self.delay,
        )


class RaptorPublishCommand(PublishCommand):
    """One message to publish. ``destination`` is its topic."""

    def __init__(
        self,
        body: Any,
        *,
        _publish_type: PublishType,
        topic: str = "",
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        keys: Sequence[str] = (),
        delay: Delay | None = None,
        timeout: float | None = None,
        request: MessageExt | None = None,
    ) -> None:
        super().__init__(
            body,
            _publish_type=_publish_type,
            destination=topic,
            headers=headers,
            correlation_id=correlation_id,
        )
        self.key = key
        self.tag = tag
        self.keys = tuple(keys)
        self.delay = delay
        self.timeout = timeout
        self.request = request
        """The message that this one replies to."""

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> Self:
        """Return the command, or convert the command of another broker's response."""
        if isinstance(cmd, cls):
            return cmd
        return cls(
            cmd.body,
            _publish_type=cmd.publish_type,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
        )
