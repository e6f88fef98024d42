"""The records of one batch, inflated and read in turns of a broker's loop, with a bound on what all batches hold.

A batch whose records are read in its first turn, as almost every one is, asks for nothing. Another one holds memory
from the end of that turn on; if there is none, it starts over when there is. So a flood of batches that inflate to
much neither takes much memory nor makes other batches wait.
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
"""What the batches hold that are being read, each of them at most `LARGE_BYTES`."""
LARGE_BYTES: Final = 9 * 1024 * 1024
"""A batch that holds more is read alone, beside small ones; with zstd's largest window that is 128 MiB."""
_FREE_BYTES: Final = (PIECES_A_TURN + 1) * PIECE_BYTES
"""What is inflated in a turn."""


class InflationMemory:
    """The memory of the batches that a broker is reading."""

    def __init__(self) -> None:
        self._small = SharedBytes(INFLATION_BYTES_MAX)
        self._large = SharedBytes(1)

    def bound_of(self, size_bytes: int) -> SharedBytes:
        """The bound that a batch which holds so much counts for."""
        return self._large if size_bytes > LARGE_BYTES else self._small

    @property
    def held_bytes(self) -> int:
        """What is held."""
        return self._small.held_bytes + self._large.held_bytes


class BatchRecords:
    """Reads the heads of one batch's records. Use `close` unless all were read or reading has failed."""

    def __init__(self, codec: Compression, data: Buffer, count: int, bytes_max: int, memory: InflationMemory) -> None:
        """`data` is what is compressed; it must not change. More than `bytes_max` inflated bytes are refused."""
        self.is_read = False
        """Whether all were read."""
        self._codec = codec
        self._data = data
        self._count = count
        self._bytes_max = bytes_max
        self._memory = memory
        self._held_bytes = 0
        self._bound: SharedBytes | None = None
        """Where it holds memory, or waits for it."""
        self._is_held = codec is Compression.NONE  # whoever has the batch has the memory
        self._scan: Iterator[RecordHeads] | None = None
        self._scanned_count = 0
        """How many portions the scan has given; one that has started over gives empty ones until it is level."""
        self._given_count = 0

    @property
    def waits(self) -> bool:
        """Whether it waits for memory."""
        return self._bound is not None and not self._is_held

    def portions(self) -> Iterator[RecordHeads]:
        """Go on, until all are read or there is no memory: then try again in another turn. Raises MalformedBytes."""
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
        """Others get their turn before all is read: hold memory, or start over when there is some."""
        if not self._is_held and not self._try_hold():
            self._scan = None

    def close(self) -> None:
        """Hold nothing any longer."""
        self._scan = None
        if self._bound is not None:
            if self._is_held:
                self._bound.give_back(self._held_bytes)
            else:
                self._bound.forget(self)
            self._bound, self._is_held = None, False

    def has_room(self, bound: SharedBytes, size_bytes: int) -> None:
        """There is memory, and it is held already."""
        self._is_held = True

    def _may_start(self) -> bool:
        """Once it has waited, and if it inflates to much at once, it must hold memory before it starts."""
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
