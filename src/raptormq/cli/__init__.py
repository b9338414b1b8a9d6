"""The command line ``raptormq``: runs servers, sends and prints messages, administers topics and groups.

Each command or group of commands has a module; :mod:`~raptormq.cli.main` is the entry point. The module of a command is
imported only when the command runs (:mod:`~raptormq.cli.lazy_group`), so a server does not load the client.
"""

from raptormq.cli.main import main

__all__ = ["main"]
