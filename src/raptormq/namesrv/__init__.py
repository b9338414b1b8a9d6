"""The name server: which brokers live, which topics they serve, and a small key-value store (RocketMQ
``NamesrvController``).

:mod:`~raptormq.namesrv.table` is the pure state, :mod:`~raptormq.namesrv.views` what is answered from it,
:mod:`~raptormq.namesrv.handlers` one small file per family of request codes, :mod:`~raptormq.namesrv.service` the
process part. Name servers do not talk to each other: every broker registers with every one of them.
"""
