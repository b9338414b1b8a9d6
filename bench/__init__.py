"""Figures beside those of peers, one command per table.

python -m bench client-load      # the official Java client on Apache RocketMQ 5.5.0 and on RaptorMQ
python -m bench figures          # what RaptorMQ promises about starting, idling, many queues and flushing
"""
