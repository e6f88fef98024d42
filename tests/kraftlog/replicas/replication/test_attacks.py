"""What attacks on leaders and followers have found, and hostile answers that followers must survive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.broker.apis.fetch import FetchApi
from kraftlog.kafka.messages.fetch import PartitionData
from kraftlog.replicas.partitions.leader_throttle import LeaderThrottle
from kraftlog.replicas.replication.throttle import ThrottledReplicas
from kraftlog.storage.config import PartitionLogConfig
from tests.kraftlog.broker.broker_world import LAG_MAX_MS, replicas
from tests.kraftlog.replicas.partitions.test_followed import LeaderWorld
from tests.kraftlog.replicas.replication.cluster_world import A, B, two_brokers
from tests.kraftlog.replicas.replication.test_leading import Leader, record
from tests.kraftlog.storage.builders import NOW_MS, batch, log_in, open_directory, open_log

# --- leaders ----------------------------------------------------------------------------------------------------------


def test_replicas_that_go_with_an_isr_are_known_from_the_metadata_of_the_same_epoch() -> None:
    """Else the leader waits for a follower that is none any more, until it lags by too much."""
    leader = Leader((1, 3), end=100)
    for follower in (2, 3):
        leader.fetch(follower, 100)
    change = leader.leading.begin_change((1, 3, 2), 11)
    assert leader.leading.committed(change, (1, 2), 10)
    leader.leading.update(record((1, 2), replicas=(1, 2), partition_epoch=10))
    assert set(leader.leading.followers) == {2}
    leader.end = 200
    leader.fetch(2, 200)
    assert leader.high_watermark == 200


def test_metadata_of_the_same_epoch_leaves_a_newer_change_pending() -> None:
    leader = Leader((1, 2), end=100)
    change = leader.leading.begin_change((1,), 11)
    leader.leading.update(record((1, 2), partition_epoch=9))
    assert leader.leading.pending is change


@pytest.mark.parametrize("acks", [1, -1])
def test_what_was_cut_while_another_led_is_not_acknowledged_when_its_place_is_flushed(
    tmp_path: Path, acks: int
) -> None:
    """It waited for its flush, as the leader led no more, followed, and led again with another record there."""
    world = LeaderWorld(tmp_path, (1, 2))
    world.send((0, batch(1)), acks=acks)
    assert world.answers == []
    world.commit(replicas(on=[1, 2, 3], isr=(1, 2), leader=2, epoch=1))
    log = world.replica().online_log()
    log.truncate_as_follower(0, 1)
    log.append_as_follower(batch(1, value=b"other", epoch=1), NOW_MS, 1)
    world.commit(replicas(on=[1, 2, 3], isr=(1, 2), leader=1, epoch=2))
    world.runtime.run()
    world.follow(2, 1)
    assert world.high_watermark() == 1
    assert world.produced_codes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_who_leads_on_in_a_new_epoch_acknowledges_what_waits(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path, (1,))
    world.send((0, batch(1)))
    world.commit(replicas(on=[1, 2, 3], isr=(1,), leader=1, epoch=1))
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]


class AllThrottled:
    """Every replica, at no rate at all."""

    def throttled_leaders(self, topic: str) -> ThrottledReplicas:
        return ThrottledReplicas(are_all=True)

    def leader_rate(self) -> int:
        return 0


def test_a_throttled_follower_that_claims_more_than_there_is_is_refused_and_does_not_join(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path, (1, 2), flushes=False)
    throttle = LeaderThrottle(AllThrottled(), world.runtime.now_ms)
    throttle.record(world.replica(), 1_000_000)
    world.fetch = FetchApi(replace(world.services, throttle=throttle))
    world.send((0, batch(1)))
    world.follow(2, 1)
    world.answers.clear()
    world.follow(3, 10)
    assert world.asked == []
    assert [code for code, _ in world.follower_got()] == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_db14_who_was_taken_out_and_does_not_fetch_is_not_asked_back(tmp_path: Path) -> None:
    """It has the leader's end still, as nothing is produced: it would go in and out at each look."""
    world = LeaderWorld(tmp_path, flushes=False)
    world.send((0, batch(1)))
    for follower in (2, 3):
        world.follow(follower, 1)
    world.commit(replicas(on=[1, 2, 3], isr=(1, 2), epoch=1))
    world.runtime.clock_ms += LAG_MAX_MS * 3
    world.follow(2, 1)
    world.partitions.check_isrs()
    assert world.asked == []


# --- logs -------------------------------------------------------------------------------------------------------------


def test_a_flush_says_nothing_of_what_came_into_a_segment_that_was_the_last_one_again() -> None:
    """The flush was under way in its thread when the log was cut back into a closed segment, which then took more."""
    files = MemoryFileSystem()
    log = open_log(files, PartitionLogConfig(flush_before_ack=False))
    log.append_as_leader(batch(1, value=b"a"), 0, NOW_MS)
    log.append_as_leader(batch(1, value=b"b"), 0, NOW_MS)
    log.roll(NOW_MS)
    log.append_as_leader(batch(1, value=b"c"), 0, NOW_MS)
    pending = log.durability.start_flush()
    pending.run()
    log.truncate(1)
    log.append_as_leader(batch(1, value=b"x"), 1, NOW_MS)
    log.roll(NOW_MS)
    log.append_as_leader(batch(1, value=b"y"), 1, NOW_MS)
    log.durability.finish_flush(pending)
    assert log.flush() == 3
    files.crash()
    assert log_in(open_directory(files)).log_end_offset == 3


def test_a_cut_below_the_logs_start_moves_that_for_good() -> None:
    """As an unclean leader asks for. Else a start finds records below the start that it knows of, and drops them."""
    files = MemoryFileSystem()
    log = log_in(open_directory(files))
    for _ in range(10):
        log.append_as_leader(batch(1), 0, NOW_MS)
    log.flush()
    log.advance_high_watermark(10)
    log.delete_records(7)
    log.truncate(5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    log.append_as_follower(batch(1, base_offset=5, epoch=1), NOW_MS, 1)
    log.flush()
    files.crash()
    again = log_in(open_directory(files))
    assert (again.log_start_offset, again.log_end_offset) == (5, 6)


# --- hostile leaders --------------------------------------------------------------------------------------------------


def test_a_follower_survives_records_that_are_none(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster.settle()

    def lie(data: PartitionData) -> None:
        data.records = b"\0" * 80

    cluster.change_answers(lie)
    cluster[A].append()
    cluster.settle(5_000)
    cluster.change_answers(None)
    cluster.settle(5_000)
    assert cluster[B].batches() == cluster[A].batches()


@pytest.mark.parametrize("end", [-5, -2])
def test_a_follower_survives_a_divergence_at_an_impossible_offset(tmp_path: Path, end: int) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append()
    cluster.settle()

    def lie(data: PartitionData) -> None:
        data.records = None
        data.diverging_epoch.epoch = 0
        data.diverging_epoch.end_offset = end

    cluster.change_answers(lie)
    cluster[A].append()
    cluster.settle(1_500)
    cluster.change_answers(None)
    assert cluster[B].log().log_start_offset >= 0
    cluster.settle(5_000)
    assert cluster[B].batches() == cluster[A].batches()
