"""Benchmarks of RaptorMQ and its peers, one command per table.

python -m bench client-load      # the official Java client on Apache RocketMQ 5.5.0 and on RaptorMQ
python -m bench figures          # documented figures of startup, idle use, many queues and flushing
"""
