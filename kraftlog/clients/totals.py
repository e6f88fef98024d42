"""How many records were read of each partition, and their digests. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kraftlog.clients.records import ContentDigest, Record

ALL: Final = "all"
"""The value in place of a partition's id in the row of all partitions."""


class _Total:
    def __init__(self) -> None:
        self.records = 0
        self.size_bytes = 0
        self.digest = ContentDigest()

    def add(self, record: Record) -> None:
        self.records += 1
        self.size_bytes += record.size_bytes
        self.digest.add(record)

    def merge(self, other: _Total) -> None:
        self.records += other.records
        self.size_bytes += other.size_bytes
        self.digest.merge(other.digest)

    def fields(self) -> dict[str, Any]:
        return {"Records": self.records, "Bytes": self.size_bytes, "Checksum": self.digest.hex()}


class Totals:
    """Totals of these partitions, and of all of them."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self._totals = {partition: _Total() for partition in partitions}

    def add(self, records: Sequence[Record]) -> None:
        """Count records, which are of these partitions."""
        for record in records:
            if record.partition is not None:
                self._totals[record.partition].add(record)

    def fields(self) -> dict[str, Any]:
        """What was read in all, and of each partition."""
        return {**self._sum().fields(), "Partitions": self._of_each()}

    def rows(self) -> list[dict[str, Any]]:
        """A row for each partition, and the last one for all."""
        return [*self._of_each(), {"Partition": ALL, **self._sum().fields()}]

    def _of_each(self) -> list[dict[str, Any]]:
        return [{"Partition": partition, **total.fields()} for partition, total in self._totals.items()]

    def _sum(self) -> _Total:
        total = _Total()
        for other in self._totals.values():
            total.merge(other)
        return total
