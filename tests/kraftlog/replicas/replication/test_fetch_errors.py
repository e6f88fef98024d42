"""What goes wrong with a partition, a leader or a disk: what waits, what goes on, and what ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ErrorCode
from kraftbase.files.files import read_whole
from kraftlog.kafka.messages.fetch import FetchRequest, PartitionData
from kraftlog.kafka.messages.list_offsets import ListOffsetsRequest
from kraftlog.replicas.replication.replica_fetcher import RECONNECT_MS_MIN
from tests.kraftlog.broker.broker_world import registration, topic
from tests.kraftlog.replicas.replication.cluster_world import BACKOFF_MS, WAIT_MS, A, B, C, Cluster, led_by, two_brokers
from tests.kraftlog.storage.builders import batch

# --- errors -----------------------------------------------------------------------------------------------------------


def test_db36_unknown_leader_epoch_is_tried_again_soon_and_then_less_often(tmp_path: Path) -> None:
    """Kafka waits a second, and with it every acks=all of a leader that has applied the metadata a moment later."""
    cluster = two_brokers(tmp_path)
    cluster.settle()
    cluster.commit(led_by(A, 1), to=[B])
    cluster.settle(100)
    cluster[A].learn([led_by(A, 1)])
    cluster[A].append()
    cluster.settle(200)
    assert cluster[B].batches() == cluster[A].batches()
    cluster.commit(led_by(A, 2), to=[B])
    cluster.settle(10 * BACKOFF_MS)
    before = len(cluster.fetches(B, A))
    cluster.settle(10 * BACKOFF_MS)
    assert 9 <= len(cluster.fetches(B, A)) - before <= 11


def test_db36_a_partition_that_is_tried_again_soon_does_not_wait_until_the_others_have_news(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path, led_by(A, 0, index=1))
    cluster.settle()
    cluster.commit(led_by(A, 1), to=[B])
    cluster.settle(100)
    cluster[A].learn([led_by(A, 1)])
    cluster[A].append()
    cluster.settle(200)
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
    assert [cluster[B].log(index).log_end_offset for index in (0, 1)] == [0, 1]
    cluster[A].append(index=1)
    cluster.settle(100)
    assert [cluster[B].log(index).log_end_offset for index in (0, 1)] == [0, 2]
    cluster.change_answers(None)
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


def old_files(cluster: Cluster) -> list[str]:
    files = cluster[B].files
    return [name for name in files.list_directory("data/clicks-0") if name.endswith(".old")]


def starts_at(cluster: Cluster, offset: int) -> None:
    """The leader has four records more, of which only those from an offset on are left."""
    cluster.cut(B, A)
    cluster[A].append(count=4)
    log = cluster[A].log()
    log.advance_high_watermark(log.log_end_offset)
    log.delete_records(offset)


def test_db34_what_a_follower_had_is_kept_until_a_record_of_the_leaders_epoch_is_committed(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append(count=4)
    cluster.settle()
    before = cluster[B].batches()
    starts_at(cluster, 8)
    cluster.commit(led_by(A, 1))
    cluster.mend()
    cluster.settle(3 * BACKOFF_MS)
    assert (cluster[B].log().log_start_offset, cluster[B].log().log_end_offset) == (8, 8)
    (name,) = old_files(cluster)
    assert name == "00000000000000000000-1.old"
    assert read_whole(cluster[B].files, f"data/clicks-0/{name}") == b"".join(before)
    cluster[A].append()
    cluster.settle(3 * BACKOFF_MS)
    assert cluster[B].log().high_watermark == 9
    assert old_files(cluster) == []


def test_db34_nothing_is_kept_if_the_leader_has_deleted_it_while_the_follower_followed(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster[A].append(count=4)
    cluster.settle()
    starts_at(cluster, 8)
    cluster.mend()
    cluster.settle(3 * BACKOFF_MS)
    assert (cluster[B].log().log_start_offset, cluster[B].log().log_end_offset) == (8, 8)
    assert old_files(cluster) == []


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


def test_a_leader_that_lacks_list_offsets_delays_the_partition_that_needs_it_and_no_other(tmp_path: Path) -> None:
    """The connection goes on: it is one API that is missing."""
    cluster = two_brokers(tmp_path, led_by(A, 0, index=1))
    cluster.settle()
    cluster.lacking.add(ListOffsetsRequest.KEY)
    cluster[B].log(0).truncate_fully_and_start_at(7)
    connections = len(cluster.wires)
    for _ in range(3):
        cluster[A].append(index=0)
        cluster[A].append(index=1)
        cluster.settle(BACKOFF_MS)
    assert (cluster[B].log(0).log_end_offset, cluster[B].batches(1)) == (7, cluster[A].batches(1))
    assert len(cluster.wires) == connections
    cluster.lacking.clear()
    cluster.settle(3 * BACKOFF_MS)
    assert cluster[B].log(0).log_end_offset == cluster[A].log(0).log_end_offset


def test_a_leader_that_lacks_fetch_is_asked_again_after_a_pause_on_the_same_connection(tmp_path: Path) -> None:
    """It is asked for all partitions then: what a session has changed was not sent."""
    cluster = two_brokers(tmp_path)
    cluster.settle()
    cluster.lacking.add(FetchRequest.KEY)
    cluster[A].append()
    cluster.settle(WAIT_MS + BACKOFF_MS)
    connections, before = len(cluster.wires), len(cluster.fetches(B, A))
    cluster.settle(10 * BACKOFF_MS)
    assert 9 <= len(cluster.fetches(B, A)) - before <= 11
    assert len(cluster.wires) == connections
    cluster.lacking.clear()
    before = len(cluster.fetches(B, A))
    cluster.settle(2 * BACKOFF_MS)
    assert [request.session_epoch for request in cluster.fetches(B, A)[before:]][:2] == [0, 1]
    cluster[A].append()
    cluster.settle(100)
    assert cluster[B].batches() == cluster[A].batches()


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


def test_db98_a_leader_that_closes_its_connection_is_doubted_until_it_answers_again(tmp_path: Path) -> None:
    cluster = two_brokers(tmp_path)
    cluster.settle(WAIT_MS)
    assert not cluster[B].view.doubted
    cluster[A].kill()
    assert cluster[B].view.doubted == {A}
    cluster[A].start()
    cluster.settle(RECONNECT_MS_MIN + WAIT_MS)  # sooner than after the usual pause
    assert not cluster[B].view.doubted


def test_that_a_leader_is_gone_and_that_it_is_back_are_logged_at_one_level(tmp_path: Path) -> None:
    """At that of `brokers run`: who was told of the one is told of the other."""
    cluster = two_brokers(tmp_path)
    cluster.settle(WAIT_MS)
    with capture_logs() as lines:
        cluster[A].kill()
        cluster[A].start()
        cluster.settle(3 * BACKOFF_MS)
    told = [(line["event"], line["log_level"]) for line in lines if line["event"].startswith("a leader ")]
    assert told == [("a leader does not answer; retrying", "warning"), ("a leader answers again", "warning")]


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
