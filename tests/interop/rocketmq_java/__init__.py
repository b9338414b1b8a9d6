"""Apache RocketMQ's own Java code for tests and benchmarks: the official client, the official servers.

`build` compiles the Maven project beside this package once per version of it, `watched_process` runs one of its
classes, and `servers` starts a name server and a broker of Apache RocketMQ.
"""

from .build import BuildError, JavaBuild, Release, build
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
    "java",
]
