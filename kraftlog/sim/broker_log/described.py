"""Descriptions of a broker's replicas, for the report of a run that failed."""

from __future__ import annotations

from collections.abc import Iterable

from kraftlog.replicas.partitions.partition import Partition


def describe_replicas(partitions: Iterable[Partition]) -> list[str]:
    """Return a line for each replica: its role, its epoch, and the offsets of its log."""
    return [f"  {partition} {_described(partition)}" for partition in partitions]


def _described(partition: Partition) -> str:
    log = partition.log
    if log is None:
        return f"offline: {partition.offline_reason}"
    role = "leads" if partition.is_leader else "follows"
    return (
        f"{role} E{partition.leader_epoch} S{log.log_start_offset} H{log.high_watermark} F{log.recovery_point}"
        f" O{log.log_end_offset} isr {list(partition.isr)}"
    )
