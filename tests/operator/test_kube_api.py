"""Requests to the API server, against a server that remembers them and answers as told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kopf
import pytest
from aiohttp import web

from raptormq.errors import ConfigError
from raptormq_operator.kube.api import HttpKubeApi, path
from raptormq_operator.kube.connection import REREAD_S, Connection
from raptormq_operator.kube.errors import Conflict, Invalid, KubeError

CONFIG = {"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}}


class Server:
    """An API server of one answer."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer: tuple[int, Any] = (200, {})
        self.address = ""

    async def _handle(self, request: web.Request) -> web.Response:
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
        status, answer = self.answer
        return web.json_response(answer, status=status)

    @asynccontextmanager
    async def running(self, port: int) -> AsyncIterator[HttpKubeApi]:
        app = web.Application()
        app.router.add_route("*", "/{anything:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        info = kopf.ConnectionInfo(server=f"http://127.0.0.1:{port}/", token="secret")
        try:
            async with HttpKubeApi(Connection(lambda: info)) as api:
                yield api
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
        ("GET", "/apis/apps/v1/namespaces/shop/statefulsets", {"labelSelector": "a=b"}, None),
        (
            "GET",
            "/api/v1/namespaces/shop/events",
            {"fieldSelector": about_the_pod},
            None,
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


async def test_a_server_that_is_not_there(free_port: int) -> None:
    info = kopf.ConnectionInfo(server=f"http://127.0.0.1:{free_port}")
    async with HttpKubeApi(Connection(lambda: info)) as api:
        with pytest.raises(KubeError) as caught:
            await api.get("ConfigMap", "shop", "a")
    assert caught.value.status == 0


def test_paths_of_core_and_other_groups() -> None:
    assert path("Service", "n", "s") == "/api/v1/namespaces/n/services/s"
    assert path("Lease", "n") == "/apis/coordination.k8s.io/v1/namespaces/n/leases"


def test_nobody_says_where_the_server_is() -> None:
    with pytest.raises(ConfigError, match="API server"):
        Connection(lambda: None)


def test_a_token_is_read_again_after_a_while() -> None:
    tokens = iter(["old", "new"])
    now = [0.0]
    connection = Connection(lambda: kopf.ConnectionInfo(server="https://x", token=next(tokens)), clock=lambda: now[0])
    assert connection.headers() == {"Authorization": "Bearer old"}
    now[0] = REREAD_S
    assert connection.headers() == {"Authorization": "Bearer new"}


def test_a_name_and_a_password_are_basic_authentication() -> None:
    info = kopf.ConnectionInfo(server="https://x", username="u", password="p")
    assert Connection(lambda: info).headers() == {"Authorization": "Basic dTpw"}
    assert Connection(lambda: kopf.ConnectionInfo(server="https://x")).headers() == {}
