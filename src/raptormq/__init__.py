"""RaptorMQ: a message system that speaks the Apache RocketMQ remoting protocol and keeps its storage formats.

Start with `raptormq.client` to send and consume, with `raptormq.cli` for the `raptormq` command. The layers and the way
imports point are drawn in docs/explanation/architecture.md; import-linter checks them.
"""

__version__ = "0.2.0"
