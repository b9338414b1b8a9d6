"""Command `python -m raptormq_operator`. The settings come from environment variables (see `settings`)."""

from __future__ import annotations

import asyncio
import logging
import sys

from raptormq.errors import RaptorMQError
from raptormq.logs import configure_logging, get_logger
from raptormq_operator.service import run
from raptormq_operator.settings import Settings


def main() -> int:
    """Run the operator until SIGTERM. An error is printed as one line on stderr; the exit code is then 2."""
    try:
        settings = Settings.from_environment()
        configure_logging(settings.log_level, settings.log_format)
        # kopf logs every event and object, and repeats failed requests that its supervisor (kopf_watch) already logs.
        if logging.root.level > logging.DEBUG:
            get_logger("kopf").setLevel(logging.CRITICAL)
        asyncio.run(run(settings))
    except RaptorMQError as error:
        sys.stderr.write(f"raptormq_operator: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
