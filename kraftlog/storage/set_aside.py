"""Sets aside logs that a broker does not use: strays, second copies, damaged logs are kept under other names (DB-89).

The metadata decides which log of a partition is used. An operator deletes a log that was set aside, or restores its
name.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import is_reserved
from kraftbase.partition import TopicPartition
from kraftbase.uuids import uuid_to_text
from kraftlog.storage.findings import Finding
from kraftlog.storage.formats.names import directory_name
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import SLICE_LINES, Steps, slices

logger = structlog.get_logger(__name__)


def set_damaged_aside(logs: LogManager, partition: TopicPartition) -> None:
    """Set a damaged log aside like a stray, since another replica has its records.

    At most one such log of a partition is kept, or a bad disk would fill up: the next one is deleted. Raises
    ApiError(KAFKA_STORAGE_ERROR).
    """
    directory = logs.directory_of(partition)
    if directory is None:
        return
    reason = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, directory.damaged[partition])
    name = directory_name(partition)
    if directory.removal.has_stray(partition):
        directory.removal.delete_log(partition, logs.new_id(), reason)
        logger.warning("a damaged log is deleted, and copied again from its leader", log=name, path=directory.path)
    else:
        kept_as = directory.removal.set_stray_aside(partition, logs.new_id(), reason)
        logger.warning(
            "a damaged log is set aside, and copied again from its leader; delete the kept files if nothing needs them",
            log=name, kept_as=kept_as, path=directory.path,
        )  # fmt: skip


def set_copies_aside(logs: LogManager, partition: TopicPartition, topic_id: UUID, assigned_id: UUID) -> None:
    """Keep one log of a partition that has logs in several directories, and set the others aside.

    The log in the directory that the metadata names is used. Consider a log in directory A, whose disk fails. The
    partition is moved away and back, and is copied into B; then A is repaired. A's log may be out of date: as a leader
    it would lose the records acknowledged since. If the metadata names neither directory, the log with the latest epoch
    is used, and among those the longest.

    An empty log is used only if all are empty: consider a startup without A, which created an empty log in B. A damaged
    log in the directory that the metadata names is not replaced by a sound one, which may be out of date: the partition
    is offline until an operator decides.
    """
    found = logs.directories_of(partition)
    if len(found) < 2:
        return

    def rank(log_dir: LogDirectory) -> tuple[bool, bool, bool, int, int]:
        log = log_dir.logs.get(partition)
        is_of_topic = log_dir.records.topic_ids.get(partition) in (None, topic_id)
        has_records = log is None or log.log_end_offset > 0
        return (is_of_topic, has_records, log_dir.directory_id == assigned_id, *_latest(log))

    used = max(found, key=rank)
    for directory in found:
        if directory is not used:
            _set_stray_aside(logs, directory, partition, used)


def set_old_aside(logs: LogManager, partition: TopicPartition, assigned_id: UUID) -> None:
    """Set a log aside if the metadata has the partition in a directory that is missing here.

    Consider directory A, which is missing for a while: the partition is copied into B. Then A is back, and B is
    missing: A's log is out of date. A log that is not in the inventory is used: an operator moved it here.
    """
    directory = logs.directory_of(partition)
    if directory is None or is_reserved(assigned_id.bytes) or partition in directory.records.came_by_hand:
        return
    if assigned_id not in [log_dir.directory_id for log_dir in logs.directories] and not logs.failed:
        _set_stray_aside(logs, directory, partition, old=True)


def set_stray_aside(logs: LogManager, partition: TopicPartition) -> None:
    """Set the logs of a partition aside: they are of an earlier topic of that name."""
    for directory in logs.directories_of(partition):
        _set_stray_aside(logs, directory, partition)


def set_strays_aside(logs: LogManager, topic_id_of: Callable[[TopicPartition], UUID | None]) -> Steps:
    """Set every log aside whose partition has no replica here, or whose topic id differs from that of its files.

    The files are kept, as in Kafka: if the controllers were restored from an old snapshot, the metadata may lack
    partitions whose records are still wanted. A log that cannot be renamed is not used either; the next startup tries
    to rename it again.
    """
    for directory in logs.directories:
        for some in slices([*directory.logs, *directory.damaged], SLICE_LINES):
            for partition in some:
                _set_aside_if_stray(logs, directory, partition, topic_id_of(partition))
            yield None
    yield from _forget_missing_strays(logs, topic_id_of)


def _set_aside_if_stray(
    logs: LogManager, directory: LogDirectory, partition: TopicPartition, topic_id: UUID | None
) -> None:
    try:
        finding = directory.findings.assess(partition, topic_id)
    except ApiError as error:
        logger.error("a log was not checked for being a stray", log=directory_name(partition), reason=str(error))
        return
    if finding is Finding.STRAY:
        _set_stray_aside(logs, directory, partition)


def _forget_missing_strays(logs: LogManager, topic_id_of: Callable[[TopicPartition], UUID | None]) -> Steps:
    """Remove partitions without a replica and without a log here from the inventories.

    Consider a log that is deleted by hand while its partition is on other brokers: if a replica returns, it is new.
    """
    for directory in logs.online:
        found: list[TopicPartition] = []
        for some in slices(directory.records.partitions, SLICE_LINES):
            found += [stray for stray in some if topic_id_of(stray) is None and logs.directory_of(stray) is None]
            yield None
        try:
            yield from directory.findings.forget_all_missing(found)
        except ApiError as error:
            logger.error("missing logs remain in an inventory", first=directory_name(found[0]), reason=str(error))


def _set_stray_aside(
    logs: LogManager, directory: LogDirectory, partition: TopicPartition, used: LogDirectory | None = None,
    *, old: bool = False,
) -> None:  # fmt: skip
    """Set one log aside, and log why.

    `used` is the directory whose log of the partition is used instead, if there is one. `old`: the metadata has the
    partition in a directory that is missing here.
    """
    name = directory_name(partition)
    found_id = directory.records.topic_ids.get(partition)
    reason = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is no longer a partition of this broker")
    if used is not None and partition in used.damaged:
        event = (
            f"a log is set aside: the log directory {used.path} has another log of the partition, which is used but"
            " damaged. Keep this one until the partition has its records again. To use it, stop the broker, move the"
            " damaged log out of its log directory, and restore the name of this one"
        )
    elif old:
        event = (
            "an old log is set aside: the metadata has the partition in a log directory that the broker was not started"
            " with. Keep the log until the partition has its records again. To use it, stop the broker, and restore its"
            " name"
        )
    else:
        event = (
            "a stray log is set aside: by the metadata this broker has no such partition, or has it in another log"
            " directory. Delete the log if that is right"
        )
    try:
        kept_as = directory.removal.set_stray_aside(partition, logs.new_id(), reason)
    except ApiError as error:
        logger.error("a stray log was not set aside", log=name, directory=directory.path, reason=str(error))
    else:
        logger.warning(
            event, log=name, kept_as=kept_as, directory=directory.path,
            topic_id=None if found_id is None else uuid_to_text(found_id),
        )  # fmt: skip


def _latest(log: PartitionLog | None) -> tuple[int, int]:
    """Return the latest epoch and the log end offset of a log; -1 and -1 for a damaged one."""
    return (-1, -1) if log is None else (log.epochs.latest, log.log_end_offset)
