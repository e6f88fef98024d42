"""The contents of the disks: the batches in each broker's logs, and those that were lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from kraftbase.errors import KraftlogError
from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.damage.damages import Files
from kraftlog.kafka.record_batch import HEADER, read_batches
from kraftlog.storage.formats.names import LOG_SUFFIX, is_deleted_directory

LOCK: Final = ".lock"
LOG_PARTS: Final = (LOG_SUFFIX, ".cut")
"""Parts of the names of files with batches, including files that were set aside."""

Batches = Mapping[At, frozenset[bytes]]
"""All bytes of each batch, by partition."""


def files_of(directory: Path) -> dict[str, bytes]:
    """Return all files of a log directory, except its lock, by their paths in it."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != LOCK
    }


def served(files: Files, partitions: Collection[At]) -> Batches:
    """Return the batches of the logs that a broker serves."""
    found: dict[At, set[bytes]] = {at: set() for at in partitions}
    by_name = {str(at): at for at in partitions}
    for file, content in files.items():
        at = by_name.get(file.partition("/")[0])
        if at is not None and file.endswith(LOG_SUFFIX):
            found[at].update(_batches(content))
    return {at: frozenset(batches) for at, batches in found.items()}


def survivors(content: bytes, damaged: bytes | None) -> bytes:
    """Return the batches of a log that are unchanged at their position after the damage."""
    after, position, found = damaged or b"", 0, []
    for batch in _batches(content):
        if after[position : position + len(batch)] == batch:
            found.append(batch)
        position += len(batch)
    return b"".join(found)


def lost(before: Batches, after: Batches, starts: Mapping[At, int]) -> dict[At, list[int]]:
    """Return the base offsets, from the log start on, of batches that existed before and no longer exist."""
    return _from_start({at: batches - after[at] for at, batches in before.items()}, starts)


def gone(before: Batches, disks: Iterable[Files], starts: Mapping[At, int]) -> dict[At, list[int]]:
    """As `lost`, for batches that no file has, served or set aside; files that await deletion do not count."""
    contents: dict[At, list[bytes]] = {at: [] for at in before}
    for file, content in ((file, content) for files in disks for file, content in files.items()):
        directory, _, name = file.partition("/")
        if is_deleted_directory(directory) or not any(part in name for part in LOG_PARTS):
            continue
        for at in before:
            if directory == str(at) or directory.startswith(f"{at}."):
                contents[at].append(content)
    missing = {
        at: frozenset(batch for batch in batches if not any(batch in content for content in contents[at]))
        for at, batches in before.items()
    }
    return _from_start(missing, starts)


def _from_start(missing: Batches, starts: Mapping[At, int]) -> dict[At, list[int]]:
    offsets = {at: sorted(HEADER.unpack_from(batch)[0] for batch in batches) for at, batches in missing.items()}
    from_start = {at: [offset for offset in found if offset >= starts[at]] for at, found in offsets.items()}
    return {at: found for at, found in from_start.items() if found}


def _batches(content: bytes) -> Iterator[bytes]:
    """Yield the batches before the first one that cannot be read or has a wrong CRC."""
    try:
        for batch in read_batches(content):
            batch.check_crc()
            yield bytes(batch.data)
    except KraftlogError:
        return
