"""The name server: registered brokers, routes of topics, and a small key-value store (``NamesrvController``).

:mod:`~raptormq.namesrv.table` contains the state without I/O, :mod:`~raptormq.namesrv.views` computes responses from
it, :mod:`~raptormq.namesrv.handlers` has one module per family of request codes, and :mod:`~raptormq.namesrv.service`
starts and stops the server. Name servers do not communicate with each other. Every broker registers with each of them.
"""
