"""Fixtures of the Spark source: one local session and one real broker for all tests.

A session takes about ten seconds to start and a broker two. Each test uses its own topics.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from demo.broker_process import running_broker


@pytest.fixture(scope="session")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the name server of a `raptormq dev` process."""
    settings = {"enablePropertyFilter": "true", "stagedMessagesEnable": "true"}
    with running_broker(tmp_path_factory.mktemp("broker"), **settings) as address:
        yield address


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores."""
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        # Clients of other tests try to reach servers that have ended, and may find the TCP ports of the session, which
        # close after their first connection.
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()
