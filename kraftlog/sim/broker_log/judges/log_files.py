"""The files of one partition: what its segments hold, and whether their indexes agree with that."""

from __future__ import annotations

import struct
from typing import Final

from kraftbase.files.files import FileSystem, join, read_whole
from kraftlog.sim.broker_log.judges.batches import Batch, whole_batches
from kraftlog.sim.broker_log.judges.rules import INDEXES, OFFSETS
from kraftlog.sim.violation import Violation

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_DIGITS: Final = 20


def read_log(files: FileSystem, directory: str) -> list[Batch]:
    """Every batch of a partition, in order, while its broker stands still or is between two steps.

    Raises Violation if segments overlap, or an index names what is not there.
    """
    found: list[Batch] = []
    names = files.list_directory(directory)
    for name in [name for name in names if name.endswith(".log") and len(name) == _DIGITS + len(".log")]:
        base_offset = int(name[:_DIGITS])
        if found and base_offset <= found[-1].last_offset:
            raise Violation(f"{OFFSETS}: {join(directory, name)} begins before offset {found[-1].last_offset + 1}")
        batches = whole_batches(read_whole(files, join(directory, name)))
        _check_order(join(directory, name), base_offset, batches)
        stem = name.removesuffix(".log")
        if f"{stem}.index" in names:
            path = join(directory, f"{stem}.index")
            _check_offset_index(path, read_whole(files, path), base_offset, batches)
        if f"{stem}.timeindex" in names:
            path = join(directory, f"{stem}.timeindex")
            _check_time_index(path, read_whole(files, path), base_offset, batches)
        found += batches
    return found


def _check_order(path: str, base_offset: int, batches: list[Batch]) -> None:
    end_offset = base_offset
    for batch in batches:
        if batch.base_offset < end_offset or batch.last_offset < batch.base_offset:
            raise Violation(f"{OFFSETS}: {path} has {batch.base_offset} at byte {batch.position}, behind {end_offset}")
        end_offset = batch.last_offset + 1


def _check_offset_index(path: str, data: bytes, base_offset: int, batches: list[Batch]) -> None:
    """Each entry is the last offset of a batch, and where that begins; both columns ascend."""
    by_last_offset = {batch.last_offset: batch.position for batch in batches}
    previous = -1
    for relative, position in _OFFSET_ENTRY.iter_unpack(data[: len(data) // _OFFSET_ENTRY.size * _OFFSET_ENTRY.size]):
        if relative <= previous or by_last_offset.get(base_offset + relative) != position:
            raise Violation(
                f"{INDEXES}: {path} says that offset {base_offset + relative} ends the batch at byte"
                f" {position}; there is {by_last_offset.get(base_offset + relative)}"
            )
        previous = relative


def _check_time_index(path: str, data: bytes, base_offset: int, batches: list[Batch]) -> None:
    """Each entry is the largest timestamp up to an offset; both columns ascend."""
    previous_ms = previous = -1
    for timestamp_ms, relative in _TIME_ENTRY.iter_unpack(data[: len(data) // _TIME_ENTRY.size * _TIME_ENTRY.size]):
        largest = max((batch.max_timestamp_ms for batch in batches if batch.last_offset <= base_offset + relative),
                      default=-1)  # fmt: skip
        is_an_end = any(batch.last_offset == base_offset + relative for batch in batches)
        if timestamp_ms <= previous_ms or relative <= previous or largest != timestamp_ms or not is_an_end:
            raise Violation(
                f"{INDEXES}: {path} says {timestamp_ms} for offset {base_offset + relative}; up to"
                f" there it is {largest}"
            )
        previous_ms, previous = timestamp_ms, relative
