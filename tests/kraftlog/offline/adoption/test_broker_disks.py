"""What is read of a stopped broker's disks is what its next start finds, and nothing changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from kraftbase.errors import DirectoryError
from kraftbase.partition import TopicPartition
from kraftlog.offline.adoption.broker_disks import stopped_broker
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.registered_epoch import note_registration
from raft.storage.directory import METADATA_DATABASE_NAME
from statemachine.store.store import MetadataStore
from tests.kraftlog.node_directories import contents
from tests.kraftlog.offline.adoption.builders import FILES, closed, make_broker, opened, read
from tests.kraftlog.offline.adoption.builders import log as reported_log
from tests.statemachine.builders import CLUSTER_ID, an_id, batch, no_op

SMALL = PartitionLogConfig(segment_bytes=1_500)


@pytest.mark.parametrize("is_clean", [False, True])
def test_ct39_a_report_has_the_end_and_the_epochs_of_each_log(tmp_path: Path, is_clean: bool) -> None:
    path = make_broker(tmp_path / "b", {1: [3, 3, 5, 8], 2: []}, is_clean=is_clean, config=SMALL)
    before = contents(path)
    found = read(path)
    assert contents(path) == before
    assert (found.broker_id, found.cluster_id) == (1, CLUSTER_ID)
    clicks, late = sorted(found.logs, key=lambda of: of.topic)
    assert (clicks.log_end_offset, clicks.last_epoch, clicks.latest_epoch) == (40, 8, 8)
    assert clicks.directory_id == UUID(bytes=an_id(901))
    assert (late.log_end_offset, late.last_epoch, late.is_damaged) == (0, -1, False)
    manager = opened(path, config=SMALL)
    log = manager.log_of(TopicPartition("clicks", 0))
    assert (log.log_end_offset, log.epochs.latest) == (clicks.log_end_offset, clicks.latest_epoch)
    closed(manager)


def last_segment(path: Path) -> Path:
    return max((path / "partitions" / "clicks-0").glob("*.log"))


def test_ct39_a_torn_tail_is_not_counted(tmp_path: Path) -> None:
    path = make_broker(tmp_path / "b", {1: [3, 3, 5, 8]})
    data = last_segment(path).read_bytes()
    last_segment(path).write_bytes(data[:-10])
    (log,) = read(path).logs
    assert (log.log_end_offset, log.last_epoch, log.is_damaged) == (30, 5, False)
    manager = opened(path)
    assert manager.log_of(TopicPartition("clicks", 0)).log_end_offset == 30
    closed(manager)


def test_ct39_an_epoch_that_was_entered_without_a_record_is_known(tmp_path: Path) -> None:
    path = make_broker(tmp_path / "b", {1: [3, 3]})
    manager = opened(path)
    log = manager.log_of(TopicPartition("clicks", 0))
    log.assign_epoch(9)
    log.flush()
    closed(manager)
    (found,) = read(path).logs
    assert (found.last_epoch, found.latest_epoch) == (3, 9)


def test_ct39_a_log_that_lacks_what_was_flushed_is_damaged(tmp_path: Path) -> None:
    path = make_broker(tmp_path / "b", {1: [3, 3, 5, 8]}, is_clean=True, config=SMALL)
    min((path / "partitions" / "clicks-0").glob("*.log")).unlink()
    (log,) = read(path).logs
    assert log.is_damaged


def test_ct39_a_damaged_log_ends_where_it_did_and_not_where_reading_it_stops(tmp_path: Path) -> None:
    """Else another one that was behind would seem to have everything."""
    path = make_broker(tmp_path / "b", {1: [3, 3, 5, 8]}, config=SMALL)
    manager = opened(path, config=SMALL)
    manager.log_of(TopicPartition("clicks", 0)).flush()
    closed(manager)
    data = last_segment(path).read_bytes()
    last_segment(path).write_bytes(data[:-10])
    (log,) = read(path).logs
    assert (log.log_end_offset, log.last_epoch, log.is_damaged) == (40, 8, True)


def test_ct39_a_log_of_which_nothing_is_left_is_damaged(tmp_path: Path) -> None:
    path = make_broker(tmp_path / "b", {1: [3, 3], 2: [4]}, is_clean=True)
    shutil.rmtree(path / "partitions" / "clicks-0")
    clicks, late = sorted(read(path).logs, key=lambda of: of.topic)
    assert (clicks.log_end_offset, clicks.is_damaged, clicks.topic_id) == (20, True, UUID(bytes=an_id(1)))
    assert not late.is_damaged


@pytest.mark.parametrize("is_clean", [False, True])
def test_ct39_a_log_whose_records_retention_took_ends_in_the_epoch_of_the_last_one(
    tmp_path: Path, is_clean: bool
) -> None:
    """Else a broker that was down for long, and has old records still, would lead: offsets would be used again."""
    config = PartitionLogConfig(segment_bytes=1_500, retention_ms=1)
    path = make_broker(tmp_path / "b", {1: [3, 3, 5, 8]}, config=config)
    manager = opened(path, config=config)
    log = manager.log_of(TopicPartition("clicks", 0))
    log.advance_high_watermark(40)
    log.delete_old_segments(10**15)
    log.flush()
    if is_clean:
        manager.close(5)
    else:
        closed(manager)
    (found,) = read(path).logs
    assert (found.log_start_offset, found.log_end_offset, found.last_epoch) == (40, 40, 8)
    assert found.rank > reported_log(30, 5).rank


def test_ct39_a_report_has_what_metadata_the_broker_has_seen(tmp_path: Path) -> None:
    path = make_broker(tmp_path / "b", {1: [3]})
    assert read(path).metadata_end_offset == 0
    store = MetadataStore.open(path / METADATA_DATABASE_NAME, CLUSTER_ID)
    store.apply([batch(0, [no_op()] * 40, epoch=6)])
    store.close()
    found = read(path)
    assert (found.metadata_end_offset, found.metadata_epoch) == (40, 6)
    note_registration(FILES, str(path / "partitions"), 70)
    assert read(path).metadata_end_offset == 71


def test_a_broker_that_runs_is_not_read(tmp_path: Path) -> None:
    path = make_broker(tmp_path / "b", {1: [3]})
    manager = opened(path)
    with pytest.raises(DirectoryError, match="in use"):
        read(path)
    closed(manager)


def test_a_directory_that_is_not_the_brokers_is_refused(tmp_path: Path) -> None:
    path, other = make_broker(tmp_path / "b", {}), make_broker(tmp_path / "c", {}, broker_id=2)
    for wrong, words in ((other / "partitions", "is of broker 2"), (tmp_path, "not a log directory")):
        with pytest.raises(DirectoryError, match=words), stopped_broker(FILES, str(path), [str(wrong)]):
            pass
