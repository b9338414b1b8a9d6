"""The pages whose programs need Spark; tests/spark executes them."""

from __future__ import annotations

SPARK_PAGES = ("docs/tutorials/spark.md",)
