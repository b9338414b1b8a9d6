"""Progress of the streaming queries of a SparkPipeline, queried from its driver over HTTP.

`pyspark_raptormq.pipeline_progress` defines the document, and `pyspark_raptormq.pipeline_driver` serves it. Tests
replace the protocol `DriverProgress`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import aiohttp

from raptormq.logs import get_logger
from raptormq_operator.manifests.pipeline import PROGRESS_PORT

TIMEOUT_S = 3.0
MAX_ANSWER = 1 << 20
"""Maximum size of a document in bytes."""

Progress = Mapping[str, Any]

log = get_logger(__name__)


class DriverProgress(Protocol):
    """Queries the progress of drivers."""

    async def ask(self, address: str) -> Progress | None:
        """Return the fields `queries`, `lag` and `rowsPerSecond` of the status; None without a response."""


class HttpDriverProgress:
    """`DriverProgress` over HTTP, with one connection per query."""

    async def ask(self, address: str) -> Progress | None:
        host = f"[{address}]" if ":" in address else address
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://{host}:{PROGRESS_PORT}/progress") as answer,
            ):
                answer.raise_for_status()
                if (answer.content_length or 0) > MAX_ANSWER:
                    return None
                return summary(await answer.json())
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            log.debug("cannot query the progress of driver %s: %r", address, error)
            return None


def summary(document: Any) -> Progress | None:
    """Return the status fields of a document; None if it is invalid. The driver runs user code, so every field is
    validated.
    """
    queries = document.get("queries") if isinstance(document, dict) else None
    if not isinstance(queries, list):
        return None
    found = [query for each in queries if (query := _query(each)) is not None]
    if not found:
        return {}
    unique = {query["name"]: query for query in found}
    totals: dict[str, Any] = {"rowsPerSecond": round(sum(query.get("rowsPerSecond", 0.0) for query in found), 1)}
    if any("lag" in query for query in found):
        totals["lag"] = sum(query.get("lag", 0) for query in found)
    return {"queries": [unique[name] for name in sorted(unique)], **totals}


def _query(each: Any) -> dict[str, Any] | None:
    if not isinstance(each, dict) or not isinstance(each.get("name"), str):
        return None
    query: dict[str, Any] = {"name": each["name"]}
    for key in ("batch", "lag"):
        if _is_number(each.get(key)):
            query[key] = int(each[key])
    if _is_number(each.get("rowsPerSecond")):
        query["rowsPerSecond"] = float(each["rowsPerSecond"])
    if _is_tree(each.get("offsets"), 3):
        query["offsets"] = each["offsets"]
    return query


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_tree(value: Any, depth: int) -> bool:
    if depth == 0:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, dict) and all(_is_tree(inner, depth - 1) for inner in value.values())
