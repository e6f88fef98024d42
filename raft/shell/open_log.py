"""Opens a node's log at its start: damaged records are fetched again, if there are other voters to fetch from."""

from __future__ import annotations

from kraftbase.errors import CorruptLog, StorageError
from kraftbase.types import Epoch, Offset
from raft.core.election_state import ElectionState
from raft.core.types import UNKNOWN_UNTIL_OFFSET, OffsetAndEpoch, RecoveringLog
from raft.shell.reconcile import reconcile_log_and_snapshots
from raft.storage.advice import NOBODY_TO_FETCH_FROM, REPLACE_THE_DISK
from raft.storage.directory import DataDirectory
from raft.storage.recovering_file import begin_anew, say_recovering
from raft.storage.segmented_log import LogConfig, SegmentedLog
from snapshot.store import SnapshotStore


def open_log(
    directory: DataDirectory,
    config: LogConfig,
    snapshots: SnapshotStore,
    *,
    election_state: ElectionState | None,
    has_others: bool,
    applied: OffsetAndEpoch,
) -> SegmentedLog:
    """Open the log in `directory`, consistent with `snapshots`.

    `applied` is the end of what the state machine has applied: those records were committed, and flushed in this log. A
    log recovers if the node `has_others` to fetch from, and the log is damaged, or lacks applied records, or starts
    above the end of every snapshot and of the state machine. A voter's recovers because the voter may have acknowledged
    the missing records; an observer's, because it might otherwise follow a leader that lacks what its readers have
    seen. Raises CorruptLog and StorageError.
    """
    log = _open(directory, config, applied.offset, election_state, has_others)
    path = directory.log_path
    if log.recovering is None and not log.epochs.holds(applied, log.log_end_offset):
        log.close()
        reason = (
            f"the log in {path} does not have the records that were applied below offset {applied.offset}, the"
            f" last of epoch {applied.epoch}: the log was replaced by an older copy, or the database by another node's"
        )
        epoch = _epoch_to_recover_in(election_state, has_others, reason)
        say_recovering(directory.files, path, RecoveringLog(UNKNOWN_UNTIL_OFFSET, epoch, reason))
        log = SegmentedLog.open(directory.files, path, config=config, accept_damage_in_epoch=epoch)
    try:
        if reconcile_log_and_snapshots(log, snapshots, directory.identity.cluster_id, applied.offset):
            return log
    except BaseException:
        log.close()
        raise
    log.close()
    reason = (
        f"the log in {path} starts at offset {log.log_start_offset}, and neither a whole"
        " snapshot nor a database holds the records below"
    )
    epoch = _epoch_to_recover_in(election_state, has_others, reason)
    begin_anew(directory.files, path, epoch=epoch, reason=reason)
    return SegmentedLog.open(directory.files, path, config=config, accept_damage_in_epoch=epoch)


def _epoch_to_recover_in(election_state: ElectionState | None, has_others: bool, reason: str) -> Epoch:
    if election_state is None or not has_others:
        raise StorageError(f"{reason}. {NOBODY_TO_FETCH_FROM}")
    return election_state.epoch


def _open(
    directory: DataDirectory,
    config: LogConfig,
    minimum_durable_offset: Offset,
    election_state: ElectionState | None,
    has_others: bool,
) -> SegmentedLog:
    """Open the log as it is.

    The log is created before the quorum state, and the quorum state is written before any record. So if there is a log
    but no quorum state, a vote may be lost; if there is a quorum state but no log, acknowledged records may be lost.
    """
    try:
        log = SegmentedLog.open(
            directory.files,
            directory.log_path,
            config=config,
            minimum_durable_offset=minimum_durable_offset,
            accept_damage_in_epoch=election_state.epoch if election_state is not None and has_others else None,
            may_create=election_state is None,
        )
    except CorruptLog as error:
        if election_state is not None:
            raise
        raise _vote_lost(directory) from error
    if election_state is None and (log.log_end_offset > 0 or log.recovering is not None):
        log.close()
        raise _vote_lost(directory)
    return log


def _vote_lost(directory: DataDirectory) -> StorageError:
    return StorageError(
        f"{directory.path} has a log but no quorum state, so this node may have voted and not know it. Nothing was"
        f" changed. {REPLACE_THE_DISK}"
    )
