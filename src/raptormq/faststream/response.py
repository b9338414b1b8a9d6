"""Published values: the response of a handler, and the command that middlewares receive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, TypedDict, cast

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


class RequestOptions(TypedDict, total=False):
    """The keyword arguments of ``request``; None for the default."""

    key: str | None
    tag: str | None
    headers: dict[str, str] | None
    correlation_id: str | None
    timeout: float | None


class PublishOptions(RequestOptions, total=False):
    """The keyword arguments of ``publish``; None for the default."""

    keys: Sequence[str]
    delay: Delay | None


_OPTIONS: dict[PublishType, type[RequestOptions]] = {
    PublishType.PUBLISH: PublishOptions,
    PublishType.REQUEST: RequestOptions,
}


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
    def build(
        cls,
        body: Any,
        kind: PublishType,
        topic: str,
        options: RequestOptions,
        new_id: Callable[[], str],
        defaults: RequestOptions | None = None,
    ) -> Self:
        """Return the command of a call of ``publish`` or ``request``.

        Args:
            body: the value.
            kind: whether the call is `publish` or `request`.
            topic: the topic.
            options: the keyword arguments of the call.
            new_id: creates a correlation id for a call without one.
            defaults: ``key``, ``tag`` and ``headers`` of the publisher.

        Raises:
            TypeError: a keyword argument is unknown.
        """
        known = _OPTIONS[kind].__annotations__
        if unknown := sorted(options.keys() - known.keys()):
            call = "request" if kind is PublishType.REQUEST else "publish"
            raise TypeError(f"{call} has no argument {', '.join(unknown)}; options are {', '.join(known)}")
        outer: RequestOptions = defaults or {}
        given = cast("dict[str, Any]", dict(options))
        given["key"] = options.get("key") or outer.get("key")
        given["tag"] = options.get("tag") or outer.get("tag")
        given["headers"] = (outer.get("headers") or {}) | (options.get("headers") or {})
        given["correlation_id"] = options.get("correlation_id") or new_id()
        return cls(body, _publish_type=kind, topic=topic, **given)

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
