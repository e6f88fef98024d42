"""When a node reads through its own metadata database to check that it is still what was applied."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from typing import Final

import structlog

from statemachine.store.background import last_line, run_to_end, start_module
from statemachine.store.metadata_tables import StoreUnavailable
from statemachine.store.scrub import CORRUPT_EXIT_CODE
from statemachine.store.store import MetadataStore

SCRUB_INTERVAL_MS: Final = 24 * 60 * 60 * 1000
RETRY_SECONDS: Final = 60.0
"""How long to wait after the database could not be read."""

logger = structlog.get_logger(__name__)


class Scrubber:
    """Scrubs at the start, unless the database is new, and then from time to time, in its own process."""

    def __init__(
        self, store: MetadataStore, interval_ms: int, on_corruption: Callable[[str], None], *, is_new: bool = False
    ) -> None:
        """`interval_ms` is from the end of a scrub to the beginning of the next; 0: only one scrub, at the start.

        `on_corruption` is called on corruption, once. A database that `is_new` was empty when it was opened.
        """
        self._store = store
        self._interval_ms = interval_ms
        self._on_corruption = on_corruption
        self._is_new = is_new

    async def run(self) -> None:
        """Run until cancelled, until corruption is detected, or until no scrub is due."""
        wait_seconds = self._interval_seconds if self._is_new else 0.0
        while wait_seconds is not None:
            await asyncio.sleep(wait_seconds)
            wait_seconds = await self.scrub()

    async def scrub(self) -> float | None:
        """Scrub once. Return the number of seconds until the next scrub; None: there is none."""
        code, output, error_output = await run_to_end(
            start_module("statemachine.store.scrub", (str(self._store.path),))
        )
        if code == CORRUPT_EXIT_CODE:
            self._on_corruption(last_line(error_output))
            return None
        if code != 0:
            logger.warning("metadata database was not scrubbed", reason=last_line(error_output) or f"exit code {code}")
            return RETRY_SECONDS
        try:
            await asyncio.to_thread(self._store.complete_row_sums, json.loads(output))
        except (StoreUnavailable, sqlite3.Error) as error:
            logger.warning("sums of rows stay partial until the next scrub", reason=str(error))
            return RETRY_SECONDS
        return self._interval_seconds

    @property
    def _interval_seconds(self) -> float | None:
        return self._interval_ms / 1000 if self._interval_ms else None
