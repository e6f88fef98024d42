"""A leader whose followers fetch: what that commits, who joins the ISR, what followers are told; DB-26."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.replicas.partitions.partition import Partition
from tests.kraftlog.broker.broker_world import LAG_MAX_MS, BrokerWorld, registration, replicas, topic
from tests.kraftlog.storage.builders import batch
from tests.statemachine.builders import config

FLUSHES_LATER = config("clicks", "flush.before.ack", "false")


class LeaderWorld(BrokerWorld):
    """A broker that leads; it is broker 1, and 2 and 3 follow."""

    def __init__(self, directory: Path, isr: tuple[int, ...] = (1, 2, 3), *, flushes: bool = True) -> None:
        others = [registration(number) for number in (1, 2, 3)]
        settings = [] if flushes else [FLUSHES_LATER]
        super().__init__(directory, [*others, topic("clicks"), replicas(on=[1, 2, 3], isr=isr), *settings])
        self.asked: list[tuple[int, ...]] = []
        self.partitions.replication.ask_for_isr = self._ask

    def _ask(self, partition: Partition, isr: tuple[int, ...]) -> None:
        assert partition.leading is not None
        partition.leading.begin_change(isr, 1)
        self.asked.append(isr)

    def commit_asked(self) -> None:
        """The controller has agreed to what was asked for last."""
        leading = self.replica().leading
        assert leading is not None
        assert leading.pending is not None
        assert leading.committed(leading.pending, leading.pending.isr, leading.partition_epoch + 1)
        self.replica().isr_settled()

    def refuse_asked(self) -> None:
        """The controller does not agree."""
        leading = self.replica().leading
        assert leading is not None
        assert leading.pending is not None
        leading.refused(leading.pending)
        self.replica().isr_settled()

    def follow(self, follower: int, offset: int, *, broker_epoch: int | None = None, start: int = 0) -> None:
        """A follower fetches from its end; its fetch waits if there is nothing for it."""
        epoch = follower if broker_epoch is None else broker_epoch
        self.read((0, offset), version=18, follower=follower, broker_epoch=epoch, log_start_offset=start)

    def follower_got(self) -> list[tuple[int, int]]:
        """For each answer so far, error code and bytes."""
        got = [(part.error_code, len(part.records or b"")) for _ in list(self.answers) for part in self.fetched()]
        return got[::-1]


@pytest.fixture
def world(tmp_path: Path) -> LeaderWorld:
    return LeaderWorld(tmp_path)


def test_db20_acks_all_waits_for_the_leaders_disk_and_for_every_replica_in_sync(world: LeaderWorld) -> None:
    for follower in (2, 3):
        world.follow(follower, 0)
    world.send((0, batch(1)))
    for callback in world.runtime.soon:
        callback()
    world.runtime.soon.clear()
    size = len(batch(1))
    assert world.follower_got() == [(0, size), (0, size)]  # before the leader's own flush has ended
    world.runtime.run()
    world.follow(2, 1)
    assert (world.high_watermark(), world.answers) == (0, [])
    world.follow(3, 1)
    assert world.high_watermark() == 1
    assert world.produced_codes() == [ErrorCode.NONE]


def test_what_followers_have_is_not_committed_before_the_leaders_own_disk_has_it(world: LeaderWorld) -> None:
    world.send((0, batch(1)))
    for follower in (2, 3):
        world.follow(follower, 1)
    assert (world.high_watermark(), world.answers) == (0, [])
    world.runtime.run()
    assert world.high_watermark() == 1


def test_db22_nothing_is_committed_while_too_few_are_in_sync(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path, (1, 2), flushes=False)
    world.send((0, batch(1)))
    world.commit(config("clicks", "min.insync.replicas", "3"))
    world.follow(2, 1)
    assert world.high_watermark() == 0
    world.follow(3, 1)
    assert world.asked == [(1, 2, 3)]
    assert world.high_watermark() == 0
    world.commit_asked()
    assert world.high_watermark() == 1
    assert world.produced_codes() == [ErrorCode.NONE]


def test_db14_a_follower_joins_by_the_fetch_with_which_it_has_the_high_watermark(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path, (1, 2), flushes=False)
    world.send((0, batch(3)))
    world.follow(2, 3)
    assert world.high_watermark() == 3
    world.follow(3, 0)
    world.follow(3, 2)  # within a batch, as only a log that was cut can end
    assert world.asked == []
    world.follow(3, 3)
    assert world.asked == [(1, 2, 3)]


def test_db15_who_lags_for_too_long_is_to_leave_when_it_is_looked_at(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path, flushes=False)
    for follower in (2, 3):
        world.follow(follower, 0)
    world.send((0, batch(1)))
    world.runtime.clock_ms += LAG_MAX_MS + 1
    world.follow(2, 1)
    world.partitions.check_isrs()
    assert world.asked == [(1, 2)]
    assert world.high_watermark() == 0
    world.commit_asked()
    assert world.high_watermark() == 1
    world.partitions.check_isrs()
    assert world.asked == [(1, 2)]


def test_a_follower_reads_what_is_not_committed_and_a_consumer_does_not(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path, flushes=False)
    world.send((0, batch(2)))
    world.read((0, 0))
    assert world.answers == []
    world.follow(2, 0)
    assert world.follower_got() == [(0, len(batch(2)))]


@pytest.mark.parametrize(("follower", "epoch"), [(4, 4), (2, 1)])
def test_db61_a_stranger_and_a_broker_of_an_earlier_life_are_refused_and_not_counted(
    tmp_path: Path, follower: int, epoch: int
) -> None:
    world = LeaderWorld(tmp_path, flushes=False)
    world.send((0, batch(1)))
    world.follow(3, 1)
    world.follow(follower, 1, broker_epoch=epoch)
    assert world.follower_got() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]
    assert world.high_watermark() == 0


@pytest.mark.parametrize(
    ("leader_epoch", "offset", "code"),
    [
        (2, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (3, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, 99, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_db07_a_broker_without_a_replica_is_refused_before_anything_is_read(
    tmp_path: Path, leader_epoch: int, offset: int, code: ErrorCode
) -> None:
    world = LeaderWorld(tmp_path, flushes=False)
    world.commit(replicas(on=[1, 2, 3], epoch=2))
    world.read((0, offset), version=18, follower=4, broker_epoch=4, leader_epoch=leader_epoch, log_start_offset=0)
    assert world.follower_got() == [(code, 0)]


def test_a_follower_whose_log_has_parted_is_told_and_not_counted(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path, flushes=False)
    world.send((0, batch(1)))
    world.commit(replicas(on=[1, 2, 3], epoch=3))
    world.send((0, batch(1)))
    world.read((0, 2), version=18, follower=2, broker_epoch=2, last_fetched_epoch=0)
    (part,) = world.fetched()
    assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, 1)
    leading = world.replica().leading
    assert leading is not None
    assert leading.followers[2].log_end_offset == -1


def test_db21_a_new_leader_shows_no_end_before_it_has_committed_its_own_epoch(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path, flushes=False)
    world.send((0, batch(1)))
    for follower in (2, 3):
        world.follow(follower, 1)
    world.send((0, batch(1)))
    world.commit(replicas(on=[1, 2, 3], epoch=1))
    assert world.high_watermark() == 1
    world.follow(2, 2)
    assert world.high_watermark() == 1
    world.follow(3, 2)
    assert world.high_watermark() == 2


def test_listeners_hear_of_an_epoch_before_the_records_of_an_earlier_one_are_acknowledged_in_it(tmp_path: Path) -> None:
    """Seed 157 of the replication world: an epoch that begins without a follower commits what waited for it."""
    world = LeaderWorld(tmp_path, flushes=False)
    for follower in (2, 3):
        world.follow(follower, 0)
    world.send((0, batch(1)))
    world.follow(2, 1)
    heard: list[tuple[int, int]] = []
    world.leads = lambda _, epoch: heard.append((epoch, world.high_watermark()))  # type: ignore[method-assign]
    world.commit(replicas(on=[1, 2], epoch=1))
    assert heard == [(1, 0)]
    assert world.high_watermark() == 1


def test_a_broker_that_leads_no_more_forgets_its_followers_and_answers_those_that_wait(world: LeaderWorld) -> None:
    world.follow(2, 0)
    world.commit(replicas(on=[1, 2, 3], leader=3, epoch=1))
    world.runtime.run()
    assert world.follower_got() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]
    assert world.replica().leading is None
    assert world.replica().describe_replicas() == []
    world.follow(2, 0)
    assert world.follower_got() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]


def test_db13_when_a_follower_outside_is_fenced_the_high_watermark_goes_on_without_it(tmp_path: Path) -> None:
    world = LeaderWorld(tmp_path, (1, 2), flushes=False)
    world.follow(3, 0)
    world.send((0, batch(1)))
    world.follow(2, 1)
    assert world.high_watermark() == 0
    world.commit(registration(3, fenced=True))
    assert world.high_watermark() == 0  # the controller may have taken it in before that
    world.refuse_asked()
    assert world.high_watermark() == 1


def test_metadata_of_before_the_controllers_answer_does_not_bring_an_isr_back(tmp_path: Path) -> None:
    """Consider an answer with partition epoch 1, and the record of epoch 1 behind it in the metadata log."""
    world = LeaderWorld(tmp_path, (1, 2), flushes=False)
    world.follow(3, 0)
    world.commit_asked()
    assert world.replica().isr == (1, 2, 3)
    world.commit(config("clicks", "retention.ms", "1000000"))
    assert world.replica().isr == (1, 2, 3)
    world.commit(replicas(on=[1, 2, 3], epoch=2))
    assert world.replica().isr == (1, 2, 3)


def test_the_status_of_replicas_is_the_leaders(world: LeaderWorld) -> None:
    world.follow(2, 0)
    found = world.replica().describe_replicas()
    assert [(one.broker_id, one.log_end_offset, one.is_in_sync) for one in found] == [
        (1, 0, True),
        (2, 0, True),
        (3, -1, True),
    ]


@pytest.mark.parametrize(
    ("leader_epoch", "offset", "last_epoch", "code", "diverges"),
    [
        (0, 99, 9, ErrorCode.FENCED_LEADER_EPOCH, False),
        (2, 99, 9, ErrorCode.UNKNOWN_LEADER_EPOCH, False),
        (1, 0, 9, ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (1, 0, 0, ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (1, 99, 0, ErrorCode.NONE, True),
        (1, 99, -1, ErrorCode.OFFSET_OUT_OF_RANGE, False),
    ],
)
def test_db26_a_fetch_is_checked_by_epoch_start_divergence_and_end(
    tmp_path: Path, leader_epoch: int, offset: int, last_epoch: int, code: ErrorCode, diverges: bool
) -> None:
    """The log is of offsets 1 to 3, of which 0 and 1 are of epoch 0."""
    world = LeaderWorld(tmp_path, (1,), flushes=False)
    world.send((0, batch(2)))
    world.commit(replicas(on=[1, 2, 3], isr=[1], epoch=1))
    world.send((0, batch(2)))
    world.replica().online_log().delete_records(1)
    world.answers.clear()
    world.read((0, offset), version=18, follower=2, broker_epoch=2, leader_epoch=leader_epoch,
               last_fetched_epoch=last_epoch)  # fmt: skip
    (part,) = world.fetched()
    assert (part.error_code, part.diverging_epoch.end_offset >= 0) == (code, diverges)
