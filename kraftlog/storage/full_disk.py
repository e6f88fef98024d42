"""Tracks whether the disk of a log directory is full.

The directory becomes full when a write was refused for lack of room, or when less than the low-water mark is free. It
stops being full when twice the low-water mark is free and no write was refused since the previous measurement: with a
lower bar, the little room that retention frees would make leaderships move to and fro (CT-66). Each change is logged
once, however many appends are refused.

Records may not use the last free room. Consider a broker whose metadata is on the same disk: if logs fill it, the
broker cannot apply changes of the metadata, and continues with old metadata for as long as the disk is full.
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
"""On a small disk the low-water mark is the size of the disk divided by this."""

KEPT_DIVISOR: Final = 4
"""The low-water mark divided by this is kept free of records, for the broker's own files."""

ADVICE: Final = (
    "lower retention.ms or retention.bytes (only whole segments are deleted), delete topics or records, move replicas,"
    " or enlarge the file system; see docs/operations/brokers.md"
)

logger = structlog.get_logger(__name__)


class FullDisk:
    """The free room of one log directory."""

    def __init__(self, path: str, look: Callable[[], Space]) -> None:
        """`look` measures the present room. It may raise StorageError."""
        self.is_full = False
        self.space: Space | None = None
        """The last measurement; None before the first."""
        self.on_change: Callable[[], object] = lambda: None
        """Called when `is_full` has changed."""
        self._free_bytes = 0
        """The free bytes at the last measurement, minus the bytes appended since."""
        self._path = path
        self._look = look
        self._refusals = SaidOnce()
        self._refused_before = 0

    @property
    def low_water_bytes(self) -> int:
        """The free bytes below which the directory is full."""
        return (
            LOW_WATER_BYTES if self.space is None else min(LOW_WATER_BYTES, self.space.total_bytes // LOW_WATER_DIVISOR)
        )

    def reserve(self, size_bytes: int) -> None:
        """Reserve room for records. Raises OutOfSpace if too little would be left for the broker's own files."""
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
        """Note that a write was refused for lack of room."""
        if self._refusals.begins():
            logger.error(
                "a log directory is full: writes to it are refused until there is room", path=self._path,
                reason=str(error), advice=ADVICE,
            )  # fmt: skip
        self._set_full(is_full=True)

    def measured(self, space: Space) -> None:
        """Update the state by a new measurement."""
        self.space = space
        self._free_bytes = space.free_bytes
        was_refused = self._refusals.count != self._refused_before
        if space.free_bytes < self.low_water_bytes:
            if not self.is_full:
                logger.warning(
                    "a log directory has little room: replicas elsewhere are preferred as leaders",
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
