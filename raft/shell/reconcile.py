"""Makes a node's log and snapshots consistent at its start (SN-44).

A crash may have happened between storing a snapshot and replacing the log by it; files may have been lost or restored
from elsewhere. After this the newest snapshot belongs to the log, none is older than the log's start, and one ends at
that start if it is above 0, unless the state machine holds the records below.
"""

from __future__ import annotations

import structlog

from kraftbase.errors import CorruptSnapshot, StorageError
from kraftbase.types import Offset
from raft.core.log import is_replaced_by
from raft.core.types import OffsetAndEpoch
from raft.storage.segmented_log import SegmentedLog
from snapshot.store import SnapshotStore

logger = structlog.get_logger(__name__)


def reconcile_log_and_snapshots(
    log: SegmentedLog, snapshots: SnapshotStore, cluster_id: str, applied_end_offset: Offset
) -> bool:
    """Whether the node can continue from these; `applied_end_offset` is the end of what its state machine has applied.

    False: the log starts above 0, and no whole snapshot or state machine holds the records below. Deletes snapshots
    that are damaged, of another cluster, not of this log or older than its start. Raises StorageError, OutOfSpace,
    FlushFailed.
    """
    # Consider a node with a log from 1000 to 1800 and snapshots at 500, 1000 and 1500:
    # - The one at 500 is deleted, since it is below the log start.
    # - There is one at 2500, too: it was fetched, and the node crashed before the log was replaced. The log starts over
    #   at 2500.
    # - The one at 1000 is lost: the log starts at 1500 from now on, so that a snapshot ends at its start (SN-43).
    # - The ones at 1000 and 1500 are lost or damaged. If the state machine holds what is below 1000, the node can
    #   continue. If not, that data is not on this node: False, and the caller makes the log recover.
    snapshots.clean_up()
    _delete_below_start(log, snapshots)
    _begin_behind_newest(log, snapshots, cluster_id)
    _delete_below_start(log, snapshots)
    for snapshot_id in snapshots.ids():
        if not _is_of(snapshot_id, log):
            logger.error("snapshot deleted: the log has other records there", snapshot=str(snapshot_id))
            snapshots.delete(snapshot_id)
    if log.log_start_offset == 0:
        return True
    if applied_end_offset < log.log_start_offset and _newest_whole(snapshots, cluster_id) is None:
        return False
    _start_at_a_snapshot(log, snapshots, cluster_id)
    return True


def _delete_below_start(log: SegmentedLog, snapshots: SnapshotStore) -> None:
    for snapshot_id in snapshots.ids():
        if snapshot_id.offset < log.log_start_offset:
            snapshots.delete(snapshot_id)


def _begin_behind_newest(log: SegmentedLog, snapshots: SnapshotStore, cluster_id: str) -> None:
    """Replace the log by a snapshot that ends above the log: it was fetched for that purpose."""
    for snapshot_id in reversed(snapshots.ids()):
        if not is_replaced_by(log.end, snapshot_id):
            return
        if _is_whole(snapshots, snapshot_id, cluster_id):
            logger.info("the log starts over where a snapshot ends", start=snapshot_id.offset)
            log.truncate_fully_and_start_at(snapshot_id)
            return


def _start_at_a_snapshot(log: SegmentedLog, snapshots: SnapshotStore, cluster_id: str) -> None:
    """The snapshot at the log's start is lost: move the start to the end of the next whole snapshot (SN-44)."""
    for snapshot_id in snapshots.ids():
        if snapshot_id.offset == log.log_start_offset:
            return
        if _is_whole(snapshots, snapshot_id, cluster_id):
            log.advance_start(snapshot_id)
            return


def _newest_whole(snapshots: SnapshotStore, cluster_id: str) -> OffsetAndEpoch | None:
    return next((found for found in reversed(snapshots.ids()) if _is_whole(snapshots, found, cluster_id)), None)


def _is_whole(snapshots: SnapshotStore, snapshot_id: OffsetAndEpoch, cluster_id: str) -> bool:
    """Whether the snapshot can be used; one that is damaged, or of another cluster, is deleted."""
    try:
        with snapshots.open_whole(snapshot_id) as reader:
            if reader.header.cluster_id != cluster_id:
                raise CorruptSnapshot(f"{reader.path} is of cluster {reader.header.cluster_id}, not of {cluster_id}")
    except CorruptSnapshot as error:
        logger.error("snapshot deleted", reason=str(error))
        snapshots.delete(snapshot_id)
        return False
    except StorageError as error:
        logger.error("a snapshot cannot be read", reason=str(error))
        return False
    return True


def _is_of(snapshot_id: OffsetAndEpoch, log: SegmentedLog) -> bool:
    is_in_log = log.log_start_offset <= snapshot_id.offset <= log.log_end_offset
    if not is_in_log or log.epochs.epoch_before(snapshot_id.offset) != snapshot_id.epoch:
        return False
    return log.is_boundary(snapshot_id.offset)
