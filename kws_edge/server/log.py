"""The log of a server: lines of JSON on standard error, and what it warns of at the start."""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

from kws_edge.server.settings import mistyped_variables

_log = logging.getLogger("kws_edge.server")


class JsonFormatter(logging.Formatter):
    """A log record as one line of JSON: time, level, logger, message, and what came as extra "fields"."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, allow_nan=False)


def configure_logging(level: str) -> None:
    """Send every log line of this process to standard error, as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.getLogger("uvicorn.access").disabled = True


def warn_of_mistyped_variables() -> None:
    """Name the variables of the environment that were perhaps meant as settings."""
    for name, meant in mistyped_variables(os.environ):
        hint = f"; {meant} is one" if meant else ""
        _log.warning(f"variable {name}: no such setting; ignored{hint}")
