"""The whole process with a minimal API server: it acquires the lease, watches, reconciles and releases the lease.

kopf runs for real, over HTTP. e2e/ uses a real Kubernetes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any
from unittest.mock import AsyncMock

import aiohttp
import kopf
import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration
from prometheus_client import REGISTRY

from raptormq_operator import definition_check, kopf_watch, service, watches
from raptormq_operator.definition_check import GROUP_VERSION, own_schemas
from raptormq_operator.handlers import CHILD_SELECTOR
from raptormq_operator.kube import lease
from raptormq_operator.manifests.metadata import digest
from raptormq_operator.metrics import READY
from raptormq_operator.settings import Settings
from tests.operator.resources import NAMESPACE, cluster_body, topic_body

GROUPS = {
    "apiextensions.k8s.io/v1": ["customresourcedefinitions"],
    "raptormq.io/v1alpha1": ["brokerclusters", "sparkpipelines", "topics"],
    "apps/v1": ["statefulsets"],
    "policy/v1": ["poddisruptionbudgets"],
}
CHILDREN = ("configmaps", "poddisruptionbudgets", "services", "statefulsets")
KINDS = {"brokerclusters": "BrokerCluster", "topics": "Topic", "statefulsets": "StatefulSet"}


class ApiServer:
    """An API server with discovery, lists and silent watches, which records all writes."""

    def __init__(self) -> None:
        # The specs of both are invalid, so that no further requests are sent.
        tls = {"secretName": "certificate", "mode": "enforcing", "clientAuth": "none"}
        cluster = cluster_body(replicas=2, replication={"mode": "masterSlave"}, tls=tls)
        self.listed = {"brokerclusters": [cluster], "topics": [topic_body(clusterRef={"name": "none"})]}
        self.written: list[tuple[str, str, Any]] = []
        self.unserved: list[str] = []
        """Plurals that get one response 404 each."""
        self.lease: dict[str, Any] | None = None
        self.stopping = asyncio.Event()
        self.watched: list[tuple[str, dict[str, str]]] = []
        self.deleted: set[str] = set()
        """Plurals whose definitions are deleted."""
        self.schemas = {kind: deepcopy(dict(schema)) for kind, schema in own_schemas().items()}
        """Schemas of the installed definitions, by kind."""
        self.loop = asyncio.new_event_loop()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api", self._answer({"versions": ["v1"]}))
        app.router.add_get(
            "/api/v1", self._answer(_resources("v1", ["configmaps", "events", "namespaces", "services"]))
        )
        app.router.add_get("/apis", self._answer({"groups": [_group(name) for name in GROUPS]}))
        for name, plurals in GROUPS.items():
            app.router.add_get(f"/apis/{name}", self._answer(_resources(name, plurals)))
        app.router.add_get("/openapi/v3", self._documents)
        app.router.add_get(f"/openapi/v3/{GROUP_VERSION}", self._document)
        app.router.add_route("*", "/{path:.*}", self._object)
        return app

    def _answer(self, value: Any) -> Callable[[web.Request], Any]:
        async def handle(_: web.Request) -> web.Response:
            return web.json_response(value)

        return handle

    async def _documents(self, _: web.Request) -> web.Response:
        url = f"/openapi/v3/{GROUP_VERSION}?hash={digest(self.schemas)}"
        return web.json_response({"paths": {GROUP_VERSION: {"serverRelativeURL": url}}})

    async def _document(self, request: web.Request) -> web.Response:
        assert request.query["hash"] == digest(self.schemas)
        kinds = {kind: {"group": "raptormq.io", "version": "v1alpha1", "kind": kind} for kind in self.schemas}
        schemas = {
            f"io.raptormq.v1alpha1.{kind}": {**schema, "x-kubernetes-group-version-kind": [kinds[kind]]}
            for kind, schema in self.schemas.items()
        }
        return web.json_response({"components": {"schemas": schemas}})

    async def _object(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.split("/")
        if request.method != "GET":
            return await self._write(request, parts)
        if parts[-2] == "leases":
            return web.json_response(self.lease or {}, status=200 if self.lease else 404)
        if "namespaces" in parts and parts[-2] in KINDS:
            found = [body for body in self.listed[parts[-2]] if body["metadata"]["name"] == parts[-1]]
            return web.json_response(found[0] if found else {}, status=200 if found else 404)
        if parts[-1] in self.deleted:
            answer = {"kind": "Status", "code": 404, "message": f"no {parts[-1]} here"}
            return web.json_response(answer, status=404)
        if request.query.get("watch"):
            self.watched.append((parts[-1], dict(request.query)))
            return await self._silent_watch(request)
        if parts[-1] in self.unserved:
            self.unserved.remove(parts[-1])
            return web.json_response({"message": "404 page not found"}, status=404)
        items = self.listed.get(parts[-1], [])
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def _silent_watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await self.stopping.wait()
        return response

    async def _write(self, request: web.Request, parts: list[str]) -> web.Response:
        body = json.loads(await request.read())
        if "leases" in parts:
            self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}
            body = self.lease
        else:
            body["metadata"]["resourceVersion"] = str(len(self.written) + 2)
        self.written.append((request.method, request.path, body))
        return web.json_response(body)

    @contextmanager
    def running(self, port: int) -> Iterator[None]:
        """Serve in a thread with a separate event loop, because kopf ends all tasks that were started on its loop after
        it.
        """
        loop = self.loop
        runner = web.AppRunner(self.app(), shutdown_timeout=0)
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        asyncio.run_coroutine_threadsafe(_listen(runner, port), loop).result(timeout=20)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(self.stopping.set)
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(timeout=20)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def delete_definition(self, plural: str) -> None:
        """End all watches. Those of this plural cannot start again."""

        def ended() -> None:
            self.deleted.add(plural)
            self.stopping.set()
            self.stopping = asyncio.Event()

        self.loop.call_soon_threadsafe(ended)

    def make_definition(self, plural: str, objects: list[dict[str, Any]]) -> None:
        """Serve the plural again, with other objects."""
        self.listed[plural] = objects
        self.deleted.discard(plural)

    def watches_of(self, plural: str) -> int:
        """Return the number of started watches."""
        return sum(watched == plural for watched, _ in self.watched)

    def statuses(self) -> set[str]:
        """Return the names of the objects whose status was written."""
        return {body["metadata"]["name"] for _, path, body in self.written if path.endswith("/status")}

    def reasons(self) -> dict[str, str]:
        """Return kind -> written reason of the Ready condition."""
        return {
            body["kind"]: body["status"]["conditions"][0]["reason"]
            for _, path, body in self.written
            if path.endswith("/status")
        }


async def _listen(runner: web.AppRunner, port: int) -> None:
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()


def _group(name: str) -> dict[str, Any]:
    group, version = name.split("/")
    versions = {"groupVersion": name, "version": version}
    return {"name": group, "versions": [versions], "preferredVersion": versions}


def _resources(version: str, plurals: list[str]) -> dict[str, Any]:
    return {
        "groupVersion": version,
        "resources": [
            {
                "name": plural,
                "singularName": plural[:-1],
                "kind": KINDS.get(plural, plural),
                "namespaced": True,
                "verbs": ["get", "list", "watch", "patch"],
            }
            for plural in plurals
        ],
    }


@pytest.fixture
def ports(free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch) -> tuple[int, Settings]:
    """Run an API server. Yield its port, and the settings of an operator for it."""
    api_port, health_port = free_ports(2)
    address = f"http://127.0.0.1:{api_port}"
    info = kopf.ConnectionInfo(server=address, default_namespace=NAMESPACE)
    monkeypatch.setattr(kopf_watch, "login", lambda _: info)
    monkeypatch.setattr(service, "configuration", AsyncMock(return_value=Configuration(host=address)))
    for module in (lease, service):
        monkeypatch.setattr(module, "RETRY_PERIOD_S", 0.05)
    monkeypatch.setattr(kopf_watch, "CHECK_S", 0.05)
    monkeypatch.setattr(definition_check, "CHECK_S", 0.05)
    monkeypatch.setattr(kopf_watch, "BACKOFF_FIRST_S", 0.05)
    environment = {"RAPTORMQ_IMAGE": "x", "POD_NAME": "me", "LEASE_NAME": "mine", "HTTP_PORT": str(health_port)}
    return api_port, Settings.from_environment(environment)


async def _both_reconciled(server: ApiServer) -> None:
    while set(server.reasons()) != {"BrokerCluster", "Topic"}:
        await asyncio.sleep(0.02)


async def test_it_leads_reconciles_both_kinds_and_lets_go(
    ports: tuple[int, Settings], caplog: pytest.LogCaptureFixture
) -> None:
    """The resources are defined after the start. Until then the operator leaves the lease to others."""
    server = ApiServer()
    server.unserved = ["brokerclusters", "topics", "topics"]
    api_port, settings = ports
    with server.running(api_port):
        running = asyncio.create_task(service.run(settings))
        await _both_reconciled(server)
        assert server.reasons() == {"BrokerCluster": "NotSupported", "Topic": "ClusterNotFound"}
        assert server.lease is not None
        assert (server.lease["metadata"]["name"], server.lease["spec"]["holderIdentity"]) == ("mine", "me")
        assert "this process cannot lead: the API server does not serve BrokerCluster.raptormq.io" in caplog.text
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        assert server.lease["spec"]["holderIdentity"] == ""
    for method, path, _ in server.written:
        assert "/leases" in path or path.endswith("/status") or "/events" in path, f"{method} {path}"
    selectors = {plural: query.get("labelSelector") for plural, query in server.watched if plural in CHILDREN}
    assert selectors == dict.fromkeys(CHILDREN, CHILD_SELECTOR), "foreign objects are not requested"


async def test_a_definition_that_is_deleted_and_made_again_is_watched_again(
    ports: tuple[int, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "LASTS_S", 0.0)
    server = ApiServer()
    api_port, settings = ports
    with server.running(api_port):
        running = asyncio.create_task(service.run(settings))
        await _both_reconciled(server)
        begun = server.watches_of("topics")
        server.delete_definition("topics")
        while not any("does not serve Topic" in fault for fault in await _faults(settings.port)):
            await asyncio.sleep(0.02)
        assert server.watches_of("topics") == begun
        server.make_definition("topics", [topic_body("another", clusterRef={"name": "none"})])
        while "another" not in server.statuses():
            await asyncio.sleep(0.02)
        assert server.watches_of("topics") > begun
        os.kill(os.getpid(), signal.SIGTERM)
        await running


async def test_who_sees_nothing_gives_the_lease_back(
    ports: tuple[int, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "BLIND_S", 0.0)
    monkeypatch.setattr(watches, "LOOK_S", 0.01)
    server = ApiServer()
    api_port, settings = ports
    with server.running(api_port):
        running = asyncio.create_task(service.run(settings))
        await _both_reconciled(server)
        server.delete_definition("topics")
        while server.lease is None or server.lease["spec"]["holderIdentity"] != "":
            await asyncio.sleep(0.02)
        assert REGISTRY.get_sample_value("raptormq_operator_leader") == 0.0
        assert not [metric.samples for metric in READY.collect() if metric.samples], (
            "the next leader reports what is ready"
        )
        server.make_definition("topics", [])
        while server.lease["spec"]["holderIdentity"] != "me":
            await asyncio.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)
        await running


async def test_operator_with_old_definitions_is_not_ready_and_writes_nothing_until_they_are_updated(
    ports: tuple[int, Settings], caplog: pytest.LogCaptureFixture
) -> None:
    server = ApiServer()
    del server.schemas["BrokerCluster"]["properties"]["spec"]["properties"]["metrics"]
    api_port, settings = ports
    with server.running(api_port):
        running = asyncio.create_task(service.run(settings))
        while "older than this operator" not in caplog.text:
            await asyncio.sleep(0.02)
        (fault,) = await _faults(settings.port)
        assert fault == (
            "the installed CustomResourceDefinitions are older than this operator (BrokerCluster lacks spec.metrics)."
            " Nothing is changed until they are updated from the chart of this operator: "
            "helm show crds CHART | kubectl apply --server-side --force-conflicts -f -"
        )
        assert server.written == []
        server.schemas = {kind: dict(schema) for kind, schema in own_schemas().items()}
        await _both_reconciled(server)
        assert await _faults(settings.port) == []
        os.kill(os.getpid(), signal.SIGTERM)
        await running
    assert caplog.text.count("older than this operator") == 1


async def test_leader_releases_the_lease_when_older_definitions_are_installed(
    ports: tuple[int, Settings], caplog: pytest.LogCaptureFixture
) -> None:
    server = ApiServer()
    api_port, settings = ports
    with server.running(api_port):
        running = asyncio.create_task(service.run(settings))
        await _both_reconciled(server)
        del server.schemas["Topic"]["properties"]["status"]["properties"]["topicName"]
        while server.lease is None or server.lease["spec"]["holderIdentity"] != "":
            await asyncio.sleep(0.02)
        assert "releasing the lease: the installed CustomResourceDefinitions are older" in caplog.text
        assert "Topic lacks status.topicName" in "".join(await _faults(settings.port))
        server.schemas = {kind: dict(schema) for kind, schema in own_schemas().items()}
        while server.lease["spec"]["holderIdentity"] != "me":
            await asyncio.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)
        await running


async def _faults(port: int) -> list[str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
        return [] if answer.status == 200 else (await answer.text()).splitlines()
