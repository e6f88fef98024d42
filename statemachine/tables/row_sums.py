"""Sums over the rows of each table, kept with every transaction, so that a row that changes by itself is noticed.

Each table's rows are divided into slices, for example by the first character of an id. The sum of a slice is that of
the hashes of its rows, modulo 2^32: the order makes no difference, and a transaction adds the rows that it writes and
subtracts those that it removes. The hash of a row is the CRC-32C of its values, which differs whenever up to 32
adjacent bits do.

The sums are a column of `applied`, under one checksum with its other values: they change in the same transaction, and
cost it no further page. A slice is small enough to be read in one transaction, so the comparison needs no lock: one
read transaction sees rows and sum as of the same offset, while others are committed.

A database of a version that kept no sums has *partial* ones: they count from where this version opened it. The missing
part of each slice is the same at every later offset, so a scrub computes it in one transaction for each slice, and the
writer adds it to all of them at the end.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from marshal import dumps
from typing import Any, Final, NamedTuple

from google_crc32c import value as crc32c

from statemachine.tables.catalogue import TABLES
from statemachine.tables.cluster_tables import ACLS, CONFIGS
from statemachine.tables.table import Row, Table

LAYOUT: Final = 4
"""The layout of tables, columns, slices and hashes: sums of another layout are ignored."""

SLICES: Final = 8
"""For a table that may be large. Of a million rows a slice has 125,000, which are read in a fifth of a second; and all
sums together are so short that `applied` stays on one page of the database, and is written with it."""

_MARSHAL_VERSION: Final = 2
"""The last format in which equal values have equal bytes: later ones record which strings are shared."""
_MASK: Final = 2**32 - 1
_ID_CHARACTERS: Final = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
"""Of ids as text, as SQLite orders them."""
_BY_CHARACTER: Final = {character: at * SLICES // 64 for at, character in enumerate(_ID_CHARACTERS)}
_SEAL_BYTES: Final = 4
_SUM: Final = "I"
_SUM_BYTES: Final = 4


class Slice(NamedTuple):
    """Some of a table's rows: those whose sum is at `at`."""

    table: Table[Any]
    at: int
    where: str
    parameters: tuple[Any, ...]

    @property
    def select_sql(self) -> str:
        """Its rows."""
        where = f" WHERE {self.where}" if self.where else ""
        return f"SELECT {', '.join(self.table.columns)} FROM {self.table.name}{where}"  # noqa: S608 (names of our own)


def _by_id(row: Row) -> int:
    return _BY_CHARACTER.get(row[0][:1], 0)


def _by_resource(row: Row) -> int:
    name = row[1]
    return ord(name[-1]) % SLICES if name else 0


def _slice_of(table: Table[Any]) -> Callable[[Row], int] | None:
    if table is CONFIGS:
        return _by_resource
    return _by_id if table is ACLS or table.key[0] == "topic_id" else None


def _slices(table: Table[Any], first: int) -> Iterator[Slice]:
    slice_of = _slice_of(table)
    if slice_of is None:
        yield Slice(table, first, "", ())
    for number in range(SLICES if slice_of is not None else 0):
        if slice_of is _by_resource:
            # SQLite's unicode() of nothing is NULL.
            yield Slice(
                table, first + number, f"ifnull(unicode(substr(resource_name, -1)), 0) % {SLICES} = ?", (number,)
            )
            continue
        bounds = [_ID_CHARACTERS[at * 64 // SLICES] for at in (number, number + 1) if at < SLICES]
        conditions = [f"{table.key[0]} >= ?"] * (number > 0) + [f"{table.key[0]} < ?"] * (number < SLICES - 1)
        yield Slice(table, first + number, " AND ".join(conditions), tuple(bounds if number > 0 else bounds[1:]))


def _all_slices() -> tuple[Slice, ...]:
    slices: list[Slice] = []
    for table in TABLES:
        slices += _slices(table, len(slices))
    return tuple(slices)


ALL_SLICES: Final = _all_slices()
_FIRST: Final = {part.table: part.at for part in reversed(ALL_SLICES)}
_SLICE_OF: Final = {table: _slice_of(table) for table in TABLES}


def sum_of(rows: Iterable[Row]) -> int:
    """The sum of `rows`. Half a microsecond each."""
    found: int = sum(map(crc32c, map(dumps, rows, repeat(_MARSHAL_VERSION))))
    return found & _MASK


class RowSums:
    """The sums of all slices at one offset."""

    __slots__ = ("_sums", "is_complete")

    def __init__(self, sums: array[int] | None = None, *, is_complete: bool = True) -> None:
        """Without `sums`: those of empty tables, or partial ones that begin here."""
        self._sums = array(_SUM, bytes(_SUM_BYTES * len(ALL_SLICES))) if sums is None else sums
        self.is_complete = is_complete
        """Whether they count all rows; else only the changes since they began."""

    def __getitem__(self, part: Slice) -> int:
        return self._sums[part.at]

    def total(self, table: Table[Any]) -> int:
        """The sum of all slices of a table."""
        first = _FIRST[table]
        return sum(self._sums[first : first + (1 if _SLICE_OF[table] is None else SLICES)]) & _MASK

    def copy(self) -> RowSums:
        """A copy that changes independently."""
        return RowSums(self._sums[:], is_complete=self.is_complete)

    def add(self, table: Table[Any], rows: Sequence[Row]) -> None:
        """Count these rows, as `Table.to_row` has them."""
        self._count(table, rows, 1)

    def subtract(self, table: Table[Any], rows: Sequence[Row]) -> None:
        """Discount these rows, as they are stored."""
        self._count(table, rows, -1)

    def _count(self, table: Table[Any], rows: Sequence[Row], sign: int) -> None:
        sums, first, slice_of = self._sums, _FIRST[table], _SLICE_OF[table]
        if slice_of is None or (len({row[0] for row in rows}) == 1 and slice_of is _by_id):
            at = first if slice_of is None else first + slice_of(rows[0])
            sums[at] = (sums[at] + sign * sum_of(rows)) & _MASK
            return
        for row in rows:
            at = first + slice_of(row)
            sums[at] = (sums[at] + sign * crc32c(dumps(row, _MARSHAL_VERSION))) & _MASK

    def completed(self, missing: Sequence[int]) -> RowSums:
        """All sums, when `missing` is what these lack, slice by slice."""
        return RowSums(array(_SUM, ((own + more) & _MASK for own, more in zip(self._sums, missing, strict=True))))

    def encoded(self, applied: tuple[Any, ...]) -> bytes:
        """The value for the column, under one checksum with the other values of `applied` that change."""
        data = bytes((LAYOUT, self.is_complete)) + _little_endian(self._sums).tobytes()
        return data + _seal(applied, data)


def decode_sums(data: bytes | None, applied: tuple[Any, ...]) -> RowSums | None:
    """Decode the result of `RowSums.encoded`; partial sums if none were kept, or for another layout.

    None if they or `applied` were changed since.
    """
    if data is None:
        return RowSums(is_complete=False)
    if data[-_SEAL_BYTES:] != _seal(applied, data[:-_SEAL_BYTES]):
        return None
    if data[0] != LAYOUT:
        return RowSums(is_complete=False)
    sums = array(_SUM)
    sums.frombytes(data[2:-_SEAL_BYTES])
    return RowSums(_little_endian(sums), is_complete=bool(data[1]))


def missing_of(kept: int, found: int) -> int:
    """How much the kept sum of some rows lacks, if they add up to `found`; 0 if the two are equal."""
    return (found - kept) & _MASK


def _seal(applied: tuple[Any, ...], data: bytes) -> bytes:
    checksum: int = crc32c(dumps((*applied, data), _MARSHAL_VERSION))
    return checksum.to_bytes(_SEAL_BYTES, "little")


def _little_endian(sums: array[int]) -> array[int]:
    if sys.byteorder == "big":
        sums = sums[:]
        sums.byteswap()
    return sums
