"""The resources of a node at one moment: bytes on disk per kind of file, memory, descriptors, threads.

Linux only: the resources of a process are read from /proc.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Final

from kraftbase.types import NodeId
from raft.storage.directory import LOG_NAME, METADATA_DATABASE_NAME, SNAPSHOTS_NAME

SEGMENT_SUFFIX: Final = ".log"
SNAPSHOT_SUFFIX: Final = ".checkpoint"
UNFINISHED_SUFFIXES: Final = (".part", ".tmp", ".new", ".deleted")
PROCESSES: Final = Path("/proc")
BYTES_PER_KIBIBYTE: Final = 1024


class FileKind(StrEnum):
    """The kinds of files in a node's data directory, each with its own bound."""

    LOG = "log"
    """Segments, including preallocated space."""
    SNAPSHOTS = "snapshots"
    """Complete snapshots."""
    DATABASE = "metadata.db"
    WAL = "metadata.db-wal"
    """SQLite's write-ahead log, with transactions that are not copied to the database yet, or could be discarded."""
    UNFINISHED = "unfinished"
    """Snapshots and other unfinished files, leftovers of a crash, and deleted files that a client may still read."""
    DAMAGED = "damaged"
    """Files that were set aside."""
    SMALL = "small"
    """All other files: identity, quorum state, log start, SQLite's shared memory."""


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """The resources of a process."""

    pid: int
    resident_bytes: int
    descriptors: int
    threads: int
    written_bytes: int
    """The bytes that it has written since its start, to files and connections, whether or not they are on a disk."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One node at one moment."""

    at_seconds: float
    """The time since the arena was created."""
    node_id: NodeId
    file_bytes: Mapping[FileKind, int]
    snapshots: int = 0
    """The number of complete snapshots."""
    process: ProcessSample | None = None
    """None if the node does not run."""

    @property
    def total_bytes(self) -> int:
        """The bytes of all files."""
        return sum(self.file_bytes.values())


@dataclass(slots=True)
class Written:
    """The bytes that a node has written over time, in all its processes, to compute those written during a read."""

    history: list[tuple[float, int]] = field(default_factory=list)
    _pid: int = -1
    _before: int = 0
    """The bytes that earlier processes have written."""

    def note(self, sample: Sample) -> None:
        """Add a sample of the node. Samples must be in order."""
        if sample.process is None:
            return
        latest = self.history[-1][1] if self.history else 0
        if sample.process.pid != self._pid:
            self._pid, self._before = sample.process.pid, latest
        self.history.append((sample.at_seconds, max(self._before + sample.process.written_bytes, latest)))

    def since(self, seconds: float) -> int:
        """Return the bytes written from the last sample at or before a time to the newest sample."""
        if not self.history:
            return 0
        earlier = bisect_right(self.history, seconds, key=itemgetter(0))
        return self.history[-1][1] - (self.history[earlier - 1][1] if earlier else 0)


def take_sample(at_seconds: float, node_id: NodeId, data: Path, pid: int | None) -> Sample:
    """Sample a node's directory, and its process unless `pid` is None. Call it in a thread: it stats about 30 files.

    Files that are created or deleted at the same time, and a process that ends, are not errors.
    """
    file_bytes = dict.fromkeys(FileKind, 0)
    snapshots = 0
    for path, size in files_in(data):
        kind = kind_of(path.relative_to(data))
        file_bytes[kind] += size
        snapshots += kind is FileKind.SNAPSHOTS
    return Sample(at_seconds, node_id, file_bytes, snapshots, None if pid is None else process_sample(pid))


def kind_of(path: Path) -> FileKind:
    """Return the kind of a file, by its path within the data directory."""
    stem = path.name
    if ".damaged" in stem:
        return FileKind.DAMAGED
    if any(stem.endswith(suffix) or f"{suffix}-" in stem for suffix in UNFINISHED_SUFFIXES):
        return FileKind.UNFINISHED
    if path.parts[0] == LOG_NAME and path.suffix == SEGMENT_SUFFIX:
        return FileKind.LOG
    if path.parts[0] == SNAPSHOTS_NAME and path.suffix == SNAPSHOT_SUFFIX:
        return FileKind.SNAPSHOTS
    return {METADATA_DATABASE_NAME: FileKind.DATABASE, f"{METADATA_DATABASE_NAME}-wal": FileKind.WAL}.get(
        path.as_posix(), FileKind.SMALL
    )


def process_sample(pid: int) -> ProcessSample | None:
    """Return the resources of a process; None if it has just ended."""
    process = PROCESSES / str(pid)
    try:
        status = _fields(process / "status")
        if "VmRSS" not in status:  # a zombie
            return None
        return ProcessSample(
            pid=pid,
            resident_bytes=int(status["VmRSS"].split()[0]) * BYTES_PER_KIBIBYTE,
            descriptors=len(os.listdir(process / "fd")),  # noqa: PTH208 (their number is all that is wanted)
            threads=int(status["Threads"]),
            written_bytes=int(_fields(process / "io")["wchar"]),
        )
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def files_in(directory: Path) -> Iterator[tuple[Path, int]]:
    """Yield every file below a directory with its size, except files that are deleted at the same time."""
    try:
        entries = list(directory.iterdir())
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir():
            yield from files_in(entry)
            continue
        try:
            yield entry, entry.stat().st_size
        except FileNotFoundError:
            continue


def _fields(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
