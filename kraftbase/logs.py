"""Loggers for modules that other people's programs import.

Without a configuration structlog writes to standard output, which in such a program is the program's own. These loggers
go to the standard library's `logging` then, by the names of their modules; it shows warnings on standard error unless
the program has configured something else. In kraftlog's own processes structlog is configured, and gets everything.
"""

from __future__ import annotations

import logging

import structlog


class LibraryLogger:
    """A logger called like structlog's: with an event and its fields."""

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, **known: object) -> None:
        """Log it for an engineer who investigates a fault."""
        self._log("debug", event, known)

    def info(self, event: str, **known: object) -> None:
        """Log a usual event."""
        self._log("info", event, known)

    def warning(self, event: str, **known: object) -> None:
        """Log what an operator should know."""
        self._log("warning", event, known)

    def _log(self, level: str, event: str, known: dict[str, object]) -> None:
        if structlog.is_configured():
            getattr(structlog.get_logger(self._name), level)(event, **known)
            return
        words = (event, *(f"{key}={value}" for key, value in known.items()))
        logging.getLogger(self._name).log(logging.getLevelNamesMapping()[level.upper()], "%s", " ".join(words))
