"""The broker: receives messages, stores them in :mod:`raptormq.storage`, and serves them to consumers.

:class:`raptormq.broker.broker.Broker` is the entry point. Any asyncio program can embed it.
"""
