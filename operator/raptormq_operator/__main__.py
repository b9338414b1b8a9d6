"""`python -m raptormq_operator`: the operator's process. Settings come from the environment (`settings`)."""

from __future__ import annotations

import asyncio
import logging
import sys

from raptormq.errors import RaptorMQError
from raptormq_operator.service import run
from raptormq_operator.settings import Settings


def main() -> int:
    """Runs until told to stop; an error is one line and exit code 2."""
    try:
        settings = Settings.from_environment()
        logging.basicConfig(
            stream=sys.stderr, level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        # kopf tells of every event and object that passes; what matters here are its warnings.
        logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
        asyncio.run(run(settings))
    except RaptorMQError as error:
        sys.stderr.write(f"raptormq_operator: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
