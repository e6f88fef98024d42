"""A log directory whose disk is full: since when that is so, and when it no longer is.

It is full when something was refused for want of room, or when less than the low-water mark is free. It is not any more
when twice as much is free, and nothing was refused since it was measured before: else a little room, such as retention
makes, would have leaderships go to and fro (CT-66). Both are logged once, however many appends are refused.

Records do not take the last of the room. Consider a broker whose metadata are on the same disk: if its logs fill it, it
can apply no change of the metadata, and goes on with old ones for as long as that lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from kraftbase.errors import OutOfSpace
from kraftbase.files.files import Space
from kraftbase.said_once import SaidOnce

LOW_WATER_BYTES: Final = 64 * 1024 * 1024
LOW_WATER_DIVISOR: Final = 20
"""On a small disk the low-water mark is this part of it."""

KEPT_DIVISOR: Final = 4
"""This part of the low-water mark is kept free of records, for what the broker itself has to note."""

ADVICE: Final = (
    "lower retention.ms or retention.bytes, by which whole segments go, delete topics or records, move replicas, or"
    " make the file system larger; see docs/operations/brokers.md"
)

logger = structlog.get_logger(__name__)


class FullDisk:
    """Of one log directory."""

    def __init__(self, path: str, look: Callable[[], Space]) -> None:
        """`look` tells the room as it is now. It may raise StorageError."""
        self.is_full = False
        self.space: Space | None = None
        """What was measured last."""
        self.on_change: Callable[[], object] = lambda: None
        """Called when it is full now, or no longer is."""
        self._free_bytes = 0
        """By the last measurement and what was appended since."""
        self._path = path
        self._look = look
        self._refusals = SaidOnce()
        self._refused_before = 0

    @property
    def low_water_bytes(self) -> int:
        """With less than that free it is full."""
        return (
            LOW_WATER_BYTES if self.space is None else min(LOW_WATER_BYTES, self.space.total_bytes // LOW_WATER_DIVISOR)
        )

    def take(self, size_bytes: int) -> None:
        """Records of so many bytes are to be written. Raises OutOfSpace if the rest would be too little."""
        if self.space is None:
            return
        kept_bytes = self.low_water_bytes // KEPT_DIVISOR
        if self._free_bytes - size_bytes < kept_bytes:
            self._free_bytes = self._look().free_bytes  # something may have been deleted since it was measured
        if self._free_bytes - size_bytes < kept_bytes:
            raise OutOfSpace(
                f"{self._path} has {self._free_bytes:,} bytes free, of which {kept_bytes:,} are kept for the broker's"
                f" own files; {size_bytes:,} bytes of records do not fit"
            )
        self._free_bytes -= size_bytes

    def refused(self, error: BaseException) -> None:
        """There was no room for something."""
        if self._refusals.begins():
            logger.error(
                "a log directory is full: what is to be written there is refused until there is room", path=self._path,
                reason=str(error), advice=ADVICE,
            )  # fmt: skip
        self._set_full(is_full=True)

    def measured(self, space: Space) -> None:
        """So much room there is now."""
        self.space = space
        self._free_bytes = space.free_bytes
        was_refused = self._refusals.count != self._refused_before
        if space.free_bytes < self.low_water_bytes:
            if not self.is_full:
                logger.warning(
                    "a log directory has little room: replicas that have more are to lead instead of those in it",
                    path=self._path, free_bytes=space.free_bytes, low_water_bytes=self.low_water_bytes, advice=ADVICE,
                )  # fmt: skip
            self._set_full(is_full=True)
        elif self.is_full and not was_refused and space.free_bytes >= 2 * self.low_water_bytes:
            logger.warning(
                "a log directory has room again", path=self._path, free_bytes=space.free_bytes,
                refused=self._refusals.count,
            )  # fmt: skip
            self._refusals.ends()
            self._set_full(is_full=False)
        self._refused_before = self._refusals.count

    def _set_full(self, *, is_full: bool) -> None:
        if is_full != self.is_full:
            self.is_full = is_full
            self.on_change()
