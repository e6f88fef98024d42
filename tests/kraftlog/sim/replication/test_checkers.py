"""Each rule is broken by what breaks it, and by nothing else: judges are shown what brokers might have done.

The first four are the guarantees of KAFKA-4485, by name.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftbase.files.files import write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.kafka.record_batch import encode_batch
from kraftlog.kafka.records import Record
from kraftlog.sim.broker_log.checkers.batches import Batch, whole_batches
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.replication.checkers.lag import LedPartition
from kraftlog.sim.replication.checkers.partition import PartitionChecker
from kraftlog.sim.replication.checkers.promises import PartitionPromises
from kraftlog.sim.replication.checkers.replica_files import ReplicaFiles
from kraftlog.sim.replication.checkers.rules import (
    AGREE,
    CATCHES_UP,
    CUT,
    ENOUGH,
    KEPT,
    LEAVES,
    MAXIMAL,
    MEMBERS,
    ONCE,
    ONE_LEADER,
    READ,
    WATERMARK,
)
from kraftlog.sim.replication.checkers.views import LeaderView, PartitionState, ReplicaView

LAG_MAX_MS = 1_000.0
STATE = PartitionState(
    leader=1, leader_epoch=3, partition_epoch=7, replicas=(1, 2, 3), isr=(1, 2), eligible_leaders=(), last_known=()
)
VIEW = ReplicaView(
    broker_id=1, life=1, leader_epoch=3, log_start=0, log_end=10, durable_end=10, high_watermark=5, last_epoch=3
)
LEADER = LeaderView(
    partition_epoch=7, isr=(1, 2), pending=None, maximal_isr=frozenset({1, 2}), min_isr=1,
    eligible={1: 11, 2: 12, 3: 13}, registered={1: 11, 2: 12, 3: 13},
)  # fmt: skip


def broken(title: str) -> object:
    return pytest.raises(Violation, match=title[title.rindex("(") + 1 : -1])


def checker_of(view: ReplicaView = VIEW, *, flush_before_ack: bool = True) -> PartitionChecker:
    """Broker 1 has led for a second; 2 and 3 have fetched from 5 when it began."""
    checker = PartitionChecker(PartitionPromises("t-0", flush_before_ack), LAG_MAX_MS, STATE)
    checker.committed(STATE, is_unclean=False)
    checker.seen(view, LEADER, 0.0, 0.0)
    return checker


def fetches(led: LedPartition, broker_id: int, offset: int, now_ms: float, leader_end: int = 10) -> None:
    led.follower(broker_id).fetches(offset, leader_end, now_ms, 10 + broker_id)


def batch(base_offset: int = 0, value: bytes = b"v", *, epoch: int = 3, sequence: int = -1) -> Batch:
    data = encode_batch(
        [Record(base_offset, 100, None, value)], base_offset=base_offset, partition_leader_epoch=epoch,
        producer_id=7 if sequence >= 0 else -1, producer_epoch=0 if sequence >= 0 else -1, base_sequence=sequence,
    )  # fmt: skip
    return whole_batches(data)[0]


def promises_of(*batches: Batch, epoch: int = 3, flush_before_ack: bool = True) -> PartitionPromises:
    promises = PartitionPromises("t-0", flush_before_ack)
    for one in batches:
        promises.acknowledged(one.base_offset, one, epoch)
    return promises


# --- KAFKA-4485 -------------------------------------------------------------------------------------------------------


def test_guarantee_1_a_replica_that_is_caught_up_holds_the_high_watermark_until_it_has_it() -> None:
    checker = checker_of()
    fetches(checker.led[1], 2, 10, 100.0)
    fetches(checker.led[1], 3, 10, 100.0)
    fetches(checker.led[1], 3, 12, 200.0, leader_end=20)
    grown = VIEW._replace(log_end=20, durable_end=20)
    checker.seen(grown._replace(high_watermark=10), LEADER, 300.0, 0.0)
    fetches(checker.led[1], 2, 20, 350.0, leader_end=20)
    with broken(CATCHES_UP):  # broker 3 is out of the ISR, and caught up
        checker.seen(grown._replace(high_watermark=15), LEADER, 400.0, 0.0)


def test_guarantee_1_a_replica_that_lags_does_not_hold_the_high_watermark() -> None:
    checker = checker_of()
    fetches(checker.led[1], 2, 10, 1_900.0)
    fetches(checker.led[1], 3, 4, 1_900.0)
    checker.seen(VIEW._replace(high_watermark=10), LEADER, 2_000.0, 0.0)


def test_guarantee_1_a_replica_that_has_the_high_watermark_joins() -> None:
    led = checker_of().led[1]
    fetches(led, 3, 10, 100.0)
    with broken(CATCHES_UP):
        led.fetched(3, VIEW, LEADER, 100.0)
    led.fetched(3, VIEW, LEADER._replace(pending=(1, 2, 3)), 100.0)
    led.fetched(3, VIEW, LEADER._replace(eligible={1: 11, 2: 12}), 100.0)
    led.fetched(3, VIEW._replace(log_end=20, high_watermark=15), LEADER, 100.0)


@pytest.mark.parametrize(
    ("offset", "epoch_start", "eligible"),
    [(4, 0, 13), (9, 10, 13), (10, 0, 14)],
    ids=["below the high watermark", "below the epoch's start", "of an old broker epoch"],
)
def test_guarantee_1_nobody_else_joins(offset: int, epoch_start: int, eligible: int) -> None:
    checker = checker_of()
    led = checker.led[1]
    led.epoch_start = epoch_start
    fetches(led, 2, 10, 100.0)
    fetches(led, 3, offset, 100.0, leader_end=offset)
    asked = LEADER._replace(
        pending=(1, 2, 3), maximal_isr=frozenset({1, 2, 3}), eligible={**LEADER.eligible, 3: eligible}
    )
    with broken(CATCHES_UP):
        checker.seen(VIEW, asked, 110.0, 0.0)


def test_guarantee_1_nobody_joins_that_the_next_check_would_remove() -> None:
    """The flapping of KAFKA-4485: it has the high watermark, and lags."""
    checker = checker_of()
    fetches(checker.led[1], 2, 10, 1_900.0)
    fetches(checker.led[1], 3, 6, 1_900.0)
    asked = LEADER._replace(pending=(1, 2, 3), maximal_isr=frozenset({1, 2, 3}))
    with broken(CATCHES_UP):
        checker.seen(VIEW, asked, 2_000.0, 0.0)


def test_guarantee_2_a_replica_that_lags_leaves_within_one_check() -> None:
    checker = checker_of()
    checker.seen(VIEW, LEADER, 1_400.0, 0.0)
    with broken(LEAVES):
        checker.seen(VIEW, LEADER, 1_900.0, 0.0)


def test_guarantee_2_a_leader_that_hangs_or_waits_for_an_answer_has_as_long_after_that() -> None:
    checker = checker_of()
    leaving = LEADER._replace(pending=(1,))
    checker.seen(VIEW, leaving, 1_900.0, 0.0)
    checker.seen(VIEW, LEADER, 2_300.0, 0.0)
    checker.seen(VIEW, LEADER, 2_900.0, 2_800.0)
    with broken(LEAVES):
        checker.seen(VIEW, LEADER, 3_600.0, 2_800.0)


def test_guarantee_2_a_follower_always_one_small_batch_behind_does_not_leave() -> None:
    checker = checker_of()
    led = checker.led[1]
    for now in range(0, 10_000, 50):
        end = 10 + now // 50
        fetches(led, 2, end - 1, float(now), leader_end=end)
        checker.seen(VIEW._replace(log_end=end, durable_end=end), LEADER, float(now), 0.0)
    with broken(LEAVES):
        checker.seen(VIEW._replace(log_end=300, durable_end=300), LEADER._replace(pending=(1,)), 10_000.0, 0.0)


def test_guarantee_3_the_high_watermark_never_goes_back_in_an_epoch() -> None:
    checker = checker_of()
    with broken(WATERMARK):
        checker.seen(VIEW._replace(high_watermark=4), LEADER, 100.0, 0.0)
    checker = checker_of()
    checker.seen(VIEW._replace(high_watermark=4, leader_epoch=4), LEADER._replace(partition_epoch=8), 100.0, 0.0)


def test_guarantee_4_every_member_has_what_is_below_the_high_watermark() -> None:
    checker = checker_of()
    checker.seen(VIEW._replace(broker_id=2, durable_end=5), None, 0.0, 0.0)
    checker.check_members()
    checker.seen(VIEW._replace(broker_id=2, durable_end=4), None, 0.0, 0.0)
    with broken(MEMBERS):
        checker.check_members()
    checker.check_members(powerless=[2])


def test_guarantee_4_the_leader_itself_has_it_on_its_disk() -> None:
    checker = checker_of()
    fetches(checker.led[1], 2, 10, 50.0)
    with broken(MEMBERS):
        checker.seen(VIEW._replace(high_watermark=8, durable_end=7), LEADER, 100.0, 0.0)
    checker = checker_of(flush_before_ack=False)
    fetches(checker.led[1], 2, 10, 50.0)
    checker.seen(VIEW._replace(high_watermark=8, durable_end=7), LEADER, 100.0, 0.0)


# --- ISRs and leaders -------------------------------------------------------------------------------------------------


def test_a_leader_waits_for_everybody_that_the_controller_has_in_the_isr() -> None:
    checker = checker_of()
    with broken(MAXIMAL):
        checker.committed(replace(STATE, partition_epoch=8, isr=(1, 2, 3)), is_unclean=False)
    checker = checker_of()
    joining = LEADER._replace(pending=(1, 2, 3), maximal_isr=frozenset({1, 2, 3}))
    fetches(checker.led[1], 3, 10, 100.0)
    checker.seen(VIEW, joining, 100.0, 0.0)
    checker.committed(replace(STATE, partition_epoch=8, isr=(1, 2, 3)), is_unclean=False)


def test_a_leader_takes_for_the_isr_what_the_controller_has_committed() -> None:
    checker = checker_of()
    with broken(MAXIMAL):
        checker.seen(VIEW, LEADER._replace(isr=(1,)), 100.0, 0.0)


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    checker = checker_of()
    fetches(checker.led[1], 2, 10, 50.0)
    with broken(ENOUGH):
        checker.seen(VIEW._replace(high_watermark=8), LEADER._replace(min_isr=3), 100.0, 0.0)


def test_one_broker_leads_in_an_epoch() -> None:
    promises = promises_of()
    promises.leads(1, 3)
    promises.leads(1, 3)
    promises.leads(2, 4)
    with broken(ONE_LEADER):
        promises.leads(2, 3)


def test_nothing_is_cut_below_the_high_watermark() -> None:
    follower = VIEW._replace(broker_id=2)
    checker = checker_of()
    checker.seen(follower, None, 0.0, 0.0)
    checker.seen(follower._replace(log_end=5), None, 0.0, 0.0)
    with broken(CUT):
        checker.seen(follower._replace(log_end=4), None, 0.0, 0.0)


def test_what_an_unclean_leader_lacks_is_cut() -> None:
    follower = VIEW._replace(broker_id=2)
    checker = checker_of()
    checker.seen(follower, None, 0.0, 0.0)
    checker.committed(replace(STATE, leader=3, leader_epoch=4, partition_epoch=8, isr=(3,)), is_unclean=True)
    checker.seen(follower._replace(log_end=4, leader_epoch=4), None, 0.0, 0.0)
    checker.seen(follower._replace(log_end=9, leader_epoch=4, high_watermark=9, last_epoch=4), None, 0.0, 0.0)
    with broken(CUT):
        checker.seen(follower._replace(log_end=8, leader_epoch=4, high_watermark=8, last_epoch=4), None, 0.0, 0.0)


# --- promises ---------------------------------------------------------------------------------------------------------


def test_a_leader_has_what_was_acknowledged() -> None:
    promises = promises_of(batch(0), batch(1))
    promises.leader_has(1, [batch(0), batch(1)], 4, 0)
    with broken(KEPT):
        promises.leader_has(1, [batch(0)], 4, 0)
    with broken(KEPT):
        promises.leader_has(1, [batch(0), batch(1, b"other")], 4, 0)


def test_a_leader_that_was_may_lack_what_was_acknowledged_after_it() -> None:
    promises_of(batch(0), epoch=5).leader_has(1, [], 4, 0)


def test_what_a_consumer_has_read_is_there() -> None:
    promises = promises_of()
    promises.sent.add(batch(0).content)
    promises.read([batch(0)], 3, is_leader=False)
    with broken(READ):
        promises.leader_has(1, [], 4, 0)
    with broken(READ):
        promises.read([batch(1, b"nobody's")], 3, is_leader=True)


def test_an_unclean_election_takes_what_its_leader_lacks_and_no_more() -> None:
    promises = promises_of(batch(0), batch(1))
    promises.elected_uncleanly(4)
    promises.acknowledged(2, batch(2), 3)  # by a leader that has not heard of it
    promises.leader_has(2, [batch(0)], 4, 0)
    assert promises.end == 1
    with broken(KEPT):
        promises.leader_has(2, [], 4, 0)


def test_a_log_begins_where_its_records_were_deleted_or_before() -> None:
    promises = promises_of()
    promises.deleted(3)
    promises.replica_begins(1, 3, 3)
    with broken(KEPT):
        promises.replica_begins(1, 4, 3)


def test_from_an_unclean_leader_with_a_damaged_log_on_logs_begin_where_that_is_left_or_before() -> None:
    promises = promises_of(*(batch(offset) for offset in range(8)))
    promises.elected_uncleanly(4)
    promises.damaged_leader(4, 8)
    promises.replica_begins(1, 8, 4)
    promises.replica_begins(2, 8, 5)  # it has followed, and leads
    with broken(KEPT):
        promises.replica_begins(3, 8, 3)  # it has not heard of that leader
    with broken(KEPT):
        promises.replica_begins(1, 9, 4)


def test_deleted_records_may_be_gone() -> None:
    promises = promises_of(batch(0), batch(1))
    promises.deleted(1)
    promises.leader_has(1, [batch(1)], 4, 1)
    assert promises.start == 1


def test_power_takes_what_is_not_flushed_from_as_many_brokers_as_must_be_in_sync() -> None:
    promises = promises_of(batch(0), flush_before_ack=False)
    assert not promises.lost_power(1, 2, 3)
    promises.is_in_sync([1])
    assert not promises.lost_power(2, 2, 3)
    with broken(KEPT):
        promises.leader_has(3, [], 4, 0)
    assert promises.lost_power(3, 2, 3)
    promises.leader_has(3, [], 4, 0)
    assert not promises_of(batch(0)).lost_power(1, 1, 3)


def test_replicas_agree_in_each_epoch() -> None:
    promises = promises_of()
    promises.replica_has(1, [batch(0, epoch=1), batch(1, epoch=2)])
    promises.replica_has(2, [batch(0, epoch=1), batch(1, b"other", epoch=3)])
    with broken(AGREE):
        promises.replica_has(3, [batch(0, b"other", epoch=1)])
    with broken(AGREE):
        promises.replica_has(3, [batch(0, epoch=3), batch(1, epoch=2)])


def test_replicas_agree_below_their_high_watermarks() -> None:
    promises = promises_of()
    promises.confirmed([batch(0), batch(1)], 1, 3, is_leader=True)
    assert promises.end == 1
    promises.confirmed([batch(0), batch(1, b"other")], 1, 3, is_leader=False)
    with broken(AGREE):
        promises.confirmed([batch(0, b"other")], 1, 3, is_leader=False)


def test_a_batch_of_an_idempotent_producer_is_stored_once() -> None:
    promises = promises_of()
    promises.leader_has(1, [batch(0, sequence=0), batch(1, b"w", sequence=1)], 3, 0)
    with broken(ONCE):
        promises.leader_has(1, [batch(0, sequence=0), batch(1, sequence=9)], 3, 0)
    with broken(ONCE):
        promises.leader_has(1, [batch(0, sequence=0), batch(1, b"w", sequence=0)], 3, 0)


def test_files_are_read_again_when_they_have_changed() -> None:
    files, reader = MemoryFileSystem(), ReplicaFiles()
    files.make_directories("t-0")
    path = f"t-0/{0:020}.log"
    write_new_file(files, path, batch(0).data)
    assert reader.read(files, "t-0") == ([batch(0)], [batch(0)])
    assert reader.read(files, "t-0") == ([batch(0)], [])
    write_new_file(files, path, batch(0).data + batch(1).data)
    found, changed = reader.read(files, "t-0")
    assert [one.base_offset for one in found] == [one.base_offset for one in changed] == [0, 1]
    write_new_file(files, f"t-0/{1:020}.log", batch(1).data)
    with pytest.raises(Violation, match="82"):
        reader.read(files, "t-0")
