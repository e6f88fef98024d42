"""New logs of a broker, many at once: which ones they are, and what inventories say before they are made (DB-95)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from kraftlog.broker.log.log_manager import LogManager
from kraftlog.broker.log.slices import SLICE_LINES, Steps, slices
from statemachine.query.partition_descriptions import TopicPartition
from statemachine.words.ids import DAMAGED_DIRECTORY, LOST_DIRECTORY, is_reserved


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
