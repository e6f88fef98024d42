"""New logs of a broker: which ones they are, and what inventories say before they are made, many at once (DB-95)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import DAMAGED_DIRECTORY, LOST_DIRECTORY, is_reserved
from kraftbase.partition import TopicPartition
from kraftlog.storage.formats.names import directory_name
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.slices import SLICE_LINES, Steps, slices


def would_be_new(logs: LogManager, partition: TopicPartition, topic_id: UUID, wanted_id: UUID) -> bool:
    """Whether a log of a partition is likely to be made, and its inventory does not expect it yet.

    `wanted_id`: the directory that the metadata has for the replica.
    """
    if len(logs.online) < len(logs.directories) or logs.failed or logs.directory_of(partition) is not None:
        return False  # it may be in one that is not here
    is_here = wanted_id in [directory.directory_id for directory in logs.directories]
    is_open = is_reserved(wanted_id.bytes) and wanted_id.bytes not in (LOST_DIRECTORY, DAMAGED_DIRECTORY)
    entries = [directory.records.entry(partition) for directory in logs.directories]
    return (is_here or is_open) and all(entry is None or entry.topic_id != topic_id for entry in entries)


# Consider a broker whose log directory A is not there for a start: the metadata has its replica as damaged then.
# When A is back, its log is in A, and the replica is as it was. If nothing of the log was flushed, a loss of power may
# have left no more of it than a line in A's inventory: then the log is in A all the same.
#
# But A's line is old if the metadata has the replica in another directory that is not here: the partition was copied
# into that one while A was away. So A's inventory forgets it before the controller is told that the replica is damaged.
# Else the next start without that directory would make an empty log in A, which could lead.
def check_is_new(logs: LogManager, partition: TopicPartition, topic_id: UUID, assigned_id: UUID) -> None:
    """Raise ApiError(KAFKA_STORAGE_ERROR) if a log that no directory has was in one that is not here (DB-89).

    `assigned_id`: the directory that the metadata has for the replica. To be asked when all directories are online.
    """
    present = [directory.directory_id for directory in logs.directories]
    expecting = logs.expecting(partition, topic_id)
    if expecting and assigned_id.bytes == DAMAGED_DIRECTORY:
        return
    if not is_reserved(assigned_id.bytes) and assigned_id not in present:
        for directory in expecting:
            directory.findings.forget_missing([partition])
            if directory.records.entry(partition) is not None:
                name = directory_name(partition)
                raise ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{directory.path} has no room to note that its log of {name} is old; make room on its file system",
                )
    logs.missing.check(partition, assigned_id, present)


def expect_logs(logs: LogManager, wanted: Mapping[TopicPartition, tuple[UUID, UUID]]) -> Steps:
    """Have the inventories expect new logs, each with one sync, before `LogManager.create_log` makes them.

    `wanted`: by partition, the topic's id, and the directory that the controller has chosen. A log that is made
    without this has a sync of its own.
    """
    expected: dict[UUID, dict[TopicPartition, UUID]] = {}
    counts = {of.directory_id: len(of.logs) + len(of.damaged) for of in logs.online}
    takes_new = [of.directory_id for of in logs.online if of.directory_id not in logs.cordoned]
    for some in slices(list(wanted.items()), SLICE_LINES):
        for partition, (topic_id, wanted_id) in some:
            if wanted_id not in counts and not takes_new:
                continue
            chosen = wanted_id if wanted_id in counts else min(takes_new, key=lambda of: counts[of])
            counts[chosen] += 1
            expected.setdefault(chosen, {})[partition] = topic_id
        yield None
    for directory in logs.online:
        yield from directory.expect(expected.get(directory.directory_id, {}))
