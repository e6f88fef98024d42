"""Logs that a broker does not use, and keeps under another name: strays, second copies, damaged logs (DB-89).

The metadata decides which log of a partition is used. What was set aside an operator deletes, or gives its name back.
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
    """Keep the files of a damaged log under another name, as those of a stray: its records are elsewhere.

    At most one is kept, or a bad disk would fill up: the next one is deleted. Raises ApiError(KAFKA_STORAGE_ERROR).
    """
    directory = logs.directory_of(partition)
    if directory is None:
        return
    reason = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, directory.damaged[partition])
    name = directory_name(partition)
    if directory.removal.has_stray(partition):
        directory.removal.delete_log(partition, logs.new_id(), reason)
        logger.warning("a damaged log is deleted, and copied anew from its leader", log=name, path=directory.path)
    else:
        kept_as = directory.removal.set_stray_aside(partition, logs.new_id(), reason)
        logger.warning(
            "a damaged log is set aside, and copied anew from its leader; delete what is kept if nobody needs it",
            log=name, kept_as=kept_as, path=directory.path,
        )  # fmt: skip


def set_copies_aside(logs: LogManager, partition: TopicPartition, topic_id: UUID, assigned_id: UUID) -> None:
    """Of a partition with logs in several directories use the one where the metadata has it; the others are strays.

    Consider a log in directory A, whose disk fails. The partition is moved away and back, and is copied into B;
    then A is repaired. What A has may be old: if it led, what was acknowledged since would be gone. If the metadata
    names neither, the log is used that goes on longest in the latest epoch.

    A log that never had a record is used only if no other one had any: consider a start without A, which made an
    empty log in B. A damaged one that the metadata names is not replaced by a whole one, which may be old: the
    partition is offline until an operator decides.
    """
    found = logs.directories_of(partition)
    if len(found) < 2:
        return

    def rank(of: LogDirectory) -> tuple[bool, bool, bool, int, int]:
        log = of.logs.get(partition)
        is_of_topic = of.records.topic_ids.get(partition) in (None, topic_id)
        has_records = log is None or log.log_end_offset > 0
        return (is_of_topic, has_records, of.directory_id == assigned_id, *_latest(log))

    used = max(found, key=rank)
    for directory in found:
        if directory is not used:
            _set_stray_aside(logs, directory, partition, used)


def set_old_aside(logs: LogManager, partition: TopicPartition, assigned_id: UUID) -> None:
    """Set a log aside that was here already while the metadata has it in a directory that is not.

    Consider directory A, which is not there for a while: the partition is copied into B. Then A is there, and B is
    not. What A has is old. A log that the inventory did not have was moved here by hand.
    """
    directory = logs.directory_of(partition)
    if directory is None or is_reserved(assigned_id.bytes) or partition in directory.records.came_by_hand:
        return
    if assigned_id not in [of.directory_id for of in logs.directories] and not logs.failed:
        _set_stray_aside(logs, directory, partition, old=True)


def set_stray_aside(logs: LogManager, partition: TopicPartition) -> None:
    """Set a log aside that is not of the topic which has its name now."""
    for directory in logs.directories_of(partition):
        _set_stray_aside(logs, directory, partition)


def set_strays_aside(logs: LogManager, topic_id_of: Callable[[TopicPartition], UUID | None]) -> Steps:
    """Set every log aside whose partition has no topic id here, or another one than its files say.

    The files stay, as in Kafka: consider a cluster whose controllers were restored from an old snapshot. One that
    cannot be renamed is not used any more either; the next start tries again.
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
        logger.error("a log is not looked at", log=directory_name(partition), reason=str(error))
        return
    if finding is Finding.STRAY:
        _set_stray_aside(logs, directory, partition)


def _forget_missing_strays(logs: LogManager, topic_id_of: Callable[[TopicPartition], UUID | None]) -> Steps:
    """Consider a log that is deleted by hand while its partition is elsewhere: if that comes back, it is new."""
    for directory in logs.online:
        found: list[TopicPartition] = []
        for some in slices(directory.records.partitions, SLICE_LINES):
            found += [one for one in some if topic_id_of(one) is None and logs.directory_of(one) is None]
            yield None
        try:
            yield from directory.findings.forget_all_missing(found)
        except ApiError as error:
            logger.error("logs are not forgotten", first=directory_name(found[0]), reason=str(error))


def _set_stray_aside(
    logs: LogManager, directory: LogDirectory, partition: TopicPartition, used: LogDirectory | None = None,
    *, old: bool = False,
) -> None:  # fmt: skip
    """`used`: the directory with the log that is used in its place, if there is one. `old`: that is not here."""
    name = directory_name(partition)
    found_id = directory.records.topic_ids.get(partition)
    reason = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is not a partition of this broker any more")
    if used is not None and partition in used.damaged:
        event = (
            f"a log is set aside, as the log directory {used.path} has one of the same partition; but that one is"
            " damaged, so keep this one until the partition has its records again. To use it, stop the broker, move"
            " the damaged log out of its log directory, and give this one its name back"
        )
    elif old:
        event = (
            "an old log is set aside, as the metadata has the partition in a log directory with which the broker"
            " was not started: keep it until the partition has its records again. To use it, stop the broker, and"
            " give it its name back"
        )
    else:
        event = (
            "a stray log is set aside: the metadata has no such partition here, or has it in another log directory;"
            " delete it if that is right"
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
    """The latest epoch of a log, and where it ends; a damaged one has neither."""
    return (-1, -1) if log is None else (log.epochs.latest, log.log_end_offset)
