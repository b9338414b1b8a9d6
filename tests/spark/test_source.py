"""The data source class."""

from __future__ import annotations

import pyspark
import pytest

from pyspark_raptormq import DefaultSource
from pyspark_raptormq.errors import OptionError
from pyspark_raptormq.source import check_version


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0", "4.3.7", "4.3.0.dev1", "5.0.0"])
def test_version_of_spark_with_limits_for_python_sources_is_accepted(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["3.5.6", "4.0.1", "4.1.4"])
def test_older_version_of_spark_is_refused_with_what_is_needed(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(OptionError, match=rf"needs Spark 4\.2 or 4\.3, and this is Spark {version}: upgrade Spark"):
        DefaultSource({"subscribe": "t"})
