"""The command blocks of the pages about Spark do what the pages say, in sessions of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation.session import run_page
from tests.documentation.spark_pages import SPARK_PAGES

TIMEOUT_S = 420.0
DEFAULTS = "spark.sql.shuffle.partitions 2\nspark.ui.enabled false\nspark.python.unix.domain.socket.enabled true\n"


@pytest.mark.spark
@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize("page", SPARK_PAGES)
def test_the_blocks_of_a_page_run_in_order(page: str, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS, encoding="utf-8")
    run_page(page, tmp_path, TIMEOUT_S, {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(tmp_path)})
