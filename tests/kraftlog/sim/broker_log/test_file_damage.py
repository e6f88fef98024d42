"""Files of a log are damaged and put back, and a log that is not as it was is seen."""

from __future__ import annotations

import struct
from random import Random

import pytest

from kraftbase.files.files import join, read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.sim.broker_log.checkers.rules import AS_IT_WAS
from kraftlog.sim.broker_log.file_damage import (
    CHECKPOINT_OLDER,
    DAMAGES,
    LOG_DELETED,
    LOSSES,
    SEGMENT_DELETED,
    SEGMENT_SHORTER,
    FileDamage,
    FilesToDamage,
)
from kraftlog.sim.engine.violation import Violation
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.slices import run_at_once
from tests.kraftlog.storage.builders import (
    CLICKS,
    NOW_MS,
    TOPIC_ID,
    TRANSACTIONAL,
    append,
    batch,
    log_in,
    marker,
    open_directory,
    produced,
)

CONFIG = PartitionLogConfig(segment_bytes=100)
"""Each batch has a segment of its own."""


def reopened(files: MemoryFileSystem) -> LogDirectory:
    files.end_process()
    directory = open_directory(files, config=CONFIG)
    directory.findings.assess(CLICKS, TOPIC_ID)
    return directory


def damaged(kind: str, files: MemoryFileSystem, *, is_clean: bool) -> FileDamage:
    """A log with segments at 0, 1, 2 and 3, which begins at 1, is damaged."""
    disk = FilesToDamage(files, ["data"])
    directory = open_directory(files, config=CONFIG)
    log = log_in(directory, CONFIG)
    for data in (batch(1), batch(1), produced(7, 0, attributes=TRANSACTIONAL), marker(7, aborts=True)):
        append(log, data)
    log.flush()
    run_at_once(directory.checkpoint())
    disk.copy_checkpoints()
    log.advance_high_watermark(4)
    log.delete_records(1)
    append(log, batch(1))
    log.flush()
    run_at_once(directory.checkpoint())
    if is_clean:
        directory.close(broker_epoch=7)
    files.end_process()
    [(path, partition, entry)] = disk.logs()
    found = disk.damage(kind, path, partition, entry, Random(3))
    assert found is not None
    return found


def test_an_index_may_disagree_behind_the_recovery_point_when_a_log_is_damaged() -> None:
    """Seed 111 of the replication world: the power failed while the broker was closing its logs."""
    files = MemoryFileSystem()
    directory = open_directory(files, config=CONFIG)
    log = log_in(directory, CONFIG)
    append(log, batch(1))
    log.flush()
    run_at_once(directory.checkpoint())
    append(log, batch(1))
    files.end_process()
    write_new_file(files, "data/clicks-0/00000000000000000001.index", struct.pack(">ii", 7, 233))
    disk = FilesToDamage(files, ["data"])
    [(path, partition, entry)] = disk.logs()
    found = disk.damage(SEGMENT_DELETED, path, partition, entry, Random(3))
    assert found is not None
    assert [one.base_offset for one in found.batches] == [0]


def content(files: MemoryFileSystem) -> dict[str, bytes]:
    """Of every segment."""
    path = "data/clicks-0"
    names = files.list_directory(path) if files.exists(path) else []
    return {name: read_whole(files, join(path, name)) for name in names if name.endswith(".log")}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("kind", LOSSES)
def test_a_log_that_lacks_something_is_offline_and_as_it_was_when_its_files_are_back(kind: str, is_clean: bool) -> None:
    files = MemoryFileSystem()
    damage = damaged(kind, files, is_clean=is_clean)
    left = content(files)
    directory = reopened(files)
    assert CLICKS not in directory.logs
    assert content(files) == left
    files.end_process()
    damage.put_back(files)
    damage.check(files, reopened(files).logs[CLICKS])
    assert [one.base_offset for one in damage.batches] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(("kind", "start"), [(LOG_DELETED, 5), (SEGMENT_DELETED, 1), (SEGMENT_SHORTER, 1)])
def test_db88_a_log_whose_loss_is_accepted_begins_with_what_is_left_or_where_it_was_flushed_up_to(
    kind: str, start: int, is_clean: bool
) -> None:
    """DB-88."""
    files = MemoryFileSystem()
    damage = damaged(kind, files, is_clean=is_clean)
    log = reopened(files).findings.accept_loss(CLICKS, CONFIG, NOW_MS)
    assert log.log_start_offset == damage.latest_start == start
    assert log.log_end_offset == 5


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("kind", [kind for kind in DAMAGES if kind not in LOSSES])
def test_a_log_that_lacks_nothing_is_as_it_was(kind: str, is_clean: bool) -> None:
    files = MemoryFileSystem()
    damage = damaged(kind, files, is_clean=is_clean)
    assert any(read_whole(files, path) != data for path, data in damage.before.items() if files.exists(path)) or (
        not all(map(files.exists, damage.before))
    )
    damage.check(files, reopened(files).logs[CLICKS])
    assert damage.has_its_topic_id(files)


def test_a_log_that_begins_elsewhere_or_lacks_a_batch_is_seen() -> None:
    files = MemoryFileSystem()
    damage = damaged(CHECKPOINT_OLDER, files, is_clean=True)
    log = reopened(files).logs[CLICKS]
    log.advance_high_watermark(5)
    log.delete_records(2)
    with pytest.raises(Violation, match="begins at 2, but began at 1") as raised:
        damage.check(files, log)
    assert str(raised.value).startswith(AS_IT_WAS)
    damage.log_start_offset = 2
    damage.check(files, log)
    log.truncate(3)
    with pytest.raises(Violation, match="lacks the batch at 3"):
        damage.check(files, log)
