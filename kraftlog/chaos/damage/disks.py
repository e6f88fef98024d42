"""What is on the disks: which batches each broker's logs have, and whether any is gone that was there before."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from kraftbase.errors import KraftlogError
from kraftlog.broker.log.formats.names import is_deleted_directory
from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.damage.damages import Files
from kraftlog.kafka.record_batch import read_batches

LOCK: Final = ".lock"
LOG_PARTS: Final = (".log", ".cut")
"""In the names of files that have batches, also of those that were set aside."""

Batch = tuple[int, bytes]
"""The base offset, and a digest of all bytes."""
Batches = Mapping[At, frozenset[Batch]]


def files_of(directory: Path) -> dict[str, bytes]:
    """All files of a log directory, by their paths in it, without its lock."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != LOCK
    }


def served(files: Files, partitions: Collection[At]) -> Batches:
    """The batches of the logs that a broker serves."""
    found: dict[At, set[Batch]] = {at: set() for at in partitions}
    by_name = {str(at): at for at in partitions}
    for file, content in files.items():
        at = by_name.get(file.partition("/")[0])
        if at is not None and file.endswith(".log"):
            found[at].update(_batches(content))
    return {at: frozenset(batches) for at, batches in found.items()}


def kept(files: Files, partitions: Collection[At]) -> Batches:
    """The batches that are in any file of these partitions, served or set aside, but not in what will be removed."""
    found: dict[At, set[Batch]] = {at: set() for at in partitions}
    for file, content in files.items():
        directory, _, name = file.partition("/")
        if is_deleted_directory(directory) or not any(part in name for part in LOG_PARTS):
            continue
        for at in partitions:
            if directory == str(at) or directory.startswith(f"{at}."):
                found[at].update(_batches(content))
    return {at: frozenset(batches) for at, batches in found.items()}


def lost(before: Batches, after: Batches, starts: Mapping[At, int]) -> dict[At, list[int]]:
    """The base offsets, from the log's start on, of batches that were there before and are not any more."""
    missing = {
        at: sorted(offset for offset, digest in batches - after[at] if offset >= starts[at])
        for at, batches in before.items()
    }
    return {at: offsets for at, offsets in missing.items() if offsets}


def _batches(content: bytes) -> Iterator[Batch]:
    """Those before the first that cannot be read, and whose CRC is right."""
    try:
        for batch in read_batches(content):
            batch.check_crc()
            yield batch.base_offset, hashlib.blake2b(batch.data, digest_size=8).digest()
    except KraftlogError:
        return
