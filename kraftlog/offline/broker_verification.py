"""Whether the logs of a stopped broker are sound, and what its next start does about damaged ones.

Every batch is read with its checksum, offsets and epochs; indexes, checkpoints and snapshots of producers are compared
with the batches. Nothing is written, locked or created.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from kraftbase.partition import TopicPartition
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.offline.file_reports import FileReport, FileStatus
from kraftlog.offline.inventory_verification import FoundInventory, missing_logs, read_inventory, verify_log
from kraftlog.offline.replay_verification import Progress
from kraftlog.offline.segment_verification import TAKES_OFFLINE, EpochRun, SegmentVerification
from kraftlog.storage.formats.checkpoints import decode_epochs, decode_meta, decode_offsets, decode_partition_metadata
from kraftlog.storage.formats.inventory import LogEntry
from kraftlog.storage.formats.names import (
    CLEAN_SHUTDOWN_NAME,
    DAMAGED_SUFFIX,
    HIGH_WATERMARKS_NAME,
    LEADER_EPOCHS_NAME,
    LOG_STARTS_NAME,
    LOG_SUFFIX,
    META_NAME,
    PARTITION_METADATA_NAME,
    PRODUCER_SNAPSHOT_SUFFIX,
    RECOVERY_POINTS_NAME,
    directory_name,
    is_deleted_directory,
    offset_in_name,
    partition_in_name,
)
from kraftlog.storage.formats.producer_snapshot import decode_snapshot
from kraftlog.storage.old_log import OLD_SUFFIX, OldFile
from kraftlog.storage.truncated_records import TruncatedRecordsFile

REMOVES: Final = "removes it"
READS_ALL: Final = "reads all segments"
FINDS_OUT: Final = "determines from other replicas what is committed"
TAKES_STARTS: Final = "takes the log starts from the inventory"
GOES_ON: Final = "continues after them: a topic that was once compacted has such gaps"
REFUSES_DIRECTORY: Final = "does not use the log directory"
MAKES_EPOCHS: Final = "rebuilds it from the batches"
KEEPS_EPOCHS: Final = "uses it unchanged: delete it while the broker is stopped, and it is rebuilt from the batches"

CUT_COMMITTED: Final = "records below the high watermark that the leader did not have; yours to delete"
OLD_LOG: Final = (
    "of the log before it was replaced by a leader's; the broker removes it when that leader's epoch is committed"
)
FINISHES: Final = "sets the segments aside if the log start says so, else removes this file"

T = TypeVar("T")


def is_log_directory(directory: Path) -> bool:
    """Whether the directory looks like one of a broker's log directories."""
    if (directory / RECOVERY_POINTS_NAME).exists() or (directory / LOG_STARTS_NAME).exists():
        return True
    return directory.is_dir() and any(_is_log(entry) for entry in directory.iterdir())


def _is_log(entry: Path) -> bool:
    return (
        partition_in_name(entry.name) is not None
        and entry.is_dir()
        and ((entry / PARTITION_METADATA_NAME).exists() or any(entry.glob(f"*{LOG_SUFFIX}")))
    )


def verify_log_directory(
    directory: Path, shown: str = "", progress: Progress = lambda done, total: None
) -> list[FileReport]:
    """The findings for a log directory. `shown` is the prefix of the names in it; `progress` is called with numbers of
    bytes. Raises OSError or StorageError for a file that cannot be read.
    """
    return _LogDirectory(directory, shown, progress).verify()


class _LogDirectory:
    def __init__(self, directory: Path, shown: str, progress: Progress) -> None:
        self._directory = directory
        self._shown = shown
        self._progress = progress
        self._done_bytes = 0
        self._total_bytes = 0
        self._reports: list[FileReport] = []
        self._was_clean = (directory / CLEAN_SHUTDOWN_NAME).exists()
        self._inventory = FoundInventory()

    def verify(self) -> list[FileReport]:
        self._inventory = read_inventory(self._directory, self._meta())
        if self._inventory.report is not None:
            self._take(self._inventory.report)
        recovery_points = self._offsets(RECOVERY_POINTS_NAME, FileStatus.MENDED, READS_ALL)
        if self._inventory.entries:
            log_starts = self._offsets(LOG_STARTS_NAME, FileStatus.MENDED, TAKES_STARTS)
        else:
            log_starts = self._offsets(LOG_STARTS_NAME, FileStatus.DAMAGED, REFUSES_DIRECTORY)
        self._offsets(HIGH_WATERMARKS_NAME, FileStatus.MENDED, FINDS_OUT)
        if self._was_clean:
            self._add(CLEAN_SHUTDOWN_NAME, found="the broker was shut down cleanly")
        entries = sorted(self._directory.iterdir())
        logs = [entry for entry in entries if _is_log(entry)]
        self._total_bytes = sum(path.stat().st_size for log in logs for path in log.glob(f"*{LOG_SUFFIX}"))
        for entry in entries:
            if is_deleted_directory(entry.name):
                self._add(entry.name, FileStatus.MENDED, "was deleted", next_start=REMOVES)
        for log in logs:
            partition = partition_in_name(log.name)
            if partition is not None:
                known = self._inventory.entries.get(partition)
                recovery_point, log_start_offset = recovery_points.get(partition, 0), log_starts.get(partition, 0)
                if known is not None:
                    recovery_point, log_start_offset = known.recovery_point, known.log_start_offset
                self._log(log, recovery_point, log_start_offset, known)
        names = {log.name for log in logs}
        for report in missing_logs(self._inventory, names):
            self._take(report)
        names |= {directory_name(one) for one in self._inventory.entries}
        self._missing({directory_name(one) for one in recovery_points | log_starts} - names)
        return self._reports

    def _take(self, report: FileReport) -> None:
        self._reports.append(replace(report, file=self._shown + report.file))

    def _add(
        self, name: str, status: FileStatus = FileStatus.SOUND, found: str = "", reason: str = "", next_start: str = ""
    ) -> None:
        self._reports.append(FileReport(self._shown + name, status, found, reason, next_start))

    def _meta(self) -> UUID | None:
        """The directory's id."""
        path = self._directory / META_NAME
        if not path.exists():
            self._add(META_NAME, FileStatus.DAMAGED, "missing", "the owner of this data is unknown")
            return None
        try:
            cluster_id, node_id, directory_id = decode_meta(path.read_bytes(), str(path))
        except MalformedBytes as error:
            self._add(META_NAME, FileStatus.DAMAGED, "damaged", str(error), REFUSES_DIRECTORY)
            return None
        self._add(META_NAME, found=f"broker {node_id} of cluster {cluster_id}")
        return directory_id

    def _offsets(self, name: str, status: FileStatus, next_start: str) -> dict[TopicPartition, int]:
        """A checkpoint file; `status` if it cannot be read."""
        path = self._directory / name
        if not path.exists():
            return {}
        try:
            offsets = decode_offsets(path.read_bytes(), str(path))
        except MalformedBytes as error:
            self._add(name, status, "damaged", str(error), next_start)
            return {}
        self._add(name, found=f"offsets of {len(offsets)} partitions")
        return offsets

    def _missing(self, names: set[str]) -> None:
        for name in sorted(names):
            self._add(name, FileStatus.DAMAGED, "missing", "the checkpoints list this log", "rebuilds it")

    # --- one partition ------------------------------------------------------------------------------------------------

    def _log(self, log: Path, recovery_point: int, log_start_offset: int, entry: LogEntry | None) -> None:
        shown = f"{self._shown}{log.name}"
        for path in sorted(log.glob(f"*{DAMAGED_SUFFIX}")):
            name = f"{log.name}/{path.name}"
            reaction = "copies the log again if another replica is in sync, else leaves the partition offline"
            self._add(name, FileStatus.DAMAGED, "set aside at an earlier start", "", reaction)
        if entry is None:
            self._topic_id(log)
        paths = [path for path in sorted(log.iterdir()) if offset_in_name(path.name, LOG_SUFFIX) is not None]
        runs: list[EpochRun] = []
        end_offset = 0
        flushed = 0 if log_start_offset >= recovery_point else recovery_point  # else all of it was deleted
        for index, path in enumerate(paths):
            base_offset = int(path.stem)
            latest_epoch = max((run.epoch for run in runs), default=-1)
            segment = SegmentVerification(
                path, base_offset, shown, flushed, latest_epoch=latest_epoch, was_clean=self._was_clean
            )
            check = segment.verify(paths[index + 1 :])
            if index and base_offset < end_offset:
                check.log.status = FileStatus.DAMAGED
                check.log.reason = f"the segment before ends at offset {end_offset}"
                check.log.next_start = TAKES_OFFLINE
            elif index and base_offset > end_offset and entry is None:
                self._add(log.name, found=f"no offsets {end_offset} to {base_offset - 1}", next_start=GOES_ON)
            self._reports += [check.log, *check.others]
            runs += check.epochs
            end_offset = check.end_offset
            self._done_bytes += path.stat().st_size
            self._progress(self._done_bytes, self._total_bytes)
        if entry is not None:
            for report in verify_log(log, entry, end_offset):
                self._take(report)
        elif end_offset < max(flushed, log_start_offset):
            reason = f"the checkpoints say that it reaches {max(flushed, log_start_offset)}"
            self._add(log.name, FileStatus.DAMAGED, f"the log ends at offset {end_offset}", reason, TAKES_OFFLINE)
        self._epochs(log, runs, flushed)
        self._cuts(log)
        self._old_logs(log)
        self._snapshots(log, end_offset)

    def _topic_id(self, log: Path) -> None:
        path = log / PARTITION_METADATA_NAME
        if path.exists():
            try:
                decode_partition_metadata(path.read_bytes(), str(path))
            except MalformedBytes as error:
                name = f"{log.name}/{path.name}"
                self._add(name, FileStatus.DAMAGED, "damaged", str(error), TAKES_OFFLINE)

    def _cuts(self, log: Path) -> None:
        """The records that a follower truncated because its leader did not have them."""
        for path in sorted(log.iterdir()):
            cut = TruncatedRecordsFile.named(path.name)
            if cut is not None and cut.is_committed:
                self._add(f"{log.name}/{path.name}", found=CUT_COMMITTED)

    def _old_logs(self, log: Path) -> None:
        """The log of a follower before it was replaced."""
        for path in sorted(log.iterdir()):
            old = OldFile.named(path.name)
            if old is not None and old.suffix == OLD_SUFFIX:
                self._add(f"{log.name}/{path.name}", found=OLD_LOG)
            elif old is not None:
                reason = f"the log was about to be replaced by one that starts at offset {old.offset}"
                self._add(f"{log.name}/{path.name}", FileStatus.MENDED, "unfinished", reason, FINISHES)

    def _epochs(self, log: Path, runs: list[EpochRun], flushed: int) -> None:
        """Whether each batch has the epoch that the file has for its offset."""
        name, path = f"{log.name}/{LEADER_EPOCHS_NAME}", log / LEADER_EPOCHS_NAME
        if not path.exists():
            if runs:
                self._add(name, FileStatus.MENDED, "missing", next_start=MAKES_EPOCHS)
            return
        try:
            entries = decode_epochs(path.read_bytes(), str(path))
        except MalformedBytes as error:
            self._add(name, FileStatus.MENDED, "damaged", str(error), MAKES_EPOCHS)
            return
        for run in runs:
            known = max((epoch for epoch, start_offset in entries if start_offset <= run.first_offset), default=-1)
            if known != run.epoch:
                is_flushed = run.last_offset < flushed
                self._add(
                    name, FileStatus.DAMAGED if is_flushed else FileStatus.MENDED, "does not agree with the log",
                    f"offset {run.first_offset} has epoch {run.epoch} in the log, and {known} in the file",
                    KEEPS_EPOCHS if is_flushed else MAKES_EPOCHS,
                )  # fmt: skip
                return

    def _snapshots(self, log: Path, end_offset: int) -> None:
        for path in sorted(log.iterdir()):
            offset = offset_in_name(path.name, PRODUCER_SNAPSHOT_SUFFIX)
            if offset is None:
                continue
            reason = f"the log ends at offset {end_offset}" if offset > end_offset else ""
            try:
                entries = decode_snapshot(path.read_bytes(), str(path))
            except MalformedBytes as error:
                reason = str(error)
            else:
                wrong = next((entry for entry in entries if entry.last_offset >= offset), None)
                if wrong is not None:
                    reason = f"producer {wrong.producer_id} has offset {wrong.last_offset}, which comes later"
            if reason:
                next_start = f"{REMOVES} and uses an older one, or the batches"
                self._add(f"{log.name}/{path.name}", FileStatus.MENDED, "cannot be used", reason, next_start)
