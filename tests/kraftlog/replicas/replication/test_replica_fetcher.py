"""Brokers that follow each other: what is on their disks in the end, and what they ask for (DB-25, DB-33, DB-37)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.kraftlog.broker.broker_world import registration, replicas, topic
from tests.kraftlog.replicas.replication.cluster_world import SETTINGS, WAIT_MS, A, B, C, Cluster, led_by, two_brokers
from tests.statemachine.builders import BROKER, config

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
    before = directory.commits.flush_times.count
    cluster.hold(B, A)
    for index in range(8):
        cluster[A].append(index=index)
    cluster.settle(WAIT_MS)
    cluster.release(B, A)
    cluster.settle(10)
    assert [cluster[B].log(index).log_end_offset for index in range(8)] == [1] * 8
    assert directory.commits.flush_times.count - before <= 2  # the first answer may have had fewer of them


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
