"""A crash between any two operations, with everything that it may leave: small scenarios, all images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from kraftbase.errors import DirectoryError
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, NodeId, Offset
from kraftbase.uuids import uuid_to_text
from raft.core.election_state import ElectionState
from raft.core.epochs import EpochCache
from raft.core.types import Batch, ReplicaKey
from raft.storage.directory import DataDirectory
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segmented_log import LogConfig, SegmentedLog
from tests.raft.storage.builders import all_batches, batches_from, data_batch, flip, segment_paths
from tests.raft.storage.images import crash_everywhere

GROWING = LogConfig(segment_bytes=700, preallocate_bytes=1, reserve_bytes=0, tail_cache_bytes=0)
"""Five batches of the tests fill a segment; files grow as they are written."""

PREALLOCATED = LogConfig(segment_bytes=700, preallocate_bytes=256, reserve_bytes=0, tail_cache_bytes=0)
"""Files are longer than their content."""


# --- the log ----------------------------------------------------------------------------------------------------------


@dataclass
class LogTold:
    """The written batches, how many of them must last, and where the log was truncated."""

    config: LogConfig
    written: list[Batch] = field(default_factory=list)
    durable: Offset = field(default=Offset(0))
    cut: list[Batch] = field(default_factory=list)
    """The log before a truncation that may not have happened yet."""

    def open(self, files: MemoryFileSystem) -> SegmentedLog:
        return SegmentedLog.open(files, "data/log", config=self.config)

    def append(self, log: SegmentedLog, batches: list[Batch]) -> None:
        self.written = self.written + batches
        log.append(batches)

    def flush(self, log: SegmentedLog) -> None:
        self.durable = log.flush()

    def truncate(self, log: SegmentedLog, end_offset: Offset) -> None:
        self.durable = min(self.durable, end_offset)
        self.cut = self.written
        log.truncate(end_offset)
        self.written = [batch for batch in self.written if batch.end_offset <= end_offset]
        self.cut = []
        self.durable = end_offset


def _verify_log(files: MemoryFileSystem, told: LogTold) -> None:
    """It opens as a prefix of the written batches with all that must last; its epochs are right; it continues."""
    log = told.open(files)  # a crash is no damage: that would be refused here
    assert log.recovering is None
    found = all_batches(log)
    written = told.cut or told.written
    assert found == written[: len(found)]
    assert log.log_end_offset >= told.durable
    assert log.flushed_end_offset == log.log_end_offset
    assert log.epochs.entries() == EpochCache((batch.epoch, batch.base_offset) for batch in found).entries()
    more = data_batch(log.log_end_offset, epoch=9)
    log.append([more])
    log.flush()
    files.crash()
    assert all_batches(told.open(files)) == [*found, more]


def _appends(files: MemoryFileSystem, told: LogTold) -> None:
    log = told.open(files)
    told.append(log, batches_from(0, 1))
    told.flush(log)
    told.append(log, [data_batch(1)])
    told.append(log, [data_batch(2, epoch=2)])
    told.flush(log)
    log.write_marker()
    told.append(log, [data_batch(3, epoch=2)])


def _appends_many_small_ones(files: MemoryFileSystem, told: LogTold) -> None:
    log = told.open(files)
    for offset in range(7):
        told.append(log, [data_batch(offset, epoch=1 + offset // 3, size=0)])


def _appends_over_sectors(files: MemoryFileSystem, told: LogTold) -> None:
    log = told.open(files)
    told.append(log, [data_batch(0, size=3000)])
    told.flush(log)


def _appends_long_and_short(files: MemoryFileSystem, told: LogTold) -> None:
    log = told.open(files)
    told.append(log, [data_batch(0), data_batch(1, size=1500), data_batch(2), data_batch(3, size=500)])
    told.flush(log)


def _truncates(files: MemoryFileSystem, told: LogTold) -> None:
    log = told.open(files)
    told.append(log, [data_batch(0), data_batch(1), data_batch(2)])
    told.flush(log)
    told.truncate(log, Offset(1))
    for offset in range(1, 5):
        told.append(log, [data_batch(offset, epoch=offset + 1)])
    told.flush(log)


def _truncates_what_is_not_flushed(files: MemoryFileSystem, told: LogTold) -> None:
    log = told.open(files)
    for offset in range(3):
        told.append(log, [data_batch(offset)])
    told.truncate(log, Offset(1))
    told.append(log, [data_batch(1, epoch=2)])
    told.flush(log)


def _rolls(files: MemoryFileSystem, told: LogTold) -> None:
    log = told.open(files)
    told.append(log, [data_batch(0)])
    told.append(log, [data_batch(1)])
    told.append(log, [data_batch(2, size=300)])
    told.append(log, [data_batch(3, epoch=2, size=300)])
    told.append(log, [data_batch(4, epoch=2, size=400)])
    told.flush(log)
    log.close()


def _truncates_over_segments(files: MemoryFileSystem, told: LogTold) -> None:
    log = told.open(files)
    for offset in range(4):
        told.append(log, [data_batch(offset, size=400)])
    told.truncate(log, Offset(1))
    told.append(log, [data_batch(1, epoch=2)])
    told.flush(log)


def _opens_again(files: MemoryFileSystem, told: LogTold) -> None:
    log = told.open(files)
    told.append(log, [data_batch(0), data_batch(1)])
    log = told.open(files)
    told.durable = log.flushed_end_offset
    told.append(log, [data_batch(2)])
    log.close()


STORIES = {
    _appends: 40,
    _appends_many_small_ones: 1000,
    _appends_over_sectors: 200,
    _appends_long_and_short: 60,
    _truncates: 80,
    _truncates_what_is_not_flushed: 70,
    _rolls: 90,
    _truncates_over_segments: 70,
    _opens_again: 25,
}
"""The scenarios, with the least number of images of each."""


@pytest.mark.parametrize("config", [GROWING, PREALLOCATED], ids=["growing", "preallocated"])
@pytest.mark.parametrize("story", STORIES)
def test_whatever_a_crash_leaves_the_log_recovers(
    story: Callable[[MemoryFileSystem, LogTold], None], config: LogConfig
) -> None:
    coverage = crash_everywhere(lambda _: LogTold(config), story, _verify_log)
    assert coverage.images >= STORIES[story]
    assert coverage.sampled == 0


@pytest.mark.parametrize("config", [GROWING, PREALLOCATED], ids=["growing", "preallocated"])
def test_whatever_a_crash_of_a_recovery_leaves_the_log_recovers(config: LogConfig) -> None:
    """Opening after a crash writes, too: stopped anywhere, its outcome is the same."""

    def prepare(files: MemoryFileSystem) -> LogTold:
        told = LogTold(config)
        log = told.open(files)
        told.append(log, [data_batch(0)])
        told.flush(log)
        told.append(log, [data_batch(1)])
        told.append(log, [data_batch(2)])
        files.crash(kept_unsynced_bytes=80)
        return told

    coverage = crash_everywhere(prepare, lambda files, told: told.open(files).close(), _verify_log)
    assert coverage.sampled == 0


@dataclass
class Damaged:
    """A log whose durable part was damaged, and how far it has recovered."""

    batches: list[Batch]
    has_recovered: bool = False


def _damaged(files: MemoryFileSystem) -> Damaged:
    log = SegmentedLog.open(files, "data/log", config=GROWING)
    batches = [data_batch(offset, size=150) for offset in range(6)]
    for batch in batches:
        log.append([batch])
        log.flush()
    log.write_marker()
    log.close()
    flip(files, segment_paths(files)[0], 300)
    return Damaged(batches)


def _accept_damage(files: MemoryFileSystem) -> SegmentedLog:
    return SegmentedLog.open(files, "data/log", config=GROWING, accept_damage_in_epoch=Epoch(4))


def _recovers_from_damage(files: MemoryFileSystem, told: Damaged) -> None:
    log = _accept_damage(files)
    log.append([batch for batch in told.batches if batch.base_offset >= log.log_end_offset])
    log.flush()
    log.end_recovering()
    told.has_recovered = True


def _verify_damaged(files: MemoryFileSystem, told: Damaged) -> None:
    """Until it has everything again it reports that it recovers, and up to where."""
    log = _accept_damage(files)
    held = all_batches(log)
    assert held == told.batches[: len(held)]
    if log.recovering is None:
        assert held == told.batches
    else:
        assert not told.has_recovered
        assert (log.recovering.until_offset, log.recovering.epoch) == (told.batches[-1].end_offset, 4)
    recovering = log.recovering
    files.crash()
    assert _accept_damage(files).recovering == recovering


def test_whatever_a_crash_of_a_recovery_from_damage_leaves_the_log_knows_that_it_recovers() -> None:
    coverage = crash_everywhere(_damaged, _recovers_from_damage, _verify_damaged, sector_bytes=100)
    assert coverage.images >= 1000
    assert coverage.sampled <= 1  # the data that recovery rewrites has enough pieces for more images than are tried


# --- the quorum state -------------------------------------------------------------------------------------------------


@dataclass
class Saved:
    """The last saved state, and the state that is being saved."""

    done: ElectionState | None = None
    under_way: ElectionState | None = None

    def save(self, store: QuorumStateStore, state: ElectionState) -> None:
        self.under_way = state
        store.save(state)
        self.done, self.under_way = state, None


def _state(epoch: int, leader_id: int | None = None, voted_id: int | None = None) -> ElectionState:
    return ElectionState(
        epoch=Epoch(epoch),
        leader_id=None if leader_id is None else NodeId(leader_id),
        voted_key=None if voted_id is None else ReplicaKey(NodeId(voted_id), UUID(int=voted_id)),
    )


def _saves(files: MemoryFileSystem, told: Saved) -> None:
    files.make_directories("data")
    store = QuorumStateStore(files, "data")
    store.load()
    told.save(store, _state(1, voted_id=2))
    told.save(store, _state(1, leader_id=2, voted_id=2))
    store = QuorumStateStore(files, "data")
    store.load()
    told.save(store, _state(3))


def _verify_saved(files: MemoryFileSystem, told: Saved) -> None:
    files.make_directories("data")
    store = QuorumStateStore(files, "data")
    found = store.load()
    assert found in (told.done, told.under_way or told.done)
    files.crash()
    assert QuorumStateStore(files, "data").load() == found  # a state that was returned once stays
    store = QuorumStateStore(files, "data")
    store.load()
    store.save(_state(9))
    files.crash()
    assert QuorumStateStore(files, "data").load() == _state(9)


def test_rf_06_whatever_a_crash_leaves_the_quorum_state_is_the_old_or_the_new_one() -> None:
    """Torn within a sector, too: a copy may then be damaged, the other one is not."""
    coverage = crash_everywhere(lambda _: Saved(), _saves, _verify_saved, sector_bytes=20)
    assert coverage.images >= 70
    assert coverage.sampled == 0


# --- formatting -------------------------------------------------------------------------------------------------------

CLUSTER_ID = uuid_to_text(UUID(int=5))
DIRECTORY_ID = UUID(int=7)


@dataclass
class Formatted:
    """Whether formatting has returned."""

    is_done: bool = False


def _formats(files: MemoryFileSystem, told: Formatted) -> None:
    DataDirectory.format(files, "data", cluster_id=CLUSTER_ID, node_id=NodeId(1), directory_id=DIRECTORY_ID)
    told.is_done = True
    DataDirectory.open(files, "data").close()


def _verify_formatted(files: MemoryFileSystem, told: Formatted) -> None:
    try:
        directory = DataDirectory.open(files, "data", cluster_id=CLUSTER_ID, node_id=NodeId(1))
    except DirectoryError as error:
        assert "data is not formatted" in str(error)
        assert not told.is_done
        other_id = UUID(int=8)
        DataDirectory.format(files, "data", cluster_id=CLUSTER_ID, node_id=NodeId(1), directory_id=other_id)
        directory = DataDirectory.open(files, "data")
        assert directory.identity.directory_id == other_id
    else:
        assert directory.identity.directory_id == DIRECTORY_ID
    identity = directory.identity
    files.crash()
    assert DataDirectory.open(files, "data").identity == identity


def test_whatever_a_crash_leaves_formatting_is_done_or_not() -> None:
    coverage = crash_everywhere(lambda _: Formatted(), _formats, _verify_formatted, sector_bytes=20)
    assert coverage.images >= 140
    assert coverage.sampled == 0
