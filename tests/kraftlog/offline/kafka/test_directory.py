"""A real Kafka's directory: what is read, what is said of what is torn, foreign, newer or missing, and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftbase.errors import StorageError
from kraftbase.types import Epoch, Offset
from kraftlog.kafka.record_batch import LENGTH_END, read_batches
from kraftlog.offline.kafka.batch_files import BrokenEnd
from kraftlog.offline.kafka.checkpoints import checkpoint_records, read_header
from kraftlog.offline.kafka.directory import KafkaDirectory, LogBatch, log_batches, open_directory
from kraftlog.offline.kafka.small_files import EpochStart, read_epoch_starts, read_quorum_state
from raft.core.types import OffsetAndEpoch

NEWEST = "00000000000000000676-0000000002.checkpoint"
LAST_SEGMENT = "00000000000000000680.log"


def ids(directory: KafkaDirectory) -> list[OffsetAndEpoch]:
    return [checkpoint.snapshot_id for checkpoint in directory.checkpoints]


def ends(directory: KafkaDirectory) -> tuple[int, BrokenEnd | None]:
    """Where the log ends, and why it ends before its bytes do."""
    *_, last = log_batches(directory)
    if isinstance(last, LogBatch):
        return last.batch.end_offset, None
    *_, batch, _ = log_batches(directory)
    assert isinstance(batch, LogBatch)
    return batch.batch.end_offset, last


def everything(directory: KafkaDirectory) -> None:
    """Read all that there is."""
    directory.quorum_state()
    list(log_batches(directory))
    for checkpoint in directory.checkpoints:
        read_header(checkpoint.path)
        list(checkpoint_records(checkpoint.path))


@pytest.mark.parametrize("inside", [False, True])
def test_a_directory_is_found_by_either_name(controller: Path, inside: bool) -> None:
    """It has what FM-07 says."""
    directory = open_directory(controller / "__cluster_metadata-0" if inside else controller)
    assert directory.path == controller
    assert directory.identity == ("kraftlogTestClusterAAA", 3, "WVgOKTrjSTm503GBhPGShQ")
    assert [segment.base_offset for segment in directory.segments] == [0, 184, 479, 680]
    assert ids(directory) == [
        OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(offset)) for offset, epoch in [(163, 1), (410, 1), (676, 2)]
    ]
    assert ends(directory) == (780, None)


def test_small_files(controller: Path) -> None:
    directory = open_directory(controller)
    assert directory.quorum_state() == (1, 2, 3, -1, None, None)
    assert read_epoch_starts(directory.partition / "leader-epoch-checkpoint") == (EpochStart(1, 0), EpochStart(2, 466))


def test_a_quorum_state_of_fixed_voters(tmp_path: Path) -> None:
    path = tmp_path / "quorum-state"
    path.write_text(
        '{"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":2,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )
    assert read_quorum_state(path) == (0, 7, -1, 2, None, (1, 2))


def test_a_checkpoint_names_the_voters(controller: Path) -> None:
    header = read_header(controller / "__cluster_metadata-0" / NEWEST)
    assert (header.kraft_version, sorted(voter.voter_id for voter in header.voters)) == (1, [1, 2, 3])


def test_reading_begins_where_it_is_asked_to(controller: Path) -> None:
    directory = open_directory(controller)
    for offset in (0, 1, 183, 184, 500, 779):
        first = next(log_batches(directory, offset))
        assert isinstance(first, LogBatch)
        assert first.batch.base_offset <= offset < first.batch.end_offset
    assert list(log_batches(directory, 780)) == []


def test_nothing_is_written_and_no_index_is_read(controller: Path) -> None:
    for path in [*controller.rglob("*.index"), *controller.rglob("*.timeindex"), *controller.rglob("*.snapshot")]:
        path.unlink()
        path.mkdir()  # whoever opened it would fail
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in controller.rglob("*")}
    controller.chmod(0o555)
    everything(open_directory(controller))
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in controller.rglob("*")} == before


# --- the end of the log -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 20, 71])
def test_a_batch_that_is_cut_short_ends_the_log(controller: Path, cut: int) -> None:
    """FM-10."""
    path = controller / "__cluster_metadata-0" / LAST_SEGMENT
    os.truncate(path, path.stat().st_size - cut)
    end_offset, end = ends(open_directory(controller))
    assert (end_offset, end is not None and end.is_torn) == (779, True)
    assert f"{path}: the last {72 - cut} bytes" in str(end)


def test_zeros_end_the_log(controller: Path) -> None:
    path = controller / "__cluster_metadata-0" / LAST_SEGMENT
    size = path.stat().st_size
    os.truncate(path, size + 10_000)
    end_offset, end = ends(open_directory(controller))
    assert (end_offset, end and end.position, end and end.is_torn) == (780, size, True)


def test_a_last_batch_with_wrong_bytes_ends_the_log(controller: Path) -> None:
    """FM-10."""
    path = controller / "__cluster_metadata-0" / LAST_SEGMENT
    data = path.read_bytes()
    path.write_bytes(data[:-3] + b"\xff" * 3)
    end_offset, end = ends(open_directory(controller))
    assert end_offset == 779
    assert "CRC" in str(end)


def test_damage_with_batches_after_it_is_an_error(controller: Path) -> None:
    """FM-10."""
    path = controller / "__cluster_metadata-0" / LAST_SEGMENT
    data = bytearray(path.read_bytes())
    data[LENGTH_END + 60] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        StorageError, match=r"from 0 on, are not a batch .* and others follow; copy the directory again"
    ):
        ends(open_directory(controller))


def test_a_torn_segment_that_is_not_the_last_is_an_error(controller: Path) -> None:
    path = controller / "__cluster_metadata-0" / "00000000000000000184.log"
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(StorageError, match="and the log continues in another segment"):
        ends(open_directory(controller))


def test_a_missing_segment_is_an_error(controller: Path) -> None:
    (controller / "__cluster_metadata-0" / "00000000000000000184.log").unlink()
    with pytest.raises(StorageError, match=r"479.log begins at offset 479, and the segment before it ends at 184"):
        ends(open_directory(controller))


def test_a_batch_in_the_wrong_place_is_an_error(controller: Path) -> None:
    path = controller / "__cluster_metadata-0" / LAST_SEGMENT
    first, *others = [bytes(batch.data) for batch in read_batches(path.read_bytes())]
    path.write_bytes(b"".join([first, *others[1:]]))
    with pytest.raises(StorageError, match=r"a batch at offset \d+ of epoch 2 follows what ends at offset"):
        ends(open_directory(controller))


# --- what is foreign, newer, or not whole -----------------------------------------------------------------------------


def _without_footer(partition: Path) -> None:
    path = partition / NEWEST
    *batches, _ = [bytes(batch.data) for batch in read_batches(path.read_bytes())]
    path.write_bytes(b"".join(batches))


def _without_header(partition: Path) -> None:
    path = partition / NEWEST
    _, *batches = [bytes(batch.data) for batch in read_batches(path.read_bytes())]
    path.write_bytes(b"".join(batches))


def _old_magic(partition: Path) -> None:
    path = partition / LAST_SEGMENT
    data = bytearray(path.read_bytes())
    data[16] = 1
    path.write_bytes(data)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no metadata": (lambda at: at.rename(at.with_name("orders-0")), "has no __cluster_metadata-0"),
    "no identity": (lambda at: (at.parent / "meta.properties").unlink(), "has no meta.properties"),
    "foreign identity": (lambda at: (at.parent / "meta.properties").write_text("x=1\n"), "does not name a cluster"),
    "newer identity": (
        lambda at: (at.parent / "meta.properties").write_text("version=2\ncluster.id=a\nnode.id=1\n"),
        r"meta.properties has version 2, and 0 and 1 are known; .* newer kraftlog",
    ),
    "newer quorum state": (
        lambda at: (at / "quorum-state").write_text(json.dumps({"data_version": 2})),
        "quorum-state has data_version 2",
    ),
    "no quorum state": (lambda at: (at / "quorum-state").write_bytes(b"\xff"), "quorum-state is not text"),
    "quorum state without a leader": (
        lambda at: (at / "quorum-state").write_text('{"data_version":1,"leaderEpoch":2,"votedId":-1}'),
        "quorum-state has leaderId None, which is not a number",
    ),
    "another topic": (
        lambda at: (at / "partition.metadata").write_text("version: 0\ntopic_id: 7xqoSuojRFWfafe-i-FuAA\n"),
        "is of the topic '7xqoSuojRFWfafe-i-FuAA', not of the cluster's metadata",
    ),
    "no footer": (_without_footer, "has no footer: it is not whole"),
    "no header": (_without_header, "does not begin with a snapshot's header"),
    "an empty checkpoint": (lambda at: (at / NEWEST).write_bytes(b""), "is empty; copy it again"),
    "a checkpoint cut short": (lambda at: os.truncate(at / NEWEST, 1_000), "the file ends within it"),
    "old batches": (_old_magic, "has magic 1, and Kafka 4 writes 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_by_name(controller: Path, name: str) -> None:
    damage, expected = REFUSED[name]
    damage(controller / "__cluster_metadata-0")
    with pytest.raises(StorageError, match=expected) as refused:
        everything(open_directory(controller))
    assert str(controller) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1\n0\n", "has version '1'"),
        ("0\n2\n1 0\n", "has 1 epochs"),
        ("0\n1\nx\n", "is not a list"),
        ("0\n", "is not a list"),
    ],
)
def test_epochs_that_cannot_be_read(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(text)
    with pytest.raises(StorageError, match=reason):
        read_epoch_starts(path)
