"""The command blocks of the pages do what the pages say, with real servers.

Those that need Kubernetes are executed by e2e, those that need Spark by tests/spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation.blocks import PAGES, blocks_of
from tests.documentation.session import run_page
from tests.documentation.spark_pages import SPARK_PAGES

TIMEOUT_S = 240.0
HERE = [page for page in PAGES if page not in SPARK_PAGES and any(block.runs_here for block in blocks_of(page))]

pytestmark = [pytest.mark.client, pytest.mark.timeout(2 * TIMEOUT_S)]


@pytest.mark.parametrize("page", HERE)
def test_the_blocks_of_a_page_run_in_order(page: str, tmp_path: Path) -> None:
    run_page(page, tmp_path, TIMEOUT_S)
