"""New logs of a broker: which logs are new, and the records in inventories before many are created at once (DB-95)."""

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
    """Whether a partition's log is likely to be created, and no inventory expects it yet.

    `wanted_id` is the replica's directory in the metadata.
    """
    if len(logs.online) < len(logs.directories) or logs.failed or logs.directory_of(partition) is not None:
        return False  # it may be in a directory that is offline
    is_here = wanted_id in [directory.directory_id for directory in logs.directories]
    is_open = is_reserved(wanted_id.bytes) and wanted_id.bytes not in (LOST_DIRECTORY, DAMAGED_DIRECTORY)
    entries = [directory.records.entry(partition) for directory in logs.directories]
    return (is_here or is_open) and all(entry is None or entry.topic_id != topic_id for entry in entries)


# Consider a broker that starts once without its log directory A: the metadata then has the replica as damaged. When A
# is back, the log is in A, and the replica is sound. If the log was never flushed, a power failure may have left only
# its line in A's inventory: the log still counts as being in A.
#
# But A's line is out of date if the metadata has the replica in another directory, which is missing: the partition was
# copied into that one while A was away. So A's inventory forgets the log before the broker reports the replica as
# damaged. Otherwise the next startup without that directory would create an empty log in A, which could lead.
def check_is_new(logs: LogManager, partition: TopicPartition, topic_id: UUID, assigned_id: UUID) -> None:
    """Raise ApiError(KAFKA_STORAGE_ERROR) if a log that no directory has was in a missing directory (DB-89).

    `assigned_id` is the replica's directory in the metadata. Call this when all directories are online.
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
                    f"{directory.path} has no room to record that its log of {name} is out of date; make room on its"
                    " file system",
                )
    logs.missing.check(partition, assigned_id, present)


def expect_logs(logs: LogManager, wanted: Mapping[TopicPartition, tuple[UUID, UUID]]) -> Steps:
    """Record new logs in the inventories, with one sync for each inventory, before `LogManager.create_log`.

    `wanted` has, by partition, the topic id and the directory that the controller has chosen. A log that is created
    without this call needs a sync of its own.
    """
    expected: dict[UUID, dict[TopicPartition, UUID]] = {}
    counts = {log_dir.directory_id: len(log_dir.logs) + len(log_dir.damaged) for log_dir in logs.online}
    takes_new = [log_dir.directory_id for log_dir in logs.online if log_dir.directory_id not in logs.cordoned]
    for some in slices(list(wanted.items()), SLICE_LINES):
        for partition, (topic_id, wanted_id) in some:
            if wanted_id not in counts and not takes_new:
                continue
            chosen = wanted_id if wanted_id in counts else min(takes_new, key=lambda log_dir: counts[log_dir])
            counts[chosen] += 1
            expected.setdefault(chosen, {})[partition] = topic_id
        yield None
    for directory in logs.online:
        yield from directory.expect(expected.get(directory.directory_id, {}))
