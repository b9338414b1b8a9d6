"""Declarations of the request and response headers, one module per family (see :mod:`raptormq.protocol.schema`)."""
