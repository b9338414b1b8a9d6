"""The broker: receives messages, stores them in :mod:`raptormq.storage`, and serves them to consumers.

:class:`raptormq.broker.broker.Broker` is the broker as one object, which any asyncio program can embed. Each of the
other modules is one concept.
"""
