"""Connections, servers and request routing on asyncio, shared by name server, broker and client.

:mod:`raptormq.protocol` encodes and decodes the bytes. This package has the sockets, timeouts, limits and TLS.
"""
