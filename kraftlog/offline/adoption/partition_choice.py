"""Which replicas of a partition are in sync when its cluster is restored from a snapshot, by what their logs have.

Pure: from the partition in the snapshot, and the reported logs, to the partition in the restored cluster. Leaders and
ISRs in the snapshot are out of date: consider a replica that has left the ISR since. It would be elected, and records
that the others have acknowledged without it would be truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kraftbase.ids import UNASSIGNED_DIRECTORY
from kraftbase.sentinels import NO_LEADER, UNKNOWN_EPOCH
from kraftlog.offline.adoption.broker_report import ReportedLog
from kraftpb.v1.metadata_pb2 import PartitionRecord

EPOCH_JUMP: Final = 10_000
"""How much higher than any known leader epoch the new one is: a broker that was not adopted may know of later ones."""

EPOCH_MAX: Final = 2**30
"""A higher leader epoch is raised by only one: leader epochs end at 2,147,483,647."""


@dataclass(frozen=True, slots=True)
class ChosenPartition:
    """A partition in the restored cluster."""

    record: PartitionRecord
    """The partition without a leader, in epochs above all known ones; its ISR are the replicas one of which will lead.
    """
    log: ReportedLog | None
    """The log that all of these replicas have; None if none was reported."""
    not_adopted: tuple[int, ...]
    """The replicas whose logs were not reported."""
    damaged: tuple[int, ...]
    """The replicas whose logs are damaged, and had no records that the chosen log lacks."""
    damaged_beyond: tuple[int, ...]
    """The replicas whose logs are damaged, and may have had more records, which are lost."""

    @property
    def is_without_leader(self) -> bool:
        """Whether no replica can lead until a broker returns that was not adopted."""
        return self.log is None and bool(self.not_adopted)


def choose(
    partition: PartitionRecord, logs: Mapping[int, ReportedLog], is_reported: Callable[[int, bytes | None], bool]
) -> ChosenPartition:
    """The partition in the restored cluster. `logs`: the best log of each broker. `is_reported`: whether everything
    that a broker had in a directory was reported; None: in any directory.
    """
    directories = dict(zip(partition.replicas, partition.directories, strict=False))
    not_adopted = tuple(
        replica
        for replica in partition.replicas
        if replica not in logs and not is_reported(replica, directories.get(replica))
    )
    best = max((log.rank for log in logs.values()), default=None)
    with_best = [broker_id for broker_id in _in_order(partition, logs) if logs[broker_id].rank == best]
    added: list[int] = []
    in_sync = [broker_id for broker_id in with_best if broker_id in partition.replicas]
    if with_best and not in_sync:
        in_sync = added = with_best  # reassigned since the snapshot
    if not in_sync:
        in_sync = [broker_id for broker_id in partition.isr if broker_id in not_adopted]
        in_sync = in_sync or [*(not_adopted or partition.isr or partition.replicas)]
    record = PartitionRecord()
    record.CopyFrom(partition)
    record.replicas.extend(added)
    record.isr[:] = in_sync
    record.leader = NO_LEADER
    record.leader_epoch = raised(max([partition.leader_epoch, *(log.latest_epoch for log in logs.values())]))
    record.partition_epoch = raised(partition.partition_epoch)
    del record.eligible_leader_replicas[:]
    del record.last_known_elr[:]
    if partition.directories:
        directories |= {
            broker_id: logs[broker_id].directory_id.bytes for broker_id in record.replicas if broker_id in logs
        }
        record.directories[:] = [directories.get(replica, UNASSIGNED_DIRECTORY) for replica in record.replicas]
    log = None if best is None else logs[with_best[0]]
    damaged = [broker_id for broker_id in _in_order(record, logs) if logs[broker_id].is_damaged]
    beyond = [broker_id for broker_id in damaged if log is not None and _may_have_more(logs[broker_id], log)]
    return ChosenPartition(
        record,
        log=log,
        not_adopted=not_adopted,
        damaged=tuple(broker_id for broker_id in damaged if broker_id not in beyond),
        damaged_beyond=tuple(beyond),
    )


def _may_have_more(damaged: ReportedLog, log: ReportedLog) -> bool:
    """Whether a damaged log may have had records that another log lacks; its last epoch may be unknown."""
    if log.is_damaged:
        return False
    if damaged.last_epoch == UNKNOWN_EPOCH:
        return damaged.log_end_offset > log.log_end_offset
    return (damaged.last_epoch, damaged.log_end_offset) > (log.last_epoch, log.log_end_offset)


def raised(epoch: int) -> int:
    """An epoch that no broker has seen."""
    return epoch + EPOCH_JUMP if epoch <= EPOCH_MAX else epoch + 1


def _in_order(partition: PartitionRecord, logs: Mapping[int, ReportedLog]) -> list[int]:
    replicas = [replica for replica in partition.replicas if replica in logs]
    return [*replicas, *sorted(set(logs).difference(replicas))]
