"""Whether the files of a stopped node are sound, and what its next start does about damaged ones.

Nothing is written, locked or created in the node's directory. A crash may leave a torn tail, or one copy of the quorum
state older than the other: that is sound, and repaired at the next start.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from shutil import copyfile
from typing import Final

from kraftbase.errors import DirectoryError, StorageError
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Offset
from kraftlog.broker.directory import HAS_LOG_DIRECTORIES_NAME
from kraftlog.broker.settings import PARTITIONS_NAME
from kraftlog.offline.broker_verification import is_log_directory, verify_log_directory
from kraftlog.offline.file_reports import FileReport, FileStatus
from kraftlog.offline.in_use import refuse_if_in_use
from kraftlog.offline.log_verification import DOES_NOT_START, LogCheck, verify_log
from kraftlog.offline.replay_verification import Progress, compare_with_log
from kraftlog.offline.snapshot_files import snapshot_report
from raft.core.types import OffsetAndEpoch
from raft.storage.directory import (
    LOG_NAME,
    META_NAME,
    METADATA_DATABASE_NAME,
    SNAPSHOTS_NAME,
    DirectoryIdentity,
    decode_meta,
)
from raft.storage.quorum_state import COPY_NAMES, decode_copy
from snapshot.bootstrap import read_bootstrap
from snapshot.names import BOOTSTRAP_NAME, DELETED_SUFFIX, is_leftover, parse_snapshot_name
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.database import DivergedDatabase, UnusableDatabase, open_database

REBUILDS: Final = "sets it aside and rebuilds it from"
FORGETS_SNAPSHOTS: Final = "deletes the snapshots, sets it aside and rebuilds it from the log"
FINDS_BIT_ROT: Final = "detects bit rot by a scrub and rebuilds it; if it does not, move it away before"
FROM_LOG: Final = "the log"
FROM_SNAPSHOT: Final = "the newest snapshot that is whole, then the log"
MENDS: Final = "repairs it from the other copy"
RECOVERS_LOG: Final = (
    "recovers a voter's log from the other voters, or does not start if there are none; rebuilds an observer's database"
)
LEAVES_SNAPSHOT: Final = (
    "leaves it, unless the database must be rebuilt: then it deletes this one and takes the one before, or the log"
)
PASSES_OVER_SNAPSHOT: Final = "leaves it, and does not make a database of it"
REMOVES: Final = "removes it"
WRITE_AHEAD_SUFFIX: Final = "-wal"


def verify_directory(directory: Path, progress: Progress = lambda done, total: None) -> list[FileReport]:
    """The findings for the data directory of a node or a broker, or for a log directory of a broker, file by file.

    `progress` is called as a log is read. Raises DirectoryError if it is none of these, or a process uses it, and
    OSError or StorageError for a file that may not be read.
    """
    refuse_if_in_use(directory)
    if (directory / PARTITIONS_NAME).is_dir() or (directory / HAS_LOG_DIRECTORIES_NAME).exists():
        return _verify_broker(directory, progress)
    is_node = any((directory / name).exists() for name in (*COPY_NAMES, LOG_NAME))
    if not is_node and is_log_directory(directory):
        return verify_log_directory(directory, progress=progress)
    if not is_node and not (directory / META_NAME).exists():
        raise DirectoryError(
            f"{directory} is not a node's data directory, nor a broker's; name the log.dir of one node, the directory"
            " of one broker, or one of its log directories"
        )
    log = verify_log(directory)
    snapshots = directory / SNAPSHOTS_NAME
    meta, identity = _verify_meta(directory / META_NAME)
    return [
        meta,
        *_verify_quorum_state(directory, log),
        *log.reports,
        *_verify_snapshots(snapshots, log, identity),
        *_verify_database(
            directory / METADATA_DATABASE_NAME,
            log,
            identity,
            FROM_SNAPSHOT if _has_any(snapshots) else FROM_LOG,
            progress,
        ),
    ]


def _verify_broker(directory: Path, progress: Progress) -> list[FileReport]:
    """A broker's own directory, with the log directory that is in it unless others were given."""
    meta, identity = _verify_meta(directory / META_NAME)
    metadata = _verify_database(
        directory / METADATA_DATABASE_NAME, LogCheck([], None), identity, "the cluster's metadata log", progress
    )
    partitions = directory / PARTITIONS_NAME
    logs = verify_log_directory(partitions, f"{PARTITIONS_NAME}/", progress) if partitions.is_dir() else []
    return [meta, *metadata, *logs]


def _verify_meta(path: Path) -> tuple[FileReport, DirectoryIdentity | None]:
    if not path.exists():
        return FileReport(
            META_NAME, FileStatus.DAMAGED, "missing", "the owner of this data is unknown", DOES_NOT_START
        ), None
    try:
        identity = decode_meta(path.read_bytes(), str(path))
    except DirectoryError as error:
        return FileReport(META_NAME, FileStatus.DAMAGED, "damaged", str(error), DOES_NOT_START), None
    return FileReport(META_NAME, found=f"node {identity.node_id} of cluster {identity.cluster_id}"), identity


def _verify_quorum_state(directory: Path, log: LogCheck) -> list[FileReport]:
    paths = [directory / name for name in COPY_NAMES]
    if not any(path.exists() for path in paths):
        if log.end_offset == 0:
            return [FileReport(name, found="nothing was ever voted") for name in COPY_NAMES]
        lost = "there is a log, so a vote may be lost"
        return [FileReport(name, FileStatus.DAMAGED, "missing", lost, DOES_NOT_START) for name in COPY_NAMES]
    reports = []
    sequences: dict[str, int] = {}
    for path in paths:
        report, sequence = _verify_copy(path)
        reports.append(report)
        if sequence is not None:
            sequences[path.name] = sequence
    return _compare_copies(reports, sequences)


def _verify_copy(path: Path) -> tuple[FileReport, int | None]:
    """One copy of the quorum state, and its sequence number if it is whole."""
    if not path.exists():
        return FileReport(path.name, FileStatus.DAMAGED, "missing", next_start=MENDS), None
    try:
        copy = decode_copy(path.read_bytes(), str(path))
    except StorageError as error:
        return FileReport(path.name, FileStatus.DAMAGED, "unknown version", str(error), DOES_NOT_START), None
    if copy is None:
        return FileReport(path.name, FileStatus.DAMAGED, "damaged", next_start=MENDS), None
    sequence, state = copy
    leader = "no leader known" if state.leader_id is None else f"leader {state.leader_id}"
    voted = "" if state.voted_key is None else f", voted for {state.voted_key.node_id}"
    return FileReport(path.name, found=f"epoch {state.epoch}, {leader}{voted}, saved {sequence} times"), sequence


def _compare_copies(reports: list[FileReport], sequences: dict[str, int]) -> list[FileReport]:
    """Add what the next start does with a copy that is worse than the other one."""
    if not sequences:
        for report in reports:
            report.next_start = DOES_NOT_START
        return reports
    newest = max(sequences.values())
    for report in reports:
        sequence = sequences.get(report.file)
        if sequence is None and report.found == "missing" and newest == 1:
            report.status = FileStatus.MENDED  # a crash came between the two files that the first save makes
        elif sequence is not None and sequence < newest:
            report.status = FileStatus.MENDED if sequence == newest - 1 else FileStatus.DAMAGED
            report.next_start = MENDS
    return reports


def _verify_snapshots(directory: Path, log: LogCheck, identity: DirectoryIdentity | None) -> list[FileReport]:
    """Every snapshot, the oldest first, and the leftovers of deleted and unfinished ones."""
    reports = []
    for name in sorted(entry.name for entry in directory.iterdir()) if directory.is_dir() else ():
        snapshot_id = parse_snapshot_name(name)
        if name == BOOTSTRAP_NAME:
            reports.append(_verify_bootstrap(directory, identity))
        elif snapshot_id is not None:
            reports.append(_verify_snapshot(directory / name, snapshot_id, log, identity))
        elif is_leftover(name):
            found = "was deleted" if name.endswith(DELETED_SUFFIX) else "was not finished"
            reports.append(FileReport(f"{SNAPSHOTS_NAME}/{name}", FileStatus.MENDED, found, next_start=REMOVES))
    return reports


def _verify_bootstrap(directory: Path, identity: DirectoryIdentity | None) -> FileReport:
    """The voters, by their directories."""
    report = FileReport(f"{SNAPSHOTS_NAME}/{BOOTSTRAP_NAME}", FileStatus.SOUND)
    try:
        voters = read_bootstrap(PosixFileSystem(), str(directory), None if identity is None else identity.cluster_id)
    except StorageError as error:
        report.status, report.reason, report.next_start = FileStatus.DAMAGED, str(error), DOES_NOT_START
    else:
        report.found = f"{0 if voters is None else len(voters)} voters with their directory ids"
    return report


def _verify_snapshot(
    path: Path, snapshot_id: OffsetAndEpoch, log: LogCheck, identity: DirectoryIdentity | None
) -> FileReport:
    """One snapshot: whether it is whole, and whether the next start could make a database of it."""
    cluster_id = None if identity is None else identity.cluster_id
    report = snapshot_report(path, f"{SNAPSHOTS_NAME}/{path.name}", cluster_id)
    if log.end_offset is not None and not _is_in(log, log.end_offset, snapshot_id):
        report.status = FileStatus.DAMAGED
        report.reason = report.reason or f"the log, that ends at {log.end_offset}, does not have all that is in it"
        report.next_start = PASSES_OVER_SNAPSHOT
    elif report.status is FileStatus.DAMAGED:
        report.next_start = LEAVES_SNAPSHOT
    return report


def _is_in(log: LogCheck, end_offset: Offset, snapshot_id: OffsetAndEpoch) -> bool:
    if log.epochs is None:
        return False
    last = log.epochs.end_offset_for_epoch(snapshot_id.epoch, end_offset)
    return last.epoch == snapshot_id.epoch and snapshot_id.offset <= last.offset


def _has_any(directory: Path) -> bool:
    return directory.is_dir() and any(parse_snapshot_name(entry.name) for entry in directory.iterdir())


def _verify_database(
    path: Path, log: LogCheck, identity: DirectoryIdentity | None, made_from: str, progress: Progress
) -> list[FileReport]:
    """Open a copy as a start does; a new one would be made from `made_from`.

    Without findings if it is unknown whose directory it is.
    """
    if identity is None:
        return []
    if not path.exists():
        return [FileReport(path.name, found="nothing was applied", next_start=f"makes it from {made_from}")]
    with tempfile.TemporaryDirectory(prefix="kraftlog-verify-") as scratch:
        copy = Path(scratch, path.name)
        for suffix in ("", WRITE_AHEAD_SUFFIX):  # SQLite would write to these, even to read
            if (beside := path.with_name(path.name + suffix)).exists():
                copyfile(beside, copy.with_name(copy.name + suffix))
        try:
            database = open_database(copy, identity.cluster_id)
        except UnusableDatabase as error:
            next_start = FORGETS_SNAPSHOTS if isinstance(error, DivergedDatabase) else f"{REBUILDS} {made_from}"
            return [FileReport(path.name, FileStatus.DAMAGED, "cannot be used", str(error), next_start)]
        except (DirectoryError, StorageError) as error:
            reason = str(error).replace(str(copy), str(path))
            return [FileReport(path.name, FileStatus.DAMAGED, "cannot be used", reason, DOES_NOT_START)]
        with closing(database.conn) as connection:
            tables = MetadataTables(connection, name=str(path))
            is_in_log = log.end_offset is None or tables.is_in(log.end_offset, log.epochs)
            differs = (
                compare_with_log(path.parent, connection, tables.applied, identity.cluster_id, Path(scratch), progress)
                if is_in_log and log.end_offset is not None
                else None
            )
    report = FileReport(path.name, found=f"offsets below {tables.applied.end_offset} are applied")
    if differs is not None:
        report.status, report.reason, report.next_start = FileStatus.DAMAGED, differs, FINDS_BIT_ROT
    if not is_in_log:
        report.status = FileStatus.DAMAGED
        report.reason = f"the log, that ends at {log.end_offset}, does not have all that is applied"
        is_ahead = tables.applied.end_offset > (log.end_offset or 0)
        report.next_start = RECOVERS_LOG if is_ahead else f"{REBUILDS} {made_from}"
    return [report]
