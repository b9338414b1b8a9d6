"""The broker: takes messages in, keeps them through :mod:`raptormq.storage`, and serves them to consumers.

:class:`raptormq.broker.broker.Broker` is the whole of it, embeddable in any asyncio program; the other modules are
one concept each.
"""
