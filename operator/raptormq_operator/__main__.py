"""Commands `python -m raptormq_operator`, which runs the operator, and `python -m raptormq_operator uninstall` (see
`uninstall`). The settings come from environment variables (see `settings`).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence

from raptormq.errors import ConfigError, RaptorMQError
from raptormq.logs import configure_logging, get_logger
from raptormq_operator import service, uninstall
from raptormq_operator.settings import Settings

UNINSTALL = "uninstall"


def main(arguments: Sequence[str]) -> int:
    """Run the operator until SIGTERM, or the command that `arguments` name. An error is printed as one line on stderr;
    the exit code is then 2.
    """
    try:
        if list(arguments) not in ([], [UNINSTALL]):
            raise ConfigError(f"the only argument is {UNINSTALL!r}, not {' '.join(arguments)!r}")
        settings = Settings.from_environment()
        configure_logging(settings.log_level, settings.log_format)
        # kopf logs every event and object, and repeats failed requests that its supervisor (kopf_watch) already logs.
        if logging.root.level > logging.DEBUG:
            get_logger("kopf").setLevel(logging.CRITICAL)
        asyncio.run(uninstall.run(settings) if arguments else service.run(settings))
    except RaptorMQError as error:
        sys.stderr.write(f"raptormq_operator: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
