"""The name server: live brokers, the topics that they serve, and a small key-value store (RocketMQ
``NamesrvController``).

:mod:`~raptormq.namesrv.table` is the pure state, :mod:`~raptormq.namesrv.views` the responses derived from it,
:mod:`~raptormq.namesrv.handlers` has one module per family of request codes, and :mod:`~raptormq.namesrv.service`
starts and stops the server. Name servers do not communicate: every broker registers with each of them.
"""
