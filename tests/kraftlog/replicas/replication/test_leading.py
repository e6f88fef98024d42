"""What a leader knows and decides: the four guarantees of KAFKA-4485, and the ISR of KIP-497.

DB-05 to DB-07, DB-10 to DB-15, DB-20, DB-60 to DB-63 and DB-65; DB-06, DB-11, DB-12, DB-13, DB-61, DB-62 by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.replicas.replication import leading as words
from kraftlog.replicas.replication.leading import Leading
from kraftpb.v1.metadata_pb2 import PartitionRecord
from tests.statemachine.builders import an_id

LAG_MAX_MS = 30_000
ME = 1


@dataclass
class KnownBrokers:
    """The registrations that a leader sees."""

    epochs: dict[int, int] = field(default_factory=lambda: {1: 11, 2: 12, 3: 13})
    fenced: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)

    def registered_epoch(self, broker_id: int) -> int | None:
        return self.epochs.get(broker_id)

    def is_fenced(self, broker_id: int) -> bool:
        return broker_id in self.fenced

    def is_shutting_down(self, broker_id: int) -> bool:
        return broker_id in self.leaving


def record(
    isr: tuple[int, ...] = (1, 2, 3), *, replicas: tuple[int, ...] = (1, 2, 3), leader_epoch: int = 5,
    partition_epoch: int = 9,
) -> PartitionRecord:  # fmt: skip
    return PartitionRecord(
        topic_id=an_id(1), partition_id=0, replicas=replicas, isr=isr, leader=ME, leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
    )  # fmt: skip


class Leader:
    """A leader with a log, of which everything is durable."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3), *, end: int = 0) -> None:
        self.brokers = KnownBrokers()
        self.now_ms = 1_000_000.0
        self.end = end
        self.high_watermark = 0
        self.leading = Leading(ME, record(isr), self.brokers, LAG_MAX_MS, end, self.now_ms)

    def fetch(self, follower_id: int, offset: int, broker_epoch: int | None = None) -> None:
        epoch = self.brokers.epochs[follower_id] if broker_epoch is None else broker_epoch
        follower = self.leading.follower(follower_id, names_epoch=True, name="clicks-0")
        self.leading.check_broker_epoch(follower_id, epoch, name="clicks-0")
        follower.fetched(offset, 0, self.end, self.now_ms, epoch)
        self.raise_high_watermark()

    def raise_high_watermark(self) -> int:
        candidate = self.leading.high_watermark(self.end, self.end, self.now_ms)
        self.high_watermark = max(self.high_watermark, candidate)
        return self.high_watermark

    def wanted(self) -> tuple[int, ...] | None:
        """The ISR that should be: without those that lag, or with those that may join."""
        shrunk = self.leading.isr_without_lagging(self.end, self.now_ms)
        if shrunk is not None:
            return shrunk
        joining = [
            follower
            for follower in self.leading.followers
            if self.leading.wants_to_join(follower, self.high_watermark, self.end, self.now_ms)
        ]
        return (*self.leading.isr, *joining) if joining else None

    def reasons(self, follower_id: int) -> tuple[str, ...]:
        found = self.leading.describe(0, self.end, self.high_watermark, self.now_ms)
        return next(one.reasons for one in found if one.broker_id == follower_id)


# --- KAFKA-4485 -------------------------------------------------------------------------------------------------------


def test_kafka4485_guarantee_1_a_replica_that_lags_little_holds_the_high_watermark_back_and_then_joins() -> None:
    """DB-05, DB-20."""
    leader = Leader((1, 2), end=100)
    for follower in (2, 3):
        leader.fetch(follower, 100)
    leader.end = 110
    leader.fetch(2, 110)
    assert leader.high_watermark == 100  # 3 is not in sync, and 10 offsets behind: it would never reach 110 and more
    assert leader.wanted() == (1, 2, 3)
    leader.fetch(3, 110)
    assert leader.high_watermark == 110


def test_kafka4485_guarantee_2_a_replica_that_lags_too_much_leaves_at_the_next_check() -> None:
    """DB-15."""
    leader = Leader(end=100)
    for follower in (2, 3):
        leader.fetch(follower, 100)
    leader.end = 200
    leader.now_ms += LAG_MAX_MS
    leader.fetch(2, 200)
    assert leader.wanted() is None
    leader.now_ms += 1
    assert leader.wanted() == (1, 2)


def test_kafka4485_guarantee_3_the_high_watermark_is_that_of_the_maximal_isr_until_the_controller_has_agreed() -> None:
    """DB-10: one that is to leave may be elected until then."""
    leader = Leader(end=100)
    for follower in (2, 3):
        leader.fetch(follower, 100)
    leader.end = 200
    leader.now_ms += LAG_MAX_MS + 1
    leader.fetch(2, 200)
    change = leader.leading.begin_change((1, 2), 11)
    assert leader.leading.maximal_isr == {1, 2, 3}
    assert leader.raise_high_watermark() == 100
    assert leader.leading.committed(change, (1, 2), 10)
    assert leader.raise_high_watermark() == 200


def test_kafka4485_guarantee_4_who_joins_has_the_high_watermark_and_the_epochs_start() -> None:
    """DB-14."""
    leader = Leader((1, 2), end=100)
    leader.fetch(2, 100)
    leader.fetch(3, 99)
    assert leader.wanted() is None
    assert set(leader.reasons(3)) == {words.LAGGING, words.BELOW_HIGH_WATERMARK, words.BELOW_EPOCH_START}
    leader.fetch(3, 100)
    assert leader.wanted() == (1, 2, 3)


def test_db62_a_replica_at_the_high_watermark_that_lags_too_much_neither_joins_nor_flaps() -> None:
    """The second bug of KAFKA-4485. Consider min.insync.replicas 2: the high watermark stands, the leader goes on."""
    leader = Leader((1,), end=1_000)
    leader.end = 5_000
    leader.now_ms += 2 * LAG_MAX_MS
    leader.fetch(2, 1_000)
    leader.high_watermark = 1_000
    assert leader.wanted() is None
    assert leader.reasons(2) == (words.LAGGING,)
    leader.fetch(2, 5_000)
    assert leader.wanted() == (1, 2)


def test_db06_a_new_leader_knows_no_ends_and_takes_those_in_sync_for_caught_up_now() -> None:
    leader = Leader((1, 2), end=50)
    assert leader.leading.high_watermark(50, 50, leader.now_ms) == -1
    followers = leader.leading.followers
    assert (followers[2].caught_up_ms, followers[3].caught_up_ms) == (leader.now_ms, float("-inf"))
    assert leader.reasons(3) == (
        words.NEVER_FETCHED, words.LAGGING, words.BELOW_HIGH_WATERMARK, words.BELOW_EPOCH_START,
    )  # fmt: skip
    leader.now_ms += LAG_MAX_MS + 1
    assert leader.wanted() == (1,)


@pytest.mark.parametrize(("epoch", "knows"), [(6, True), (7, False)])
def test_db60_what_is_known_of_followers_holds_only_if_nobody_else_has_led_meanwhile(epoch: int, knows: bool) -> None:
    leader = Leader(end=10)
    leader.fetch(2, 10)
    again = Leading(
        ME, record(leader_epoch=epoch, partition_epoch=12), leader.brokers, LAG_MAX_MS, 10, 5.0, leader.leading
    )
    assert again.followers[2].log_end_offset == (10 if knows else -1)


# --- who may be a follower, and who may join --------------------------------------------------------------------------


@pytest.mark.parametrize("names_epoch", [True, False])
def test_db07_a_broker_without_a_replica_is_refused(names_epoch: bool) -> None:
    leader = Leader()
    with pytest.raises(ApiError) as refused:
        leader.leading.follower(4, names_epoch=names_epoch, name="clicks-0")
    expected = ErrorCode.UNKNOWN_LEADER_EPOCH if names_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.value.code is expected
    assert leader.leading.follower(2, names_epoch=names_epoch, name="clicks-0") is leader.leading.followers[2]


@pytest.mark.parametrize("broker_epoch", [11, -1])
def test_db61_a_broker_of_an_earlier_registration_or_without_one_is_refused(broker_epoch: int) -> None:
    leader = Leader()
    with pytest.raises(ApiError) as refused:
        leader.leading.check_broker_epoch(2, broker_epoch, name="clicks-0")
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.leading.check_broker_epoch(2, 12, name="clicks-0")


@pytest.mark.parametrize("reason", [words.FENCED, words.SHUTTING_DOWN, words.NOT_REGISTERED, words.OLD_BROKER_EPOCH])
def test_db13_who_the_controller_would_not_take_neither_joins_nor_holds_the_high_watermark_back(reason: str) -> None:
    leader = Leader((1, 2), end=10)
    leader.fetch(3, 9)
    leader.fetch(3, 10)
    leader.end = 20
    leader.fetch(2, 20)
    assert leader.high_watermark == 10
    if reason == words.FENCED:
        leader.brokers.fenced.add(3)
    elif reason == words.SHUTTING_DOWN:
        leader.brokers.leaving.add(3)
    elif reason == words.NOT_REGISTERED:
        del leader.brokers.epochs[3]
    else:
        leader.brokers.epochs[3] += 1
    assert leader.wanted() is None
    assert leader.raise_high_watermark() == 20
    assert reason in leader.reasons(3)


def test_one_in_the_isr_that_is_fenced_holds_the_high_watermark_back_until_the_controller_has_it_out() -> None:
    leader = Leader(end=10)
    leader.fetch(2, 10)
    leader.brokers.fenced.add(3)
    assert leader.raise_high_watermark() == 0
    leader.leading.update(record((1, 2), partition_epoch=10))
    assert leader.raise_high_watermark() == 10


# --- changes ----------------------------------------------------------------------------------------------------------


def test_db10_one_change_is_under_way_at_a_time_and_names_the_brokers_epochs() -> None:
    leader = Leader((1,), end=10)
    leader.fetch(2, 10)
    assert leader.leading.wants_to_join(2, 0, 10, leader.now_ms)
    change = leader.leading.begin_change((1, 2), 11)
    assert (change.leader_epoch, change.partition_epoch, change.isr, change.broker_epochs) == (5, 9, (1, 2), (11, 12))
    leader.fetch(3, 10)
    assert leader.wanted() is None
    assert not leader.leading.wants_to_join(3, 0, 10, leader.now_ms)
    assert words.CHANGE_IN_FLIGHT in leader.reasons(3)


def test_db11_an_answer_counts_once_and_not_if_it_is_older_than_what_is_known() -> None:
    leader = Leader((1, 2), end=10)
    change = leader.leading.begin_change((1,), 11)
    assert not leader.leading.committed(change, (1,), 8)
    assert leader.leading.committed(change, (1,), 9)  # nothing was to be changed
    assert (leader.leading.isr, leader.leading.pending) == ((1,), None)
    assert not leader.leading.committed(change, (1, 2, 3), 10)
    assert leader.leading.isr == (1,)


def test_db11_a_change_that_is_refused_leaves_what_is_committed() -> None:
    leader = Leader((1,), end=10)
    leader.fetch(2, 10)
    change = leader.leading.begin_change((1, 2), 11)
    leader.leading.refused(change)
    assert (leader.leading.isr, leader.leading.maximal_isr) == ((1,), {1})
    assert leader.wanted() == (1, 2)


def test_db12_the_metadata_replaces_what_is_pending_and_an_answer_that_comes_later_is_not_taken() -> None:
    leader = Leader(end=10)
    change = leader.leading.begin_change((1, 2), 11)
    leader.leading.update(record((1, 3), partition_epoch=10))
    assert (leader.leading.isr, leader.leading.pending) == ((1, 3), None)
    assert not leader.leading.committed(change, (1, 2), 11)
    assert leader.leading.isr == (1, 3)
    leader.leading.update(record((1, 2, 3), partition_epoch=10))
    assert leader.leading.isr == (1, 3)


def test_db63_a_follower_that_is_new_has_an_empty_state_and_one_that_has_gone_is_none() -> None:
    leader = Leader(end=10)
    leader.fetch(2, 10)
    leader.brokers.epochs[4] = 14
    leader.leading.update(record((1, 2), replicas=(1, 2, 4), partition_epoch=10))
    assert list(leader.leading.followers) == [2, 4]
    assert leader.leading.followers[2].log_end_offset == 10
    assert leader.leading.followers[4].log_end_offset == -1


def test_the_status_of_replicas_says_offsets_and_times_and_minus_one_for_what_is_not_known() -> None:
    leader = Leader((1, 2), end=10)
    leader.fetch(2, 7)
    leader.now_ms += 40
    me, second, third = leader.leading.describe(3, 10, 0, leader.now_ms)
    assert me == (1, 3, 10, 0, 0, True, False, ())
    assert (second.log_end_offset, second.lag_offsets, second.lag_ms, second.is_in_sync) == (7, 3, 40, True)
    assert (third.log_end_offset, third.lag_offsets, third.lag_ms, third.is_in_sync) == (-1, -1, -1, False)


def test_a_replica_that_has_the_leaders_end_lags_by_nothing_while_its_fetch_is_parked() -> None:
    leader = Leader((1, 2), end=10)
    leader.fetch(2, 10)
    leader.now_ms += 400
    _, second, _ = leader.leading.describe(3, 10, 10, leader.now_ms)
    assert (second.lag_offsets, second.lag_ms) == (0, 0)
    _, second, _ = leader.leading.describe(3, 12, 10, leader.now_ms)
    assert (second.lag_offsets, second.lag_ms) == (2, 400)


def test_db65_the_low_watermark_is_the_smallest_start_of_the_living() -> None:
    leader = Leader(end=10)
    assert leader.leading.low_watermark == -1
    for follower_id, start in ((2, 4), (3, 2)):
        leader.leading.followers[follower_id].fetched(10, start, 10, leader.now_ms)
    assert leader.leading.low_watermark == 2
    leader.brokers.fenced.add(3)
    assert leader.leading.low_watermark == 4
