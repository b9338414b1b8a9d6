"""Apache RocketMQ's own Java code for tests and benchmarks: the official client, the official servers.

`build` compiles the Maven project beside this package once per version of it, `watched_process` runs one of its
classes, `servers` starts a name server and a broker of Apache RocketMQ, and `ports` finds free ports for them.
"""

from .build import BuildError, JavaBuild, Release, build
from .ports import free_port, free_port_run
from .servers import RocketMQServers
from .watched_process import ProcessError, WatchedProcess, java

__all__ = [
    "BuildError",
    "JavaBuild",
    "ProcessError",
    "Release",
    "RocketMQServers",
    "WatchedProcess",
    "build",
    "free_port",
    "free_port_run",
    "java",
]
