"""A real Kafka's log replayed equals its own snapshots, and what its tools printed of it."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.errors import StorageError
from kraftlog.kafka.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_batch import encode_batch
from kraftlog.kafka.record_values import encode_metadata_record
from kraftlog.kafka.records import Record
from kraftlog.offline.kafka.directory import Checkpoint, open_directory
from kraftlog.offline.kafka.image import KafkaImage, load_image
from statemachine.tables.catalogue import TABLES

CONTROLLERS = ("controller-3", "controller-2-killed")
LAST_SEGMENT = "00000000000000000680.log"


def contents(image: KafkaImage) -> dict[str, list[tuple[object, ...]]]:
    """All rows, by table. A snapshot of Kafka's does not say which broker got the last block of producer ids."""
    with closing(image.connection):
        return {
            table.name: image.connection.execute(
                f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY 1, 2"
                if table.name != "producer_ids"
                else "SELECT next_producer_id FROM producer_ids"
            ).fetchall()
            for table in TABLES
        }


@pytest.mark.parametrize("name", CONTROLLERS)
def test_the_replayed_log_equals_every_snapshot(kafka_data: Path, name: str) -> None:
    directory = open_directory(kafka_data / name)
    start: Checkpoint | None = None
    for checkpoint in directory.checkpoints:
        end_offset = checkpoint.snapshot_id.offset
        loaded = load_image(directory, checkpoint, end_offset=end_offset)
        expected = contents(loaded)
        assert [len(expected[table]) for table in ("topics", "partitions", "brokers")] != [0, 0, 0]
        for begin in (None, start):
            replayed = load_image(directory, begin, end_offset=end_offset)
            assert (replayed.end_offset, replayed.epoch) == (end_offset, checkpoint.snapshot_id.epoch)
            assert contents(replayed) == expected
            assert replayed.other_features.levels == loaded.other_features.levels
        start = checkpoint


def test_both_controllers_have_the_same(kafka_data: Path) -> None:
    images = [load_image(open_directory(kafka_data / name), None) for name in CONTROLLERS]
    first, second = map(contents, images)
    assert first == second


def test_topics_are_what_kafka_topics_describes(kafka_data: Path) -> None:
    with closing(load_image(open_directory(kafka_data / "controller-3"), None, end_offset=599).connection) as found:
        partitions = found.execute(
            "SELECT name, partition_id, leader, replicas, isr, eligible_leader_replicas, last_known_elr"
            " FROM partitions JOIN topics USING (topic_id)"
        ).fetchall()
        topics = dict(found.execute("SELECT name, topic_id FROM topics"))
        configs = found.execute("SELECT resource_name, name, value FROM configs WHERE resource_type = 2").fetchall()
    described = (kafka_data / "topics-describe.txt").read_text()
    assert {
        f"Topic: {name}\tPartition: {at}\tLeader: {leader if leader >= 0 else 'none'}\tReplicas: {_plain(replicas)}"
        f"\tIsr: {_plain(isr)}\tElr: {_plain(elr)}\tLastKnownElr: {_plain(last)}".strip()
        for name, at, leader, replicas, isr, elr, last in partitions
    } == {line.strip() for line in described.splitlines() if "\tPartition: " in line}
    assert topics == dict(re.findall(r"^Topic: (\S+)\tTopicId: (\S+)", described, re.MULTILINE))
    shown = dict(re.findall(r"^Topic: (\S+)\t.*\tConfigs: (.*)$", described, re.MULTILINE))
    assert all(f"{name}={value}" in shown[topic] for topic, name, value in configs)


def _plain(listed: str) -> str:
    return listed.strip("[]").replace(" ", "")


def test_what_is_behind_the_newest_snapshot_may_be_uncommitted(kafka_data: Path) -> None:
    """FM-02."""
    directory = open_directory(kafka_data / "controller-3")
    image = load_image(directory, directory.newest_checkpoint)
    image.connection.close()
    (warning,) = image.warnings()
    assert warning.startswith("offsets 676 to 779 are after the newest snapshot and may be uncommitted")
    image = load_image(directory, directory.newest_checkpoint, end_offset=676)
    image.connection.close()
    assert image.warnings() == []


def test_without_its_beginning_a_log_needs_a_snapshot(controller: Path) -> None:
    partition = controller / "__cluster_metadata-0"
    (partition / "00000000000000000000.log").unlink()
    directory = open_directory(controller)
    with pytest.raises(StorageError, match="begins at offset 184 and has no snapshot of the earlier records"):
        load_image(directory, None)
    directory.checkpoints[0].path.unlink()  # the one at 163 does not reach to 184
    directory = open_directory(controller)
    assert contents(load_image(directory, directory.checkpoints[0])) == contents(
        load_image(directory, directory.newest_checkpoint)
    )


def test_a_snapshot_that_the_log_does_not_continue_is_refused(controller: Path) -> None:
    (controller / "__cluster_metadata-0" / "00000000000000000000.log").unlink()
    directory = open_directory(controller)
    with pytest.raises(StorageError, match="cannot be replayed: the batch at offset 184"):
        load_image(directory, directory.checkpoints[0])


def test_a_snapshot_alone_is_enough(kafka_data: Path, controller: Path) -> None:
    """As a node has it that has just fetched it: the log is empty, and begins at its end."""
    for segment in (controller / "__cluster_metadata-0").glob("*.log"):
        segment.unlink()
    directory = open_directory(controller)
    whole = open_directory(kafka_data / "controller-3")
    assert contents(load_image(directory, directory.newest_checkpoint)) == contents(
        load_image(whole, None, end_offset=676)
    )


# --- transactions, and what is Kafka's alone --------------------------------------------------------------------------


def append(controller: Path, *runs: list[Message]) -> None:
    """Append batches, one for each list, behind offset 780."""
    path, offset = controller / "__cluster_metadata-0" / LAST_SEGMENT, 780
    data = path.read_bytes()
    for run in runs:
        records = [
            Record(at, 1_795_344_500_000, None, encode_metadata_record(record, 0))
            for at, record in enumerate(run, offset)
        ]
        data += encode_batch(records, base_offset=offset, partition_leader_epoch=2)
        offset += len(run)
    path.write_bytes(data)


def found_in(controller: Path) -> tuple[int, set[str], list[str], KafkaImage]:
    """The end offset, the new topics, what is kept closed, and the image."""
    directory = open_directory(controller)
    image = load_image(directory, directory.newest_checkpoint)
    with closing(image.connection) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM topics WHERE name LIKE 'in-%'")}
        closed = image.kept_closed()
    return image.end_offset, names, closed, image


BEGIN = BeginTransactionRecord(name="several topics")
CREATED = [TopicRecord(name=f"in-{number}", topic_id=bytes(15) + bytes([200 + number])) for number in range(3)]
CREDENTIAL = UserScramCredentialRecord(
    name="eve", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=1
)
FEATURE = FeatureLevelRecord(name="group.version", feature_level=0)


def test_a_transaction_takes_effect_with_its_end(controller: Path) -> None:
    """Also one over several batches of several records (FM-24)."""
    append(controller, [BEGIN, CREATED[0], CREDENTIAL], [FEATURE, CREATED[1], EndTransactionRecord()], [CREATED[2]])
    end_offset, names, closed, image = found_in(controller)
    assert (end_offset, names) == (787, {"in-0", "in-1", "in-2"})
    assert closed == ["2 scram_credentials"]
    assert "group.version" not in image.other_features.levels


def test_an_aborted_transaction_has_none(controller: Path) -> None:
    append(controller, [BEGIN, CREATED[0], CREDENTIAL], [FEATURE, AbortTransactionRecord(reason="r")], [CREATED[2]])
    end_offset, names, closed, image = found_in(controller)
    assert (end_offset, names) == (786, {"in-2"})
    assert closed == ["1 scram_credentials"]
    assert image.other_features.levels["group.version"] == 1


def test_a_transaction_that_is_open_has_none_and_it_is_said(controller: Path) -> None:
    append(controller, [CREATED[2]], [BEGIN, CREATED[0], CREDENTIAL], [CREATED[1]])
    end_offset, names, closed, image = found_in(controller)
    assert (end_offset, names) == (781, {"in-2"})
    assert closed == ["1 scram_credentials"]
    assert any("a metadata transaction" in warning for warning in image.warnings())


def test_a_record_that_cannot_be_true_is_an_error_with_its_offset(controller: Path) -> None:
    append(controller, [CREATED[0]], [CREATED[0]])
    with pytest.raises(StorageError, match=r"__cluster_metadata-0 cannot be replayed: .* at offset 781 creates topic"):
        found_in(controller)


def test_a_newer_level_is_an_error(controller: Path) -> None:
    append(controller, [FeatureLevelRecord(name="metadata.version", feature_level=31)])
    with pytest.raises(StorageError, match="to 31, and this program knows levels up to 30"):
        found_in(controller)


def test_the_log_up_to_a_torn_batch_is_taken_and_it_is_said(controller: Path) -> None:
    append(controller, [CREATED[0]], [CREATED[1]])
    path = controller / "__cluster_metadata-0" / LAST_SEGMENT
    path.write_bytes(path.read_bytes()[:-5])
    end_offset, names, _, image = found_in(controller)
    assert (end_offset, names) == (781, {"in-0"})
    assert any("the log ends at offset 781" in warning and str(path) in warning for warning in image.warnings())


def test_a_copy_of_the_whole_directory_reads_the_same(kafka_data: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(kafka_data / "controller-3", tmp_path / "copy")
    found = [contents(load_image(open_directory(path), None)) for path in (kafka_data / "controller-3", copied)]
    assert found[0] == found[1]
