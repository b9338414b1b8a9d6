"""An embedded name server and broker for the tests of applications, and a pytest plugin.

    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders")
        ...  # clients with name_servers=cluster.name_servers

The pytest plugin is active wherever the package is installed: see :mod:`raptormq.testing.pytest_plugin`.
"""

from raptormq.testing.embedded_cluster import EmbeddedCluster

__all__ = ["EmbeddedCluster"]
