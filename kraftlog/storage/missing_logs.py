"""Logs that are in a log directory which this broker was not started with (DB-89).

A disk was not mounted, a `--log-dir` was left out, or the disk was replaced: the metadata names the directory of each
replica by its id, and the broker has no directory with that id. A replica with an empty log in place of the missing one
must not lead, since the records may come back with the directory. So the replica counts as damaged until another broker
leads, and this one copies the log from it, or until an unclean election.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import DAMAGED_DIRECTORY, is_reserved
from kraftbase.partition import TopicPartition
from kraftbase.uuids import uuid_to_text
from kraftlog.storage.formats.names import directory_name

logger = structlog.get_logger(__name__)


class MissingLogs:
    """The partitions of one broker whose logs are missing, and why. For one thread."""

    def __init__(self, paths: Sequence[str]) -> None:
        """`paths` are the log directories that the broker was started with."""
        self._paths = paths
        self._reasons: dict[TopicPartition, str] = {}
        self._ids_said: set[UUID] = set()

    def __contains__(self, partition: TopicPartition) -> bool:
        """Whether a partition's log is missing."""
        return partition in self._reasons

    def check(self, partition: TopicPartition, assigned_id: UUID, present: Collection[UUID]) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if a log that no directory here has is missing, rather than new.

        `assigned_id` is the replica's directory in the metadata. `present` are the ids of the directories here.
        """
        is_damaged = assigned_id.bytes == DAMAGED_DIRECTORY
        if assigned_id in present or (is_reserved(assigned_id.bytes) and not is_damaged):
            return
        where = "damaged, or in a log directory" if is_damaged else f"in the log directory {uuid_to_text(assigned_id)}"
        self._reasons[partition] = (
            f"the log of {directory_name(partition)} is {where} that this broker was not started with; it has"
            f" {', '.join(self._paths)}"
        )
        if assigned_id not in self._ids_said:
            self._ids_said.add(assigned_id)
            logger.error(
                "logs are missing: the broker was not started with their log directory. Logs that another broker leads"
                " are copied from it; the others are offline. Mount the directory, or name it with --log-dir, and"
                " restart the broker. If it is lost, see \"A disk that was replaced\" in docs/operations/brokers.md",
                directory_id=None if is_damaged else uuid_to_text(assigned_id), first=directory_name(partition),
                directories=list(self._paths),
            )  # fmt: skip
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self._reasons[partition])

    def reason(self, partition: TopicPartition) -> str:
        """Return why a partition's log is missing."""
        return self._reasons[partition]

    def remove(self, partition: TopicPartition) -> None:
        """Forget a partition that has a log again, or no replica here."""
        self._reasons.pop(partition, None)
