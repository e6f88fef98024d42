"""Opens a node's log at its start: what damage took is fetched again, if there are others to fetch it from."""

from __future__ import annotations

from collections.abc import Callable

from raft.core.election import ElectionState
from raft.core.errors import CorruptLog, StorageError
from raft.core.types import Offset
from raft.snapshot_start import fit_together
from raft.storage.directory import DataDirectory
from raft.storage.recovering import begin_anew
from raft.storage.segmented_log import LogConfig, SegmentedLog
from snapshot.store import SnapshotStore


def open_log(
    directory: DataDirectory,
    config: LogConfig,
    snapshots: SnapshotStore,
    *,
    election_state: ElectionState | None,
    has_others: bool,
    minimum_durable_offset: Offset,
    take_up_state: Callable[[SegmentedLog], Offset],
) -> SegmentedLog:
    """The log in `directory`, fitting `snapshots`.

    `minimum_durable_offset` is an offset that the log was known to be flushed up to. `take_up_state` is called with the
    log that was found and says how much of it the state machine holds. A log that is damaged, or whose beginning nobody
    here holds, recovers if the node `has_others` to fetch it from. Raises CorruptLog and StorageError.
    """
    log = _open(directory, config, minimum_durable_offset, election_state, has_others)
    try:
        if fit_together(log, snapshots, directory.identity.cluster_id, take_up_state(log)):
            return log
    except BaseException:
        log.close()
        raise
    log.close()
    reason = (
        f"the log in {directory.log_path} starts at offset {log.log_start_offset}, and there is neither a whole"
        " snapshot nor a database that holds what is below"
    )
    if election_state is None or not has_others:
        raise StorageError(
            f"{reason}. Nothing of the log was changed, and there is no other voter to fetch it from: bring a snapshot"
            f" back to {snapshots.directory}, or restore a new cluster from a saved one"
        )
    begin_anew(directory.files, directory.log_path, epoch=election_state.epoch, reason=reason)
    return SegmentedLog.open(
        directory.files, directory.log_path, config=config, accept_damage_in_epoch=election_state.epoch
    )


def _open(
    directory: DataDirectory,
    config: LogConfig,
    minimum_durable_offset: Offset,
    election_state: ElectionState | None,
    has_others: bool,
) -> SegmentedLog:
    """The log as it is.

    The log is made before the quorum state, and that is written before any record: a log without a quorum state has
    lost it, and with it maybe a vote; a quorum state without a log has lost what may have been acknowledged.
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
        f"{directory.path} has a log but no quorum state, so this node may have voted and not know it; restore the"
        " quorum state, or format a new directory and let the node fetch everything anew"
    )
