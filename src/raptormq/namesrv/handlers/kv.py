"""Key-value requests: 100, 101, 102 and 219 (RocketMQ ``DefaultRequestProcessor``, ``KVConfigManager``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from raptormq.errors import ConfigError
from raptormq.namesrv.kv_config import KvConfig
from raptormq.protocol.bodies.queues import encode_kv_table
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.route import KVConfigRequestHeader, KVConfigResponseHeader
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class KvHandlers:
    """Reads and changes a :class:`~raptormq.namesrv.kv_config.KvConfig`."""

    def __init__(self, kv: KvConfig) -> None:
        self._kv = kv

    def add_to(self, router: Router) -> None:
        """Register the handlers."""
        router.add(RequestCode.PUT_KV_CONFIG, KVConfigRequestHeader, self.put)
        router.add(RequestCode.GET_KV_CONFIG, KVConfigRequestHeader, self.get)
        router.add(RequestCode.DELETE_KV_CONFIG, KVConfigRequestHeader, self.delete)
        router.add(RequestCode.GET_KVLIST_BY_NAMESPACE, KVConfigRequestHeader, self.list)

    def put(self, _peer: Connection, request: RemotingCommand, header: KVConfigRequestHeader) -> RemotingCommand:
        """100 (PUT_KV_CONFIG): set a value."""
        with _refusing():
            self._kv.put(header.namespace, _required("key", header.key), _required("value", header.value))
        return response_to(request)

    def get(self, _peer: Connection, request: RemotingCommand, header: KVConfigRequestHeader) -> RemotingCommand:
        """101 (GET_KV_CONFIG): return a value, or code 22 if it does not exist."""
        key = _required("key", header.key)
        value = self._kv.get(header.namespace, key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {key}"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
        return response_to(request, header=KVConfigResponseHeader(value))

    def delete(self, _peer: Connection, request: RemotingCommand, header: KVConfigRequestHeader) -> RemotingCommand:
        """102 (DELETE_KV_CONFIG): delete a value."""
        with _refusing():
            self._kv.delete(header.namespace, _required("key", header.key))
        return response_to(request)

    def list(self, _peer: Connection, request: RemotingCommand, header: KVConfigRequestHeader) -> RemotingCommand:
        """219 (GET_KVLIST_BY_NAMESPACE): return all values of a namespace, or code 22 if it does not exist."""
        table = self._kv.namespace(header.namespace)
        if table is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}")
        return response_to(request, body=encode_kv_table(table))


def _required(name: str, value: str | None) -> str:
    if value is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the required field {name} is missing")
    return value


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse the request with code 1 if the file cannot be written."""
    try:
        yield
    except ConfigError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
