"""Inflates and reads the records of one batch in turns of a broker's loop, within a bound on all batches' memory.

A batch whose records are read in its first turn, as almost all are, reserves nothing. Any other batch reserves memory
at the end of that turn; if none is free, it waits and then starts over. So a flood of batches that inflate to many
bytes neither uses much memory nor delays other batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftbase.shared_bytes import SharedBytes
from kraftlog.kafka.codecs import PIECE_BYTES, held_bytes, inflate
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_batch import Compression
from kraftlog.kafka.record_heads import RecordHeads
from kraftlog.kafka.record_scan import PIECES_A_TURN, scan_records

INFLATION_BYTES_MAX: Final = 28 * 1024 * 1024
"""The memory for all batches that hold at most `LARGE_BYTES` each."""
LARGE_BYTES: Final = 9 * 1024 * 1024
"""Of the batches that hold more, one is read at a time, beside small ones; zstd's largest window is 128 MiB."""
_FREE_BYTES: Final = (PIECES_A_TURN + 1) * PIECE_BYTES
"""The number of bytes that are inflated in a turn."""


class InflationMemory:
    """The memory of the batches that a broker is reading."""

    def __init__(self) -> None:
        self._small = SharedBytes(INFLATION_BYTES_MAX)
        self._large = SharedBytes(1)

    def bound_of(self, size_bytes: int) -> SharedBytes:
        """Return the bound that a batch of this size counts towards."""
        return self._large if size_bytes > LARGE_BYTES else self._small

    @property
    def held_bytes(self) -> int:
        """The bytes that all batches have reserved."""
        return self._small.held_bytes + self._large.held_bytes


class BatchRecords:
    """Reads the heads of one batch's records. Call `close` unless all were read or reading has failed."""

    def __init__(self, codec: Compression, data: Buffer, count: int, bytes_max: int, memory: InflationMemory) -> None:
        """`data` is the compressed part, which must not change. More than `bytes_max` inflated bytes are refused."""
        self.is_read = False
        """Whether all records were read."""
        self._codec = codec
        self._data = data
        self._count = count
        self._bytes_max = bytes_max
        self._memory = memory
        self._held_bytes = 0
        self._bound: SharedBytes | None = None
        """The bound in which this batch holds memory or waits for it."""
        self._is_held = codec is Compression.NONE  # then the caller's request holds the memory
        self._scan: Iterator[RecordHeads] | None = None
        self._scanned_count = 0
        """The number of portions of the present scan; a repeated scan yields empty ones for those already given."""
        self._given_count = 0

    @property
    def waits(self) -> bool:
        """Whether this batch waits for memory."""
        return self._bound is not None and not self._is_held

    def portions(self) -> Iterator[RecordHeads]:
        """Continue until all records are read or memory is missing: then call again in a later turn.

        Raises MalformedBytes.
        """
        if self.is_read:
            return
        if self._scan is None:
            if not self._may_start():
                return
            self._scan = scan_records(inflate(self._codec, self._data, self._bytes_max), self._count)
            self._scanned_count = 0
        try:
            for heads in self._scan:
                self._scanned_count += 1
                if self._scanned_count > self._given_count:
                    self._given_count = self._scanned_count
                    yield heads
                else:
                    yield RecordHeads(heads.first_index)
        except MalformedBytes:
            self.close()
            raise
        self.is_read = True
        self.close()

    def end_turn(self) -> None:
        """Let other batches have a turn before all is read: reserve memory, or start over when there is some."""
        if not self._is_held and not self._try_hold():
            self._scan = None

    def close(self) -> None:
        """Release the memory, or leave the queue for it."""
        self._scan = None
        if self._bound is not None:
            if self._is_held:
                self._bound.give_back(self._held_bytes)
            else:
                self._bound.remove(self)
            self._bound, self._is_held = None, False

    def has_room(self, bound: SharedBytes, size_bytes: int) -> None:
        """The bound has reserved the memory for this batch, which waited for it."""
        self._is_held = True

    def _may_start(self) -> bool:
        """Whether the scan may start: a batch that has waited, or that inflates to much at once, needs memory first."""
        if self._is_held:
            return True
        if self._bound is None and (
            self._codec is not Compression.SNAPPY or held_bytes(self._codec, self._data) <= _FREE_BYTES
        ):
            return True
        return self._try_hold()

    def _try_hold(self) -> bool:
        if self._bound is None:
            self._held_bytes = held_bytes(self._codec, self._data)
            self._bound = self._memory.bound_of(self._held_bytes)
        self._is_held = self._bound.try_hold(self, self._held_bytes)
        return self._is_held
