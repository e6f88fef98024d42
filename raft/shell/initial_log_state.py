"""The state of an opened log, for the replica that starts from it."""

from __future__ import annotations

from raft.core.log import LogState
from raft.core.types import OffsetAndEpoch, RecoveringLog
from raft.shell.shell_host import Identity
from raft.storage.segmented_log import SegmentedLog


def log_state(log: SegmentedLog, latest_snapshot: OffsetAndEpoch | None) -> LogState:
    """Where the log starts and ends, and how far it is flushed."""
    return LogState(
        end_offset=log.log_end_offset,
        flushed_end_offset=log.flushed_end_offset,
        epochs=log.epochs.copy(),
        latest_snapshot=latest_snapshot,
    )


def recovering_log(log: SegmentedLog, identity: Identity) -> RecoveringLog | None:
    """The reason why the replica must not take part, if any. In a new directory that is also damaged it must not found
    a quorum.

    For an observer a new directory has no effect: it has no vote that it could have forgotten.
    """
    if identity.key is None or not identity.voters.is_voter(identity.key):
        return log.recovering
    if log.new_directory is None or log.recovering is None:
        return log.recovering or log.new_directory
    return log.new_directory._replace(reason=log.recovering.reason, may_found=False)
