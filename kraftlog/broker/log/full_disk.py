"""A log directory whose disk is full: that is logged once, however many appends of however many logs are refused."""

from __future__ import annotations

import structlog

from kraftbase.said_once import SaidOnce

logger = structlog.get_logger(__name__)


class FullDisk:
    """Of one log directory."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._refusals = SaidOnce()
        self._refused_before = 0

    def refused(self, error: BaseException) -> None:
        """There was no room for something."""
        if self._refusals.begins():
            logger.error(
                "a log directory is full: what is to be written there is refused until there is room. Lower"
                " retention.ms or retention.bytes, delete topics or records, or make the file system larger",
                path=self._path, reason=str(error),
            )  # fmt: skip

    def checkpoint_written(self) -> None:
        """There was room for a checkpoint. If nothing was refused since the last one, the disk is no longer full."""
        refused, before = self._refusals.count, self._refused_before
        if refused == before and self._refusals.ends():
            logger.info("a log directory has room again", path=self._path, refused=refused)
            refused = 0
        self._refused_before = refused
