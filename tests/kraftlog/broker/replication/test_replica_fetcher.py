"""Brokers that follow each other: what is on their disks in the end, and what they ask for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.messages.fetch import PartitionData
from kraftlog.kafka.messages.list_offsets import ListOffsetsRequest
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from tests.kraftlog.broker.broker_world import registration, replicas, topic
from tests.kraftlog.broker.log.builders import batch
from tests.kraftlog.broker.replication.cluster_world import SETTINGS, Cluster
from tests.statemachine.builders import BROKER, an_id, config

A, B, C = 1, 2, 3
BACKOFF_MS = SETTINGS.backoff_ms
WAIT_MS = SETTINGS.wait_max_ms


def two_brokers(tmp_path: Path, *records: MetadataRecord) -> Cluster:
    """Broker A leads partition 0 of clicks, and B follows."""
    cluster = Cluster(tmp_path, [A, B])
    cluster.start(registration(A), registration(B), topic("clicks"), replicas(on=[A, B], epoch=0), *records)
    return cluster


def led_by(leader: int, epoch: int, *, on: tuple[int, ...] = (A, B), index: int = 0) -> MetadataRecord:
    return replicas(on=on, leader=leader, epoch=epoch, index=index)


# --- the ordinary way -------------------------------------------------------------------------------------------------


def test_db33_a_follower_has_what_its_leader_has_and_knows_what_is_committed(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    for number in range(5):
        cluster[A].append(b"%d" % number, count=3)
    cluster.settle()
    assert cluster[B].batches() == cluster[A].batches()
    assert cluster[A].log().high_watermark == 15
    assert cluster[B].log().high_watermark == 15


def test_db25_a_followers_high_watermark_is_not_beyond_its_own_end(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append(count=3)
    cluster.change_answers(lambda data: setattr(data, "high_watermark", 100))
    cluster.settle()
    assert cluster[B].log().high_watermark == 3


def test_db33_a_followers_log_starts_where_its_leaders_does(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append(count=3)
    cluster[A].append(count=3)
    cluster.settle()
    cluster[A].log().delete_records(3)
    cluster.settle()
    assert cluster[B].log().log_start_offset == 3


def test_db37_an_idle_follower_asks_without_naming_its_partitions(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append()
    cluster.settle()
    before = len(cluster.positions(B, A))
    requests_before = len(cluster.fetches(B, A))
    cluster.settle(10 * WAIT_MS)
    assert len(cluster.positions(B, A)) == before
    assert len(cluster.fetches(B, A)) in (requests_before + 9, requests_before + 10, requests_before + 11)
    request = cluster.fetches(B, A)[-1]
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10 * 1024**2)
    assert cluster.positions(B, A)[-1].partition_max_bytes == 1024**2


def test_one_fetcher_follows_each_leader_and_ends_with_its_last_partition(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, [A, B, C])
    on = (A, B, C)
    cluster.start(
        *map(registration, on), topic("clicks"), led_by(A, 0, on=on), led_by(A, 0, on=on, index=1),
        led_by(B, 0, on=on, index=2),
    )  # fmt: skip
    cluster.settle()
    assert len(cluster[C].fetchers) == 2
    cluster.commit(led_by(A, 1, on=on, index=2))
    cluster.settle()
    assert len(cluster[C].fetchers) == 1
    wires = [wire for wire in cluster.wires if wire.ends == (C, B)]
    assert all(wire.is_closed for wire in wires)


# --- durability -------------------------------------------------------------------------------------------------------


def test_a_follower_claims_only_what_is_on_its_disk(tmp_path: Path) -> None:
    """A leader that takes the offset of a Fetch for what the follower has would acknowledge what a crash takes."""
    cluster = two_brokers(tmp_path)
    cluster.settle()
    durable_at: list[int] = []

    def flushing(operation: str, path: str) -> None:
        if operation == "fdatasync" and path.endswith(".log"):
            durable_at.append(len(cluster.fetches(B, A)))

    cluster[B].files.before_operation = flushing
    before = len(cluster.fetches(B, A))
    cluster[A].append(count=2)
    cluster.settle(10)
    assert cluster[B].log().log_end_offset == 2
    assert durable_at == [before]  # flushed before the request after the answer
    assert cluster.positions(B, A)[-1].fetch_offset == 2


def test_without_flush_before_ack_nothing_is_waited_for(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path, config("clicks", "flush.before.ack", "false"))
    cluster[A].append(count=2, flushes=False)
    cluster.settle(WAIT_MS + 10)
    assert cluster.positions(B, A)[-1].fetch_offset == 2
    assert cluster[B].log().recovery_point == 0
    assert cluster[B].log().high_watermark == 2


def test_logs_of_one_answer_share_a_flush(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path, *(led_by(A, 0, index=index) for index in range(1, 8)))
    cluster.settle()
    (directory,) = cluster[B].logs.online
    before = directory.commits.flush_count
    cluster.hold(B, A)
    for index in range(8):
        cluster[A].append(index=index)
    cluster.settle(WAIT_MS)
    cluster.release(B, A)
    cluster.settle(10)
    assert [cluster[B].log(index).log_end_offset for index in range(8)] == [1] * 8
    assert directory.commits.flush_count - before <= 2  # the first answer may have had fewer of them


def test_what_was_not_flushed_when_a_leader_steps_down_is_flushed_before_it_is_claimed(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append()
    cluster.settle()
    cluster.cut(B, A)
    cluster[A].append(flushes=False)
    cluster.commit(led_by(B, 1))
    cluster.cut(A, B)
    cluster.settle(10)
    assert cluster[A].log().recovery_point == cluster[A].log().log_end_offset == 2


# --- divergence -------------------------------------------------------------------------------------------------------


def test_db30_after_a_restart_a_follower_keeps_what_it_has_and_may_lead_with_it(tmp_path: Path) -> None:
    """The first scenario of KIP-101: cut to its high watermark, which is behind, a follower would lose what is
    committed, if it is elected before it has fetched again."""
    cluster = two_brokers(tmp_path)
    cluster[A].append(b"committed")
    cluster.settle(1)
    assert (cluster[B].log().log_end_offset, cluster[B].log().high_watermark) == (1, 0)
    cluster[B].kill(loses_power=True)
    cluster[B].start()
    assert cluster[B].log().high_watermark == 0
    cluster.cut(B, A)
    cluster.settle()
    cluster[A].kill()
    cluster.commit(led_by(B, 1))
    cluster.settle()
    cluster[A].start()
    cluster.settle()
    assert cluster[B].log().log_end_offset == 1
    assert cluster[A].batches() == cluster[B].batches()


def test_db32_what_the_new_leader_does_not_have_is_cut_and_replaced(tmp_path: Path) -> None:
    """The second scenario of KIP-101: both have another record at the same offset."""
    cluster = two_brokers(tmp_path)
    cluster[A].append(b"both have it")
    cluster.settle()
    cluster.cut(B, A)
    cluster[A].append(b"A alone has it")
    cluster[A].kill()
    cluster.commit(led_by(B, 1))
    cluster[B].append(b"B has this instead")
    cluster[A].start()
    cluster.settle()
    assert cluster[A].batches() == cluster[B].batches()
    assert b"B has this instead" in cluster[A].batches()[-1]
    assert not any(b"A alone" in data for data in cluster[A].batches())


def test_db31_after_fast_changes_of_the_leader_logs_agree_though_each_has_epochs_of_its_own(tmp_path: Path) -> None:
    """KIP-279: A has epochs 1 and 3, B has 1 and 2, and neither knows the other's."""
    cluster = two_brokers(tmp_path)
    cluster.commit(led_by(A, 1))
    cluster[A].append(b"first", count=10)
    cluster.settle()
    cluster.cut(A, B)
    cluster.cut(B, A)
    cluster.commit(led_by(B, 2))
    cluster[B].append(b"of epoch 2", count=10)
    cluster.commit(led_by(A, 3))
    cluster[A].append(b"of epoch 3", count=5)
    cluster.commit(led_by(B, 4))
    cluster[B].append(b"of epoch 4")
    cluster.mend()
    cluster.settle(3 * BACKOFF_MS)
    assert cluster[A].batches() == cluster[B].batches()
    assert cluster[A].log().epochs.entries() == cluster[B].log().epochs.entries()[:3]
    assert [position.last_fetched_epoch for position in cluster.positions(A, B)][-4:] == [3, 1, 4, 4]


def test_db32_an_epoch_without_records_that_the_leader_does_not_know_goes(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append()
    cluster.settle()
    cluster.commit(led_by(A, 1), to=[A])  # B has not heard of epoch 1 when it leads in epoch 2
    assert cluster[A].log().epochs.latest == 1
    cluster.commit(led_by(B, 2))
    cluster[B].append(b"of epoch 2")
    cluster.settle()
    assert cluster[A].batches() == cluster[B].batches()
    assert cluster[A].log().epochs.entries() == ((0, 0), (2, 1))


def test_db30_a_log_without_epochs_is_cut_to_its_high_watermark_before_its_first_fetch(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append(b"first")
    cluster.settle()
    cluster.cut(B, A)
    log = cluster[B].log()
    log.append_as_follower(batch(1, base_offset=1, epoch=0, value=b"not committed"), 0)
    log.epochs.clear()
    cluster.commit(led_by(A, 1))
    cluster.runtime.run()
    assert log.log_end_offset == 1
    cluster.mend()
    cluster.settle()
    assert cluster[B].batches() == cluster[A].batches()


def uncleanly_led_by(leader: int, epoch: int) -> MetadataRecord:
    record = PartitionRecord()
    record.CopyFrom(led_by(leader, epoch).partition)
    record.leader_recovery_state = 1
    return MetadataRecord(partition=record)


@pytest.mark.parametrize("is_unclean", [False, True])
def test_committed_records_are_cut_after_an_unclean_election_or_under_protest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_unclean: bool
) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append(b"both have it")
    cluster.settle()
    cluster.cut(B, A)
    cluster.commit(replicas(on=[A, B], isr=[A], leader=A, epoch=1))
    cluster[A].append(b"committed by A alone")
    assert cluster[A].log().high_watermark == 2
    cluster.mend()
    cluster.commit(uncleanly_led_by(B, 2) if is_unclean else led_by(B, 2), to=[A, B])
    cluster[B].append(b"instead")
    cluster.settle()
    assert cluster[A].batches() == cluster[B].batches()
    said = capsys.readouterr().out
    assert ("as the leader was elected uncleanly" in said) == is_unclean
    assert ("although the leader was not elected uncleanly" in said) != is_unclean
    kept = [name for name in cluster[A].files.list_directory("data/clicks-0") if ".cut" in name]
    assert kept == ["00000000000000000001-2.cut-committed"]


def test_what_is_cut_is_kept_until_the_new_leaders_epoch_is_committed(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append(b"both have it")
    cluster.settle()
    cluster.cut(B, A)
    cluster[A].append(b"A alone has it")
    cluster.commit(led_by(B, 1))
    cluster.settle(WAIT_MS + 10)

    def kept() -> list[str]:
        return [name for name in cluster[A].files.list_directory("data/clicks-0") if ".cut" in name]

    assert kept() == ["00000000000000000001-1.cut"]
    cluster[B].append(b"instead")
    cluster.settle(2 * WAIT_MS)
    assert kept() == []
    assert cluster[A].log().high_watermark == 2


# --- answers for another epoch ----------------------------------------------------------------------------------------


def test_db38_an_answer_for_an_epoch_before_is_ignored(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster.settle()
    cluster.hold(B, A)
    cluster[A].append(b"in epoch 0")
    cluster.settle(100)
    cluster.commit(led_by(A, 1), to=[B])
    before = cluster[B].log().log_end_offset
    cluster.release(B, A)
    cluster.runtime.run()
    assert cluster[B].log().log_end_offset == before == 0
    cluster[A].learn([led_by(A, 1)])
    cluster.settle(2 * BACKOFF_MS)
    assert cluster[B].batches() == cluster[A].batches()
    assert cluster[B].log().high_watermark == 1


def test_db38_an_answer_of_a_leader_that_is_deposed_is_ignored(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, [A, B, C])
    on = (A, B, C)
    cluster.start(*map(registration, on), topic("clicks"), led_by(A, 0, on=on))
    cluster.settle()
    cluster.hold(C, A)
    cluster[A].append(b"of the deposed leader")
    cluster.settle(1)
    cluster.commit(led_by(B, 1, on=on), to=[B, C])
    cluster[B].append(b"of the new leader")
    cluster.release(C, A)
    cluster.settle()
    assert cluster[C].batches() == cluster[B].batches()


def test_a_partition_that_is_deleted_while_it_is_fetched_disturbs_nobody(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path, led_by(A, 0, index=1))
    cluster.settle()
    cluster.hold(B, A)
    cluster[A].append(index=0)
    cluster[A].append(index=1)
    cluster.settle(1)
    cluster.commit(replicas(on=[A], index=0, epoch=1))
    cluster.release(B, A)
    cluster.settle()
    assert cluster[B].partitions.with_id(an_id(1), 0) is None
    assert cluster[B].batches(1) == cluster[A].batches(1)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_db36_unknown_leader_epoch_is_tried_again_after_a_pause(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster.settle()
    cluster.commit(led_by(A, 1), to=[B])
    cluster.settle(100)
    before = len(cluster.positions(B, A))
    cluster.settle(BACKOFF_MS - 200)
    assert len(cluster.positions(B, A)) == before
    cluster[A].learn([led_by(A, 1)])
    cluster[A].append()
    cluster.settle(2 * BACKOFF_MS)
    assert cluster[B].batches() == cluster[A].batches()


def test_db36_fenced_leader_epoch_ends_the_fetching_until_the_metadata_is_newer(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster.settle()
    cluster.commit(led_by(A, 1), to=[A])
    cluster[A].append()
    cluster.settle()
    before = len(cluster.positions(B, A))
    cluster.settle(10 * BACKOFF_MS)
    assert len(cluster.positions(B, A)) == before
    cluster[B].learn([led_by(A, 1)])
    cluster.settle()
    assert cluster[B].batches() == cluster[A].batches()


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.KAFKA_STORAGE_ERROR, 12_345],
)
def test_db36_other_errors_delay_the_partition_that_they_are_of(tmp_path: Path, code: int) -> None:
    cluster = two_brokers(tmp_path, led_by(A, 0, index=1))
    cluster.settle()

    def fail(data: PartitionData) -> None:
        if data.partition_index == 0:
            data.error_code, data.records = code, None

    cluster.change_answers(fail)
    cluster[A].append(index=0)
    cluster[A].append(index=1)
    cluster.settle(100)
    cluster.change_answers(None)
    assert [cluster[B].log(index).log_end_offset for index in (0, 1)] == [0, 1]
    cluster[A].append(index=1)
    cluster.settle(100)
    assert [cluster[B].log(index).log_end_offset for index in (0, 1)] == [0, 2]
    cluster.settle(BACKOFF_MS + WAIT_MS)
    assert cluster[B].batches() == cluster[A].batches()


def test_a_damaged_answer_is_refused_and_fetched_again(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster.settle()

    def damage(data: PartitionData) -> None:
        if data.records:
            changed = bytearray(data.records)
            changed[-1] ^= 0x55
            data.records = bytes(changed)

    cluster.change_answers(damage)
    cluster[A].append()
    cluster.settle(100)
    assert cluster[B].log().log_end_offset == 0
    cluster.change_answers(None)
    cluster.settle(BACKOFF_MS + WAIT_MS)
    assert cluster[B].batches() == cluster[A].batches()


@pytest.mark.parametrize("records", [
    pytest.param(batch(1, base_offset=2**63 - 1, epoch=0), id="offsets that no log reaches"),
    pytest.param(batch(1, base_offset=0, epoch=7), id="an epoch that the leader is not in"),
    pytest.param(b"\x00" * 5, id="no batch"),
    pytest.param(b"\xff" * 500, id="noise"),
])  # fmt: skip
def test_what_a_leader_must_not_send_changes_nothing(tmp_path: Path, records: bytes) -> None:
    cluster = two_brokers(tmp_path)
    cluster.settle()

    def lie(data: PartitionData) -> None:
        data.records = records

    cluster.change_answers(lie)
    cluster[A].append()
    cluster.settle(100)
    assert (cluster[B].log().log_end_offset, cluster[B].log().epochs.entries()) == (0, ())
    cluster.change_answers(None)
    cluster.settle(2 * BACKOFF_MS)
    assert cluster[B].batches() == cluster[A].batches()


@pytest.mark.parametrize("field", ["high_watermark", "log_start_offset"])
@pytest.mark.parametrize("value", [-1, -(2**63)])
def test_offsets_that_no_leader_has_are_refused(tmp_path: Path, field: str, value: int) -> None:
    cluster = two_brokers(tmp_path)
    cluster.settle()
    cluster.change_answers(lambda data: setattr(data, field, value))
    cluster[A].append()
    cluster.settle(100)
    assert cluster[B].log().log_end_offset == 0
    cluster.change_answers(None)
    cluster.settle(2 * BACKOFF_MS)
    assert cluster[B].batches() == cluster[A].batches()


# --- out of range -----------------------------------------------------------------------------------------------------


def test_db34_a_follower_that_is_below_the_leaders_start_begins_there(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster.cut(B, A)
    for _ in range(3):
        cluster[A].append(count=4)
    log = cluster[A].log()
    log.advance_high_watermark(12)
    log.delete_records(8)
    cluster.mend()
    cluster.settle(3 * BACKOFF_MS)
    assert cluster[B].log().log_start_offset == 8
    assert cluster[B].batches() == cluster[A].batches()
    asked = [request for *_, request in cluster.requests if isinstance(request, ListOffsetsRequest)]
    assert [request.topics[0].partitions[0].timestamp for request in asked] == [-1, -2]
    assert {request.replica_id for request in asked} == {B}


def test_db34_a_leader_whose_log_starts_within_a_batch_sends_it_whole(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster.cut(B, A)
    cluster[A].append(count=4)
    cluster[A].append(count=4)
    log = cluster[A].log()
    log.advance_high_watermark(8)
    log.delete_records(6)
    cluster.mend()
    cluster.settle(3 * BACKOFF_MS)
    assert cluster[B].log().log_start_offset == 6
    assert cluster[B].log().log_end_offset == 8


def test_db34_a_follower_that_is_beyond_the_leaders_end_is_cut_to_it(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append(count=3)
    cluster.settle()
    cluster[B].log().append_as_follower(batch(1, base_offset=3, epoch=0), 0)
    cluster.commit(led_by(A, 1))

    def out_of_range(data: PartitionData) -> None:
        if data.diverging_epoch.epoch >= 0:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE

    cluster.change_answers(out_of_range)
    cluster.settle(3 * BACKOFF_MS)
    assert cluster[B].log().log_end_offset == 3


def test_db34_a_leader_that_only_says_out_of_range_is_not_asked_without_a_pause(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster.settle()
    cluster.change_answers(lambda data: setattr(data, "error_code", ErrorCode.OFFSET_OUT_OF_RANGE))
    cluster[A].append()
    before = len(cluster.requests)
    cluster.settle(5 * BACKOFF_MS)
    assert len(cluster.requests) - before < 30


# --- leaders that are gone --------------------------------------------------------------------------------------------


def test_a_leader_that_is_gone_disturbs_no_other(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, [A, B, C])
    on = (A, B, C)
    cluster.start(*map(registration, on), topic("clicks"), led_by(A, 0, on=on), led_by(B, 0, on=on, index=1))
    cluster.settle()
    cluster[A].kill()
    for _ in range(5):
        cluster[B].append(index=1)
        cluster.settle(50)
        assert cluster[C].batches(1) == cluster[B].batches(1)
    before = len(cluster.fetches(C, A))
    cluster.settle(5 * BACKOFF_MS)
    assert 4 <= len(cluster.fetches(C, A)) - before <= 6


def test_after_a_restart_of_the_leader_a_new_session_begins(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append()
    cluster.settle()
    cluster[A].kill()
    cluster[A].start()
    cluster.commit(led_by(A, 1))
    cluster[A].append()
    cluster.settle(3 * BACKOFF_MS)
    assert cluster[B].batches() == cluster[A].batches()
    assert sum(request.session_epoch == 0 for request in cluster.fetches(B, A)) >= 2


def test_a_session_that_the_leader_has_forgotten_begins_anew_at_once(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster.settle()
    for session_id in range(1_000, 2_000):
        cluster[A].fetch._sessions.remove(session_id)
    cluster[A].append()
    cluster.settle(WAIT_MS + 10)
    assert cluster[B].batches() == cluster[A].batches()


def test_a_broker_that_leads_again_is_tried_before_the_pause_is_over(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster.settle()
    cluster[A].kill()
    cluster.settle(BACKOFF_MS + 10)
    cluster[A].start()
    cluster.commit(led_by(A, 1))
    cluster[A].append()
    cluster.settle(150)
    assert cluster[B].batches() == cluster[A].batches()


def test_a_partition_that_comes_does_not_wait_until_a_parked_fetch_is_answered(tmp_path: Path) -> None:
    """A new leader's first acks=all waits for its followers' first fetches."""
    cluster = two_brokers(tmp_path)
    cluster.settle()
    cluster.commit(led_by(A, 0, index=1))
    cluster[A].append(index=1)
    cluster.settle(50)
    assert cluster[B].batches(1) == cluster[A].batches(1)
    connections = len(cluster.wires)
    for index in range(2, 12):
        cluster.commit(led_by(A, 0, index=index))
        cluster.settle(10)
    assert len(cluster.wires) <= connections + 1  # they do not give up one request after the other


# --- our own disk -----------------------------------------------------------------------------------------------------


def test_without_room_a_partition_waits_and_others_go_on(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path, led_by(A, 0, index=1))
    cluster.settle()
    files = cluster[B].files
    files.space_limit = files.used_bytes() + 3_000
    cluster[A].append(b"x" * 5_000, index=0)
    cluster[A].append(b"y", index=1)
    cluster.settle(2 * WAIT_MS)
    assert [cluster[B].log(index).log_end_offset for index in (0, 1)] == [0, 1]
    files.space_limit = None
    cluster.settle(2 * BACKOFF_MS)
    assert cluster[B].batches(0) == cluster[A].batches(0)


def test_a_disk_that_fails_takes_its_partitions_and_nothing_else(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path, led_by(A, 0, index=1))
    cluster.settle()
    log = cluster[B].log(0)
    cluster[B].files.failing_syncs.add(f"{log.directory}/00000000000000000000.log")
    cluster[A].append(index=0)
    cluster.settle()
    assert cluster[B].logs.online == []
    before = len(cluster.positions(B, A))
    cluster[B].partitions.check_logs()
    cluster.settle(5 * BACKOFF_MS)
    assert len(cluster.positions(B, A)) <= before + 1
    assert len(cluster[B].fetchers) == 0


# --- throttled replicas -----------------------------------------------------------------------------------------------


def test_db67_a_throttled_replica_that_is_not_in_sync_is_left_out_while_the_rate_is_exceeded(tmp_path: Path) -> None:
    one_batch = dataclasses.replace(SETTINGS, response_max_bytes=10_200, max_bytes=10_200)
    cluster = Cluster(tmp_path, [A, B], one_batch)
    cluster.start(
        registration(A), registration(B), topic("clicks"), replicas(on=[A, B], isr=[A], epoch=0),
        led_by(A, 0, index=1),
        config("clicks", "follower.replication.throttled.replicas", f"0:{B}"),
        config(f"{B}", "follower.replication.throttled.rate", "10000", BROKER),
    )  # fmt: skip
    cluster.cut(B, A)
    for _ in range(40):
        cluster[A].append(b"x" * 10_000)
    cluster.mend()
    cluster.settle(10_000)
    copied = cluster[B].log().log_end_offset
    assert 8 <= copied <= 14  # so many seconds' worth of batches of 10,000 bytes, with the burst at the beginning
    cluster[A].append(index=1)
    cluster.settle(WAIT_MS)
    assert cluster[B].batches(1) == cluster[A].batches(1)
    cluster.settle(60_000)
    assert cluster[B].batches() == cluster[A].batches()
