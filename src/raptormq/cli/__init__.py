"""The command ``raptormq``: servers, messages, topics and clusters from the shell.

One small file per command group; :mod:`~raptormq.cli.main` is the entry point. A command's module is imported only when
that command runs (:mod:`~raptormq.cli.lazy_group`), so that a server never loads the client or the table printer.
"""

from raptormq.cli.main import main

__all__ = ["main"]
