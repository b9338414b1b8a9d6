"""SQL92 filters: which messages a consumer wants, told by their properties (RocketMQ's ``rocketmq-filter``).

``tokens`` cuts the text, ``parser`` understands it, ``values`` compares as Java does, ``message_filter`` is what
brokers and clients use.
"""
