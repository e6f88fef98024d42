"""The last batches of the log in memory, so that readers that keep up never read the disk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from kraftbase.types import Epoch, Offset
from raft.core.types import Batch

OBJECT_BYTES = 256
"""The approximate memory of a batch in addition to its bytes."""

_EVICTED = Batch(Offset(0), Offset(0), Epoch(0), False, b"")
"""Replaces an evicted batch."""


class TailCache:
    """The most recent batches, contiguous up to the log's end, of about `max_bytes` at most."""

    __slots__ = ("_base_offsets", "_batches", "_byte_count", "_evicted", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._byte_count = 0
        self._batches: list[Batch] = []
        self._base_offsets: list[Offset] = []
        self._evicted = 0
        """The number of empty places at the front of the lists, which are removed in bulk."""

    def append(self, batch: Batch) -> None:
        """Add the log's new last batch; evict the oldest ones that no longer fit."""
        self._batches.append(batch)
        self._base_offsets.append(batch.base_offset)
        self._byte_count += len(batch.data) + OBJECT_BYTES
        while self._byte_count > self._max_bytes:
            self._byte_count -= len(self._batches[self._evicted].data) + OBJECT_BYTES
            self._batches[self._evicted] = _EVICTED
            self._evicted += 1
        if self._evicted > 32 and self._evicted * 2 > len(self._batches):
            del self._batches[: self._evicted], self._base_offsets[: self._evicted]
            self._evicted = 0

    def truncate(self, end_offset: Offset) -> None:
        """Forget batches at or above `end_offset`."""
        index = bisect_left(self._base_offsets, end_offset)
        held = self._batches[max(index, self._evicted) :]
        self._byte_count -= sum(len(batch.data) + OBJECT_BYTES for batch in held)
        del self._batches[index:], self._base_offsets[index:]
        self._evicted = min(self._evicted, index)

    def read(self, start_offset: Offset, max_bytes: int, end_offset: Offset) -> list[Batch] | None:
        """Batches from the one that holds `start_offset`: at least one, at most `max_bytes`, none past `end_offset`.

        None if `start_offset` is below everything in the cache.
        """
        index = bisect_right(self._base_offsets, start_offset) - 1
        if index < self._evicted:
            return None
        batches: list[Batch] = []
        while index < len(self._batches):
            batch = self._batches[index]
            max_bytes -= len(batch.data)
            if batch.end_offset > end_offset or (batches and max_bytes < 0):
                break
            batches.append(batch)
            index += 1
        return batches
