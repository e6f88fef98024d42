"""Logs that part, and agree again: KIP-101, KIP-279, and answers for an epoch that is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlog.replicas.replication import replica_fetcher
from kraftlog.replicas.replication.replica_fetcher import ReplicaFetcher
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import SLICE_PARTITIONS
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from tests.kraftlog.broker.broker_world import registration, replicas, topic
from tests.kraftlog.replicas.replication.cluster_world import BACKOFF_MS, WAIT_MS, A, B, C, Cluster, led_by, two_brokers
from tests.kraftlog.storage.builders import batch
from tests.statemachine.builders import an_id

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


@pytest.mark.parametrize(("cuts_ms", "in_a_turn"), [(5.0, SLICE_PARTITIONS), (0.0, 1)], ids=["quick", "slow"])
def test_db97_many_logs_are_cut_in_slices(
    cuts_ms: float, in_a_turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_fetcher, "CUTS_MS", cuts_ms)
    count = 3 * SLICE_PARTITIONS
    cluster = Cluster(tmp_path, [A, B])
    cluster.start(topic("clicks"), *(replicas(index=index, on=(A, B), leader=A) for index in range(count)))
    cluster.settle()
    cluster.cut(B, A)
    for index in range(count):
        cluster[A].append(b"A alone has it", index=index)
    cluster[A].kill()
    cluster.commit(*(replicas(index=index, on=(A, B), leader=B, epoch=1) for index in range(count)))
    cluster.settle()
    cluster[A].start()
    cluster.mend()
    cuts: list[int] = []
    cut_some, truncate = ReplicaFetcher._truncate_some, PartitionLog.truncate_as_follower

    def counted_turn(self: ReplicaFetcher) -> None:
        cuts.append(0)
        cut_some(self)

    def counted(self: PartitionLog, end_offset: int, leader_epoch: int) -> None:
        cuts[-1] += 1
        truncate(self, end_offset, leader_epoch)

    monkeypatch.setattr(ReplicaFetcher, "_truncate_some", counted_turn)
    monkeypatch.setattr(PartitionLog, "truncate_as_follower", counted)
    cluster.settle()
    assert [cut for cut in cuts if cut] == [in_a_turn] * (count // in_a_turn)
    for index in range(count):
        assert cluster[A].batches(index) == cluster[B].batches(index) == []


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
    assert ("truncated after an unclean election" in said) == is_unclean
    assert ("truncated without an unclean election" in said) != is_unclean
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
