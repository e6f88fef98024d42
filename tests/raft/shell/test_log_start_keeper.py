"""The log's start advances when it may: with a real log, real snapshots, a real replica (SN-42, SN-51 to SN-53)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import FlushFailed
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.events import LogStartAdvanced
from raft.core.types import OffsetAndEpoch
from raft.shell.log_start_keeper import CHECK_INTERVAL_MS, HELD_REPORTED_MS, ListenerPosition, LogStartKeeper
from raft.shell.node_snapshots import DELETE_DELAY_MS, NodeSnapshots
from raft.storage.batch import encode_batch, encode_body
from raft.storage.segmented_log import LogConfig, SegmentedLog
from snapshot.log_start_policy import SNAPSHOTS_KEPT_MAX, LogStartConfig, LogStartPolicy
from snapshot.names import DELETED_SUFFIX, snapshot_name
from snapshot.store import SnapshotStore
from tests.raft.by_hand import HandRuntime
from tests.raft.core.builders import Harness, election_state, fetch, fetch_response, replica
from tests.snapshot.builders import DIRECTORY, HEADER_OF_TESTS, an_id, write_snapshot

LOG_END = 40
EPOCH = 3
SESSION_MS = 100
LAG_MAX_MS = 20_000
EAGER = LogStartConfig(policy=LogStartPolicy.EAGER, retention_bytes=0)
REPLICATED = LogStartConfig(
    retention_bytes=0, lag_time_max_ms=LAG_MAX_MS, replica_session_timeout_ms=SESSION_MS, replica_restart_grace_ms=0
)


class Bench:
    """A node in which only the keeper acts. Its log has 40 records of epoch 3, one in a batch."""

    def __init__(self, harness: Harness, config: LogStartConfig = REPLICATED) -> None:
        self.files = MemoryFileSystem()
        self.log = SegmentedLog.open(self.files, "log", config=LogConfig(segment_bytes=600, preallocate_bytes=1))
        while self.log.log_end_offset < harness.replica.log_end_offset:
            offset = self.log.log_end_offset
            epoch = Epoch(EPOCH if offset < LOG_END else harness.epoch)
            self.log.append((encode_batch(offset, epoch, encode_body([b"record"]), 1, 0),))
        self.log.flush()
        self.harness = harness
        self.runtime = HandRuntime()
        self.runtime.time_ms = harness.now_ms
        self.store = SnapshotStore(self.files, DIRECTORY)
        self.advanced: list[OffsetAndEpoch] = []
        self.fatal: list[BaseException] = []
        self.listeners: list[ListenerPosition] = []
        self.snapshots = NodeSnapshots(
            self.store,
            HEADER_OF_TESTS.cluster_id,
            self.runtime,
            on_changed=lambda: None,
            on_damaged=lambda: None,
            on_fatal=self.fatal.append,
        )
        self.keeper = LogStartKeeper(
            config,
            replica=harness.replica,
            log=self.log,
            snapshots=self.snapshots,
            runtime=self.runtime,
            listeners=lambda: self.listeners,
            on_advanced=self._advanced,
            on_fatal=self.fatal.append,
        )

    def _advanced(self, start: OffsetAndEpoch) -> None:
        assert self.log.start == start, "the files come first"
        self.advanced.append(start)
        self.harness.step(LogStartAdvanced(start))

    def take_snapshots(self, *offsets: int) -> None:
        for offset in offsets:
            write_snapshot(self.store, an_id(offset, EPOCH))
            self.snapshots.refresh()

    def snapshot_offsets(self) -> list[int]:
        return [snapshot_id.offset for snapshot_id in self.store.ids()]

    def wait(self, milliseconds: int) -> None:
        self.harness.now_ms += milliseconds
        self.runtime.advance(milliseconds)

    def held(self) -> list[tuple[int | str, int, int]]:
        """The readers that hold the log start back, with their offsets and times."""
        return [
            (holder.listener if holder.replica_id is None else holder.replica_id, holder.next_offset, holder.held_ms)
            for holder in self.keeper.holders()
        ]


def follower(leader_log_start: int = -1, high_watermark: int = LOG_END) -> Harness:
    harness = replica(log=[(EPOCH, LOG_END)], election_state=election_state(EPOCH, leader_id=3))
    (send,) = harness.sent[-1:]
    harness.answer(
        send, fetch_response(3, EPOCH, high_watermark=high_watermark, log_start_offset=Offset(max(0, leader_log_start)))
    )
    assert harness.replica.high_watermark == high_watermark
    return harness


class Leading(Bench):
    """The leader of epoch 4, which committed everything, with two followers that have fetched all of it."""

    def __init__(self, config: LogStartConfig = REPLICATED) -> None:
        harness = replica(
            log=[(EPOCH, LOG_END)],
            election_state=election_state(EPOCH),
            fetch_timeout_ms=600_000,
            request_timeout_ms=600_000,
        ).make_leader()
        super().__init__(harness, config)
        self.log.flush()
        self.listeners = [ListenerPosition("tables", Offset(LOG_END + 1))]
        for node_id in (2, 3):
            self.fetch(node_id, LOG_END + 1, harness.epoch)
        assert harness.replica.high_watermark == LOG_END + 1

    def fetch(self, node_id: int, offset: int, last_epoch: int = EPOCH) -> None:
        self.harness.ask(fetch(node_id, self.harness.epoch, offset, last_epoch, max_wait_ms=0))


def settled_leader(config: LogStartConfig = REPLICATED) -> Leading:
    """A leader that has led long enough to know all live replicas, which have not moved."""
    bench = Leading(config)
    bench.wait(SESSION_MS)
    for node_id in (2, 3):
        bench.fetch(node_id, LOG_END + 1, bench.harness.epoch)
    return bench


# --- a leader ---------------------------------------------------------------------------------------------------------


def test_sn51_a_leader_moves_the_log_and_says_so_and_deletes_what_is_below() -> None:
    bench = settled_leader()
    bench.take_snapshots(10, 20, 30)
    first_segments = [name for name in bench.files.list_directory("log") if name.endswith(".log")]
    bench.keeper.check()
    assert bench.advanced == [an_id(10, EPOCH), an_id(20, EPOCH)]
    assert bench.log.start == an_id(20, EPOCH)
    assert bench.harness.replica_state.log.start == an_id(20, EPOCH)
    assert bench.snapshot_offsets() == [20, 30]
    segments = [name for name in bench.files.list_directory("log") if name.endswith(".log")]
    assert 0 < len(segments) < len(first_segments)
    assert segments == first_segments[-len(segments) :]
    assert bench.held() == []


def test_sn53_one_snapshot_moves_nothing() -> None:
    bench = settled_leader()
    bench.take_snapshots(30)
    bench.keeper.check()
    assert (bench.advanced, bench.log.log_start_offset, bench.snapshot_offsets()) == ([], 0, [30])


def test_sn41_nothing_moves_within_the_retention() -> None:
    bench = settled_leader(LogStartConfig(retention_bytes=10_000_000, replica_session_timeout_ms=SESSION_MS))
    bench.take_snapshots(10, 30)
    bench.keeper.check()
    assert bench.advanced == []


def test_sn51_the_log_start_waits_for_a_slow_follower_and_shows_for_how_long() -> None:
    bench = settled_leader()
    bench.fetch(3, 15)
    bench.take_snapshots(10, 20, 30)
    bench.keeper.check()
    assert bench.advanced == [an_id(10, EPOCH)]
    assert bench.held() == [(3, 15, 0)]
    bench.wait(70)
    bench.keeper.check()
    assert bench.held() == [(3, 15, 70)]
    bench.fetch(3, 19)
    bench.keeper.check()
    assert bench.held() == [(3, 19, 70)], "it counts from the first hold, whatever its offset is now"
    bench.fetch(3, 20)
    bench.keeper.check()
    assert bench.advanced == [an_id(10, EPOCH), an_id(20, EPOCH)]
    assert bench.held() == []


def test_sn51_who_holds_the_log_start_again_is_counted_from_then_on() -> None:
    bench = settled_leader()
    bench.take_snapshots(10, 20)
    bench.fetch(3, 5)
    bench.keeper.check()
    bench.wait(50)
    bench.fetch(3, 25)
    bench.keeper.check()
    bench.take_snapshots(30)
    bench.fetch(3, 12)
    bench.wait(20)
    bench.keeper.check()
    assert bench.held() == [(3, 12, 0)]


def test_sn51_the_log_start_waits_for_every_listener() -> None:
    bench = settled_leader()
    bench.take_snapshots(10, 20)
    bench.listeners = [ListenerPosition("slow", Offset(9)), ListenerPosition("new", Offset(-1))]
    bench.keeper.check()
    assert bench.advanced == []
    assert bench.held() == [("slow", 9, 0), ("new", -1, 0)]
    bench.listeners = [ListenerPosition("slow", Offset(10)), ListenerPosition("new", Offset(10))]
    bench.keeper.check()
    assert bench.advanced == [an_id(10, EPOCH)]


def test_a_listener_named_like_a_replica_is_another_one() -> None:
    bench = settled_leader()
    bench.take_snapshots(10, 20)
    bench.listeners = [ListenerPosition("3", Offset(1))]
    bench.fetch(3, 2)
    bench.keeper.check()
    assert [(holder.replica_id, holder.listener, holder.next_offset) for holder in bench.keeper.holders()] == [
        (NodeId(3), "", 2),
        (None, "3", 1),
    ]


def test_sn51_a_leader_waits_for_so_long_and_no_longer() -> None:
    bench = settled_leader()
    bench.take_snapshots(10, 20)
    bench.listeners = [ListenerPosition("slow", Offset(9))]
    bench.wait(LAG_MAX_MS - 1)
    bench.keeper.check()
    assert bench.advanced == []
    bench.wait(1)
    bench.keeper.check()
    assert bench.advanced == [an_id(10, EPOCH)]


def test_sn51_a_replica_that_is_not_heard_of_is_not_waited_for() -> None:
    bench = settled_leader()
    bench.take_snapshots(10, 20)
    bench.fetch(3, 5)
    bench.keeper.check()
    assert bench.advanced == []
    bench.wait(SESSION_MS)
    bench.keeper.check()
    assert bench.advanced == [an_id(10, EPOCH)]


def test_sn51_a_new_leader_waits_until_all_who_live_can_have_come() -> None:
    bench = Leading()
    bench.take_snapshots(10, 20)
    bench.keeper.check()
    assert bench.advanced == []
    bench.wait(SESSION_MS)
    bench.keeper.check()
    assert bench.advanced == [an_id(10, EPOCH)]


def test_sn42_no_more_snapshots_stay_than_are_of_use_though_the_start_does_not_move() -> None:
    bench = settled_leader()
    bench.listeners = [ListenerPosition("slow", Offset(0))]
    bench.take_snapshots(*range(5, 5 + SNAPSHOTS_KEPT_MAX + 3))
    bench.keeper.check()
    assert bench.advanced == []
    assert bench.snapshot_offsets() == [5, 6, 10, 11]
    assert [name for name in bench.files.list_directory(DIRECTORY) if name.endswith(DELETED_SUFFIX)] == [
        snapshot_name(an_id(offset, EPOCH)) + DELETED_SUFFIX for offset in (7, 8, 9)
    ]
    bench.wait(DELETE_DELAY_MS)
    assert [name for name in bench.files.list_directory(DIRECTORY) if name.endswith(DELETED_SUFFIX)] == []


# --- a follower -------------------------------------------------------------------------------------------------------


def test_sn52_a_follower_goes_no_further_than_its_leader() -> None:
    bench = Bench(follower(leader_log_start=20))
    bench.take_snapshots(10, 20, 25, 30)
    bench.keeper.check()
    assert bench.log.start == an_id(20, EPOCH)
    assert bench.snapshot_offsets() == [20, 25, 30]


def test_sn52_a_follower_whose_leader_has_not_moved_stays() -> None:
    bench = Bench(follower(leader_log_start=0))
    bench.take_snapshots(10, 20, 30)
    bench.keeper.check()
    assert bench.advanced == []


def test_sn52_a_follower_waits_for_its_listeners_and_not_for_replicas() -> None:
    bench = Bench(follower(leader_log_start=20))
    bench.take_snapshots(10, 20, 30)
    bench.listeners = [ListenerPosition("slow", Offset(9))]
    bench.keeper.check()
    assert bench.advanced == []
    assert [name for name, _, _ in bench.held()] == ["slow"]
    bench.listeners = [ListenerPosition("slow", Offset(20))]
    bench.keeper.check()
    assert bench.log.start == an_id(20, EPOCH)


def test_sn52_a_follower_waits_for_a_stuck_listener_for_a_bounded_time_and_says_so() -> None:
    bench = Bench(follower(leader_log_start=20))
    bench.take_snapshots(10, 20, 30)
    bench.listeners = [ListenerPosition("stuck", Offset(12))]
    bench.keeper.check()
    assert bench.advanced == [an_id(10, EPOCH)]
    with capture_logs() as said:
        bench.wait(LAG_MAX_MS - 1)
        bench.keeper.check()
        assert (bench.advanced, said) == ([an_id(10, EPOCH)], [])
        assert bench.held() == [("stuck", 12, LAG_MAX_MS - 1)]
        bench.wait(1)
        bench.keeper.check()
    assert bench.log.start == an_id(20, EPOCH)
    (warning,) = (entry for entry in said if entry["log_level"] == "warning")
    assert (warning["name"], warning["next_offset"], warning["log_start_offset"]) == ("stuck", 12, 20)


def test_who_holds_the_log_start_for_long_is_told_of_once() -> None:
    bench = Bench(follower(leader_log_start=20), replace(REPLICATED, lag_time_max_ms=10 * HELD_REPORTED_MS))
    bench.take_snapshots(10, 20, 30)
    bench.listeners = [ListenerPosition("stuck", Offset(12)), ListenerPosition("well", Offset(30))]
    bench.keeper.check()
    with capture_logs() as said:
        for _ in range(3):
            bench.wait(HELD_REPORTED_MS - 1)
            bench.keeper.check()
    assert [(entry["log_level"], entry["name"]) for entry in said] == [("warning", "stuck")]


def test_sn43_the_log_start_does_not_go_past_the_high_watermark() -> None:
    bench = Bench(follower(leader_log_start=25, high_watermark=15))
    bench.take_snapshots(10, 20, 30)
    bench.keeper.check()
    assert bench.log.start == an_id(10, EPOCH)


# --- eager ------------------------------------------------------------------------------------------------------------


def test_sn42_eager_waits_for_nobody_and_goes_up_to_the_newest() -> None:
    bench = Leading(EAGER)
    bench.listeners = [ListenerPosition("slow", Offset(0))]
    bench.fetch(3, 1)
    bench.take_snapshots(10, 20, 30)
    bench.keeper.check()
    assert bench.advanced == [an_id(20, EPOCH), an_id(30, EPOCH)]
    assert bench.log.start == an_id(30, EPOCH)
    assert bench.snapshot_offsets() == [30]
    assert bench.held() == []


def test_sn42_an_eager_follower_does_not_ask_its_leader() -> None:
    bench = Bench(follower(leader_log_start=0), EAGER)
    bench.listeners = [ListenerPosition("slow", Offset(0))]
    bench.take_snapshots(10, 20)
    bench.keeper.check()
    assert bench.log.start == an_id(20, EPOCH)


# --- at intervals -----------------------------------------------------------------------------------------------------


def test_sn40_it_looks_again_and_again_until_it_is_closed() -> None:
    bench = settled_leader()
    bench.keeper.start()
    bench.wait(CHECK_INTERVAL_MS)
    bench.take_snapshots(10, 20)
    bench.wait(CHECK_INTERVAL_MS - 1)
    assert bench.advanced == []
    bench.wait(1)
    assert bench.advanced == [an_id(10, EPOCH)]
    bench.take_snapshots(30)
    bench.wait(CHECK_INTERVAL_MS)
    assert bench.advanced == [an_id(10, EPOCH), an_id(20, EPOCH)]
    bench.keeper.close()
    bench.take_snapshots(35)
    bench.wait(10 * CHECK_INTERVAL_MS)
    assert bench.log.start == an_id(20, EPOCH)
    bench.keeper.close()


def test_a_start_that_could_not_be_synced_ends_the_process() -> None:
    bench = settled_leader()
    bench.keeper.start()
    bench.take_snapshots(10, 20)
    bench.files.failing_syncs.add("log")
    bench.wait(CHECK_INTERVAL_MS)
    assert [type(error) for error in bench.fatal] == [FlushFailed]
    assert bench.advanced == []


@pytest.mark.parametrize("started", [False, True])
def test_closing_before_anything_happens_is_fine(started: bool) -> None:
    bench = settled_leader()
    if started:
        bench.keeper.start()
    bench.keeper.close()
    bench.wait(CHECK_INTERVAL_MS)
    assert bench.advanced == []
