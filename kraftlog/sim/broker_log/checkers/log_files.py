"""The files of one partition: the batches of its segments, and checks of their indexes."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from kraftbase.files.files import FileSystem, join, read_whole
from kraftlog.sim.broker_log.checkers.batches import Batch, whole_batches
from kraftlog.sim.broker_log.checkers.rules import INDEXES, OFFSETS
from kraftlog.sim.engine.violation import Violation

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")
_DIGITS: Final = 20


class Aborted(NamedTuple):
    """An aborted transaction as a reader gets it, and the offset of its marker."""

    producer_id: int
    first_offset: int
    marker_offset: int
    may_begin_earlier: bool
    """Whether its first records may be deleted: nothing of the producer's earlier transactions is left."""


def read_log(files: FileSystem, directory: str, corrupt_indexes: Collection[str] = ()) -> list[Batch]:
    """Return every batch of a partition, in order. The broker must be down or between two steps.

    The content of `corrupt_indexes` is not checked. Raises Violation if segments overlap or an index entry is wrong.
    """
    found: list[Batch] = []
    names = set(files.list_directory(directory))
    for stem, batches in read_segments(files, directory):
        if f"{stem}.index" in names:
            path = join(directory, f"{stem}.index")
            if path not in corrupt_indexes:
                _check_offset_index(path, read_whole(files, path), int(stem), batches)
        if f"{stem}.timeindex" in names:
            path = join(directory, f"{stem}.timeindex")
            if path not in corrupt_indexes:
                _check_time_index(path, read_whole(files, path), int(stem), batches)
        found += batches
        if f"{stem}.txnindex" in names:
            path = join(directory, f"{stem}.txnindex")
            _check_transaction_index(path, read_whole(files, path), batches, aborted_transactions(found))
    return found


def read_segments(files: FileSystem, directory: str) -> Iterator[tuple[str, list[Batch]]]:
    """Read the whole batches of each segment of a partition, in order, with the stem of its files' names.

    After a power cut, indexes may disagree with the log from the recovery point on.
    Raises Violation if segments overlap.
    """
    last_offset = -1
    for name in files.list_directory(directory):
        stem = name.removesuffix(".log")
        if name == stem or len(stem) != _DIGITS:
            continue
        if int(stem) <= last_offset:
            raise Violation(f"{OFFSETS}: {join(directory, name)} begins before offset {last_offset + 1}")
        batches = whole_batches(read_whole(files, join(directory, name)))
        _check_order(join(directory, name), int(stem), batches)
        last_offset = batches[-1].last_offset if batches else last_offset
        yield stem, batches


def aborted_transactions(batches: Sequence[Batch]) -> list[Aborted]:
    """Return the aborted transactions that a scan finds. Each begins with its first record that was not deleted."""
    begun: dict[int, int] = {}
    found: list[Aborted] = []
    ended: set[int] = set()
    for batch in batches:
        if batch.is_of_transaction:
            begun.setdefault(batch.producer_id, batch.base_offset)
        elif batch.is_marker:
            first_offset = begun.pop(batch.producer_id, None)
            if batch.is_abort and first_offset is not None:
                may_begin_earlier = batch.producer_id not in ended
                found.append(Aborted(batch.producer_id, first_offset, batch.base_offset, may_begin_earlier))
            ended.add(batch.producer_id)
    return found


def _check_order(path: str, base_offset: int, batches: list[Batch]) -> None:
    end_offset = base_offset
    for batch in batches:
        if batch.base_offset < end_offset or batch.last_offset < batch.base_offset:
            raise Violation(f"{OFFSETS}: {path} has {batch.base_offset} at byte {batch.position}, behind {end_offset}")
        end_offset = batch.last_offset + 1


def _check_offset_index(path: str, data: bytes, base_offset: int, batches: list[Batch]) -> None:
    """Check that each entry is the last offset of a batch and its position, and that both columns ascend."""
    by_last_offset = {batch.last_offset: batch.position for batch in batches}
    previous = -1
    for relative, position in _OFFSET_ENTRY.iter_unpack(data[: len(data) // _OFFSET_ENTRY.size * _OFFSET_ENTRY.size]):
        if relative <= previous or by_last_offset.get(base_offset + relative) != position:
            raise Violation(
                f"{INDEXES}: {path} says that offset {base_offset + relative} is the last of the batch at byte"
                f" {position}; that batch is at {by_last_offset.get(base_offset + relative)}"
            )
        previous = relative


def _check_time_index(path: str, data: bytes, base_offset: int, batches: list[Batch]) -> None:
    """Check that each entry is the largest timestamp up to an offset, and that both columns ascend."""
    previous_ms = previous = -1
    for timestamp_ms, relative in _TIME_ENTRY.iter_unpack(data[: len(data) // _TIME_ENTRY.size * _TIME_ENTRY.size]):
        largest = max((batch.max_timestamp_ms for batch in batches if batch.last_offset <= base_offset + relative),
                      default=-1)  # fmt: skip
        is_an_end = any(batch.last_offset == base_offset + relative for batch in batches)
        if timestamp_ms <= previous_ms or relative <= previous or largest != timestamp_ms or not is_an_end:
            raise Violation(
                f"{INDEXES}: {path} says {timestamp_ms} for offset {base_offset + relative}; up to"
                f" that offset it is {largest}"
            )
        previous_ms, previous = timestamp_ms, relative


def _check_transaction_index(path: str, data: bytes, batches: list[Batch], aborted: list[Aborted]) -> None:
    """Check that each entry is an abort with its marker in the segment, beginning where a scan finds it, or earlier."""
    markers = {batch.base_offset for batch in batches if batch.is_abort}
    begun = {(transaction.producer_id, transaction.marker_offset): transaction.first_offset for transaction in aborted}
    whole = data[: len(data) // _TRANSACTION_ENTRY.size * _TRANSACTION_ENTRY.size]
    for _, producer_id, first_offset, last_offset, _ in _TRANSACTION_ENTRY.iter_unpack(whole):
        if last_offset not in markers or first_offset > begun.get((producer_id, last_offset), last_offset):
            raise Violation(
                f"{INDEXES}: {path} says that producer {producer_id} has aborted {first_offset} to {last_offset}; a"
                f" scan finds {begun.get((producer_id, last_offset))}"
            )
