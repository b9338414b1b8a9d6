"""List and watch: after any end of a watch it continues, without missing an event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from raptormq_operator.kube.errors import Gone, Invalid, KubeError
from raptormq_operator.kube.reflector import BACKOFF_FIRST_S, Reflector
from raptormq_operator.manifests.metadata import Manifest


def thing(name: str, version: int = 1) -> Manifest:
    metadata = {"namespace": "shop", "name": name, "uid": name, "labels": {"a": "b"}, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {}}


class ApiServer:
    """Pages of lists and events of watches, in order. After all of them the last watch is silent."""

    def __init__(self, lists: list[list[Manifest] | KubeError], watches: list[list[Any]]) -> None:
        self.lists = lists
        self.watches = watches
        self.versions: list[str] = []
        """resourceVersions of the watches."""
        self.done = asyncio.Event()

    async def page(
        self, kind: str, namespace: str | None, selector: str = "", limit: int = 500, after: str = ""
    ) -> Manifest:
        assert (kind, namespace, selector) == ("Service", "shop", "a=b")
        items = self.lists.pop(0)
        if isinstance(items, KubeError):
            raise items
        more = {"continue": "next"} if items and items[-1] == {} else {}
        return {"metadata": {"resourceVersion": "100"} | more, "items": [item for item in items if item]}

    async def watch(
        self, kind: str, namespace: str | None, selector: str, version: str, *, seconds: int, quiet: float
    ) -> AsyncIterator[tuple[str, Manifest]]:
        self.versions.append(version)
        refused = [one for one in self.watches[0][:1] if isinstance(one, KubeError)]
        if not refused:
            yield "BOOKMARK", thing("", int(version))
        for event in self.watches.pop(0):
            if isinstance(event, KubeError):
                raise event
            yield event
        if not self.watches:
            self.done.set()
            await asyncio.Event().wait()


class Seen:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.slept: list[float] = []
        self.now = 0.0

    def handler(self, what: str, body: Mapping[str, Any]) -> None:
        assert body["metadata"]["labels"] == {"a": "b"}
        self.events.append((what, body["metadata"]["name"]))

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        self.now += 5.0
        return self.now


async def reflect(server: ApiServer) -> tuple[Seen, Reflector]:
    """Run until everything is delivered."""
    seen = Seen()
    reflector = Reflector(
        server, "Service", "shop", "a=b", seen.handler, clock=seen.clock, vary=lambda: 0.5, sleep=seen.sleep
    )
    running = asyncio.create_task(reflector.run())
    await server.done.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return seen, reflector


async def test_a_list_then_what_happens() -> None:
    server = ApiServer(
        [[thing("a"), {}], [thing("b")]], [[("ADDED", thing("c", 101)), ("DELETED", thing("a", 102))], []]
    )
    seen, reflector = await reflect(server)
    assert seen.events == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c"), ("DELETED", "a")]
    assert server.versions == ["100", "102"], "a watch continues after its end by the server"
    assert reflector.state.synced
    assert seen.slept == []


async def test_bookmarks_keep_the_version_young() -> None:
    server = ApiServer([[]], [[("BOOKMARK", thing("", 150))], []])
    seen, _ = await reflect(server)
    assert (seen.events, server.versions) == ([], ["100", "150"])


async def test_a_version_that_is_too_old_takes_a_new_list_which_tells_what_is_gone() -> None:
    server = ApiServer([[thing("a"), thing("b")], [thing("b"), thing("c")]], [[Gone(410, "too old")], []])
    seen, _ = await reflect(server)
    assert seen.events == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "b"), ("ADDED", "c"), ("DELETED", "a")]
    assert seen.slept == []


async def test_a_connection_that_breaks_goes_on_where_it_was() -> None:
    server = ApiServer([[]], [[("ADDED", thing("a", 105)), KubeError(0, "reset")], []])
    seen, reflector = await reflect(server)
    assert (seen.events, server.versions) == ([("ADDED", "a")], ["100", "105"])
    assert seen.slept == [BACKOFF_FIRST_S]
    assert reflector.state.fault is None, "the next watch has started"


@pytest.mark.parametrize("error", [Invalid(403, "it is forbidden"), KubeError(404, "no such resource")])
async def test_what_is_refused_is_asked_for_again_later_and_later(
    error: KubeError, caplog: pytest.LogCaptureFixture
) -> None:
    server = ApiServer([error, error, error, [thing("a")]], [[error], []])
    server.lists += [error, [thing("a")]]
    seen, reflector = await reflect(server)
    assert seen.slept == pytest.approx([1.0, 2.0, 4.0, 1.0, 2.0])
    assert reflector.state.fault is None
    assert caplog.text.count(str(error)) == 2, "once per series of failures"


async def test_how_long_it_fails_counts_from_the_first_time() -> None:
    refused = Invalid(403, "it is forbidden")
    failing: list[float | None] = []
    server = ApiServer([refused, refused, []], [[]])
    seen = Seen()

    async def sleep(_: float) -> None:
        failing.append(reflector.state.failing_since)

    reflector = Reflector(server, "Service", "shop", "a=b", seen.handler, clock=seen.clock, sleep=sleep)
    running = asyncio.create_task(reflector.run())
    await server.done.wait()
    running.cancel()
    assert failing[0] is not None
    assert failing[0] == failing[1]


async def test_a_server_that_ends_every_watch_at_once_is_not_stormed() -> None:
    server = ApiServer([[]], [[], [], []])
    seen = Seen()
    reflector = Reflector(server, "Service", "shop", "a=b", seen.handler, clock=lambda: 0.0, sleep=seen.sleep)
    running = asyncio.create_task(reflector.run())
    await server.done.wait()
    running.cancel()
    assert seen.slept == [BACKOFF_FIRST_S] * 2
