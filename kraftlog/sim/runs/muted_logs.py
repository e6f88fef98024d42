"""The production code's log lines, muted while a simulation runs: thousands of nodes would repeat the same."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import structlog


@contextlib.contextmanager
def muted_logs() -> Iterator[None]:
    """Log nothing in this context, and as before afterwards."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), cache_logger_on_first_use=False
    )
    try:
        yield
    finally:
        structlog.configure(**before)
