"""SQL92 filters: expressions over properties that select messages (RocketMQ's ``rocketmq-filter``).

``tokens`` splits the text, ``parser`` parses it, ``values`` compares values as Java does, ``message_filter`` is the
interface for brokers and clients.
"""
