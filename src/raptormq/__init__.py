"""RaptorMQ: a message system that speaks the Apache RocketMQ remoting protocol and keeps its storage formats.

`raptormq.client` sends and consumes messages, `raptormq.cli` implements the `raptormq` command. The diagram in
docs/explanation/architecture.md shows the layers and the permitted directions of imports, which import-linter checks.
"""

__version__ = "0.2.0"
