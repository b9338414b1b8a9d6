"""Requests to the API server, to a server that records them and responds from a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration
from prometheus_client import REGISTRY

from raptormq.errors import ConfigError
from raptormq_operator.kube.client import CALLS_AT_ONCE, KubeClient, configuration, path
from raptormq_operator.kube.errors import Conflict, Gone, Invalid, KubeError

CONFIG = {"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}}


def here(port: int) -> Configuration:
    found = Configuration(host=f"http://127.0.0.1:{port}")
    found.api_key["BearerToken"] = "Bearer secret"
    return found


class Server:
    """An API server with one response."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.lines: list[bytes] | None = None
        """Lines of a watch; None if no watch is expected."""
        self.under_way = self.most = 0
        self.answer: tuple[int, Any] = (200, {})
        self.address = ""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.requests.append(
            {
                "method": request.method,
                "path": request.path,
                "query": dict(request.query),
                "type": request.headers.get("Content-Type"),
                "authorization": request.headers.get("Authorization"),
                "body": body,
            }
        )
        if request.query.get("watch"):
            return await self._watch(request)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        status, answer = self.answer
        return web.json_response(answer, status=status)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if self.lines is None:
            return web.json_response({"message": "it is forbidden"}, status=403)
        response = web.StreamResponse()
        await response.prepare(request)
        for line in self.lines:
            await response.write(line)
        return response

    @asynccontextmanager
    async def running(self, port: int) -> AsyncIterator[KubeClient]:
        app = web.Application()
        app.router.add_route("*", "/{anything:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            async with ApiClient(here(port)) as connections:
                yield KubeClient(connections)
        finally:
            await runner.cleanup()


async def test_each_verb_is_the_request_that_kubernetes_documents(free_port: int) -> None:
    server = Server()
    async with server.running(free_port) as api:
        await api.apply(CONFIG)
        await api.apply_status({**CONFIG, "kind": "Topic"})
        await api.create(CONFIG)
        await api.replace(CONFIG)
        await api.merge("ConfigMap", "shop", "a", {"data": {}})
        await api.delete("ConfigMap", "shop", "a", "u1")
        server.answer = (200, {"items": [{"metadata": {"name": "x"}}]})
        assert await api.select("StatefulSet", "shop", "a=b") == [
            {"metadata": {"name": "x"}, "kind": "StatefulSet", "apiVersion": "apps/v1"}
        ]
        assert [event["kind"] for event in await api.warnings("shop", "Pod", "p")] == ["Event"]
    one = "/api/v1/namespaces/shop/configmaps/a"
    about_the_pod = "type=Warning,involvedObject.kind=Pod,involvedObject.name=p"
    applied = {"fieldManager": "raptormq-operator", "force": "true"}
    assert [(each["method"], each["path"], each["query"], each["type"]) for each in server.requests] == [
        ("PATCH", one, applied, "application/apply-patch+yaml"),
        (
            "PATCH",
            "/apis/raptormq.io/v1alpha1/namespaces/shop/topics/a/status",
            applied,
            "application/apply-patch+yaml",
        ),
        ("POST", "/api/v1/namespaces/shop/configmaps", {}, "application/json"),
        ("PUT", one, {}, "application/json"),
        ("PATCH", one, {}, "application/merge-patch+json"),
        ("DELETE", one, {}, "application/json"),
        ("GET", "/apis/apps/v1/namespaces/shop/statefulsets", {"labelSelector": "a=b"}, "application/json"),
        (
            "GET",
            "/api/v1/namespaces/shop/events",
            {"fieldSelector": about_the_pod},
            "application/json",
        ),
    ]
    assert server.requests[5]["body"]["preconditions"] == {"uid": "u1"}
    assert {each["authorization"] for each in server.requests} == {"Bearer secret"}


async def test_what_is_not_there_is_none_and_may_be_deleted(free_port: int) -> None:
    server = Server()
    server.answer = (404, {"message": "not found"})
    async with server.running(free_port) as api:
        assert await api.get("ConfigMap", "shop", "a") is None
        await api.delete("ConfigMap", "shop", "a", "u1")
        with pytest.raises(KubeError, match="not found"):
            await api.apply_status(CONFIG)


@pytest.mark.parametrize(("status", "goes"), [(201, True), (404, True), (409, True), (429, False)])
async def test_a_pod_is_evicted_unless_its_budget_protects_it(free_port: int, status: int, goes: bool) -> None:
    server = Server()
    server.answer = (status, {"message": "because"})
    async with server.running(free_port) as api:
        assert await api.evict("shop", "demo-broker-0-0-0", "u1") is goes
    (request,) = server.requests
    assert (request["method"], request["path"]) == ("POST", "/api/v1/namespaces/shop/pods/demo-broker-0-0-0/eviction")
    assert (request["body"]["apiVersion"], request["body"]["kind"]) == ("policy/v1", "Eviction")
    assert request["body"]["deleteOptions"] == {"preconditions": {"uid": "u1"}}


@pytest.mark.parametrize(
    ("status", "kind"),
    [(409, Conflict), (422, Invalid), (403, Invalid), (400, Invalid), (500, KubeError), (429, KubeError)],
)
async def test_errors_have_the_servers_words(free_port: int, status: int, kind: type[KubeError]) -> None:
    server = Server()
    server.answer = (status, {"message": "because"})
    async with server.running(free_port) as api:
        with pytest.raises(KubeError, match="because") as caught:
            await api.create(CONFIG)
    assert (type(caught.value), caught.value.status) == (kind, status)
    assert caught.value.retriable is (kind is not Invalid)


async def test_a_field_that_no_schema_has_will_not_get_one(free_port: int) -> None:
    said = "failed to create typed patch object (o/a; apps/v1, Kind=StatefulSet): .nodeAfinity: field not declared"
    server = Server()
    server.answer = (500, {"message": said})
    async with server.running(free_port) as api:
        with pytest.raises(Invalid, match="nodeAfinity"):
            await api.apply(CONFIG)


async def test_a_pod_of_several_budgets_is_never_evicted(free_port: int) -> None:
    said = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    server = Server()
    server.answer = (500, {"message": said})
    async with server.running(free_port) as api:
        with pytest.raises(Invalid, match="more than one"):
            await api.evict("shop", "demo-broker-0-0-0", "u1")


async def test_a_server_that_is_not_there(free_port: int) -> None:
    async with ApiClient(here(free_port)) as connections:
        with pytest.raises(KubeError) as caught:
            await KubeClient(connections).get("ConfigMap", "shop", "a")
    assert caught.value.status == 0


async def test_requests_stand_in_line(free_port: int) -> None:
    server = Server()
    async with server.running(free_port) as api:
        await asyncio.gather(*(api.get("ConfigMap", "shop", str(number)) for number in range(4 * CALLS_AT_ONCE)))
    assert server.most <= CALLS_AT_ONCE
    assert len(server.requests) == 4 * CALLS_AT_ONCE


async def test_a_list_in_pages(free_port: int) -> None:
    server = Server()
    server.answer = (200, {"metadata": {"continue": "more"}, "items": []})
    async with server.running(free_port) as api:
        assert (await api.page("Topic", None, limit=5))["metadata"] == {"continue": "more"}
        await api.page("Topic", "shop", "a=b", after="more")
        server.answer = (410, {"message": "too old"})
        with pytest.raises(Gone):
            await api.page("Topic", "shop", after="ancient")
    assert [(each["path"], each["query"]) for each in server.requests[:2]] == [
        ("/apis/raptormq.io/v1alpha1/topics", {"limit": "5"}),
        (
            "/apis/raptormq.io/v1alpha1/namespaces/shop/topics",
            {"limit": "500", "labelSelector": "a=b", "continue": "more"},
        ),
    ]


async def told(api: KubeClient, quiet: float = 5.0) -> list[tuple[str, str]]:
    events = api.watch("Topic", "shop", "a=b", "7", seconds=300, quiet=quiet)
    return [(what, body["metadata"]["resourceVersion"]) async for what, body in events]


def event(what: str, version: int) -> bytes:
    return json.dumps({"type": what, "object": {"metadata": {"resourceVersion": str(version)}}}).encode() + b"\n"


async def test_a_watch_asks_for_our_labels_and_for_bookmarks(free_port: int) -> None:
    server = Server()
    server.lines = [event("ADDED", 8), event("BOOKMARK", 9), event("DELETED", 10)]
    async with server.running(free_port) as api:
        assert await told(api) == [("BOOKMARK", "7"), ("ADDED", "8"), ("BOOKMARK", "9"), ("DELETED", "10")]
    assert [each["query"] for each in server.requests] == [
        {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": "7",
            "timeoutSeconds": "300",
            "labelSelector": "a=b",
        }
    ]


async def test_what_ends_a_watch(free_port: int) -> None:
    server = Server()
    async with server.running(free_port) as api:
        with pytest.raises(Invalid, match="forbidden"):
            await told(api)
        status = {"code": 410, "reason": "Expired", "message": "too old resource version"}
        server.lines = [json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"]
        with pytest.raises(Gone, match="too old"):
            await told(api)
        server.lines = [b"<html>\n"]
        with pytest.raises(KubeError):
            await told(api)


def test_paths_of_core_and_other_groups() -> None:
    assert path("Service", "n", "s") == "/api/v1/namespaces/n/services/s"
    assert path("Lease", "n") == "/apis/coordination.k8s.io/v1/namespaces/n/leases"


async def test_nobody_says_where_the_server_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="API server"):
        await configuration()


async def test_a_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    file = tmp_path / "config"
    file.write_text(
        yaml.safe_dump(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": "secret"}}],
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(file))
    found = await configuration()
    assert (found.host, found.connection_pool_maxsize) == ("http://127.0.0.1:1", 0)
    assert found.api_key["BearerToken"] == "Bearer secret"


async def test_requests_are_counted_by_method_kind_and_status(free_port: int) -> None:
    def count(verb: str, kind: str, code: int) -> float:
        labels = {"verb": verb, "kind": kind, "code": str(code)}
        return REGISTRY.get_sample_value("raptormq_operator_api_calls_total", labels) or 0.0

    cases = [("PATCH", "ConfigMap", 200), ("GET", "Topic", 404), ("GET", "Service", 0)]
    before = [count(*case) for case in cases]
    server = Server()
    async with server.running(free_port) as api:
        await api.apply(CONFIG)
        server.answer = (404, {"message": "not there"})
        assert await api.get("Topic", "services", "events") is None
    async with ApiClient(here(free_port)) as connections:
        with pytest.raises(KubeError):
            await KubeClient(connections).get("Service", "shop", "a")
    assert [count(*case) - earlier for case, earlier in zip(cases, before, strict=True)] == [1, 1, 1]
