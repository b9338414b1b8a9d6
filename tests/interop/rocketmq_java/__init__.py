"""Apache RocketMQ's own Java code for tests and benchmarks: the official client, the official servers.

`build` compiles the Maven project beside this package once per version of it, `jvm` runs one of its classes,
`servers` starts a name server and a broker of Apache RocketMQ, and `ports` finds free ports for them.
"""

from .build import BuildError, JavaBuild, build
from .jvm import Jvm, JvmError
from .ports import free_port, free_port_run
from .servers import RocketMQServers

__all__ = [
    "BuildError",
    "JavaBuild",
    "Jvm",
    "JvmError",
    "RocketMQServers",
    "build",
    "free_port",
    "free_port_run",
]
