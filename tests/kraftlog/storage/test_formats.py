"""The bytes of each file, against a real Kafka 4.3 (FM-01, FM-03, FM-04, FM-05, FM-30, FM-43, DB-73, DB-75)."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.files.files import read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftbase.uuids import uuid_from_text
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.record_batch import read_batches
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.batch_header import read_header
from kraftlog.storage.formats.checkpoints import (
    decode_epochs,
    decode_meta,
    decode_offsets,
    decode_partition_metadata,
    encode_epochs,
    encode_meta,
    encode_offsets,
    encode_partition_metadata,
)
from kraftlog.storage.formats.indexes import AbortedTransaction, decode_aborted
from kraftlog.storage.formats.names import (
    LOG_SUFFIX,
    directory_name,
    file_name,
    is_deleted_directory,
    offset_in_name,
    partition_in_name,
)
from kraftlog.storage.formats.producer_snapshot import ProducerEntry, decode_snapshot, encode_snapshot
from kraftlog.storage.segment import Segment
from tests.archives import unpack
from tests.paths import ROOT

REAL: Final = ROOT / "tests" / "kraftlog" / "kafka" / "kafka-4.3-metadata.tar.gz"
KAFKAS_INDEXES: Final = {
    0: (
        "0000006200001efa00000090000031c2",
        "000001a202dce30a00000062000001a202dce65500000090000001a202dcf999000000b7",
    ),
    184: (
        "00000072000016e5000000be000027d60000011a00003b69",
        "000001a202dd18e000000072000001a202dd3829000000be000001a202dd6dd90000011a000001a202dd6e6c00000126",
    ),
    479: (
        "00000049000010aa00000075000020c0",
        "000001a202dd8cd400000049000001a202dd9b2f00000075000001a202dda528000000c8",
    ),
}
"""What that Kafka had in `.index` and `.timeindex`, which are not in the archive, by the segment's first offset."""

IDS: Final = st.integers(-1, 2**63 - 1)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a real Kafka 4.3 controller: its files of these kinds are a broker's."""
    path = tmp_path_factory.mktemp("real")
    unpack(REAL, path)
    (found,) = path.rglob("controller-3/__cluster_metadata-0")
    return found


def test_fm01_a_segments_files_have_its_first_offset_in_20_digits() -> None:
    assert file_name(466, LOG_SUFFIX) == "00000000000000000466.log"
    assert offset_in_name("00000000000000000466.log", LOG_SUFFIX) == 466
    for other in (
        "466.log",
        "00000000000000000466.index",
        "0000000000000000466.log.damaged",
        "00000000000000000x66.log",
    ):
        assert offset_in_name(other, LOG_SUFFIX) is None


@pytest.mark.parametrize("partition", [TopicPartition("clicks", 0), TopicPartition("a-b.c_d", 12)])
def test_a_partitions_directory_is_named_by_topic_and_number(partition: TopicPartition) -> None:
    assert partition_in_name(directory_name(partition)) == partition


@pytest.mark.parametrize("name", ["meta.properties", "clicks", "-1", "clicks-", "clicks-01", "clicks-1x", ".lock"])
def test_what_is_no_partitions_directory_is_not_taken_for_one(name: str) -> None:
    assert partition_in_name(name) is None
    assert is_deleted_directory("clicks-0.0123456789abcdef0123456789abcdef-delete")


def test_fm05_fm43_the_files_of_epochs_and_offsets_are_kafkas(real: Path) -> None:
    data = (real / "leader-epoch-checkpoint").read_bytes()
    assert decode_epochs(data, "epochs") == [(1, 0), (2, 466)]
    assert encode_epochs([(1, 0), (2, 466)]) == data
    offsets = {TopicPartition("b", 0): 7, TopicPartition("a-b", 11): 2**40}
    assert encode_offsets(offsets) == b"0\n2\na-b 11 1099511627776\nb 0 7\n"
    assert decode_offsets(encode_offsets(offsets), "offsets") == offsets
    assert decode_offsets(b"", "offsets") == {}, "Kafka makes the file before it writes it"


@pytest.mark.parametrize(
    "data",
    [b"1\n0\n", b"0\n", b"0\n1\n", b"0\n0\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"0\n1\na 0 1", b"\xff\n0\n"],
)
def test_fm05_a_checkpoint_file_with_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedBytes, match="offsets"):
        decode_offsets(data, "offsets")


def test_epochs_that_do_not_ascend_are_refused() -> None:
    for data in (b"0\n2\n2 0\n1 5\n", b"0\n2\n1 5\n2 4\n"):
        with pytest.raises(MalformedBytes, match="follows epoch"):
            decode_epochs(data, "epochs")


def test_fm03_partition_metadata_is_kafkas(real: Path) -> None:
    data = (real / "partition.metadata").read_bytes()
    assert decode_partition_metadata(data, "file") == UUID(int=1)
    assert encode_partition_metadata(UUID(int=1)) == data
    with pytest.raises(MalformedBytes, match="version 0"):
        decode_partition_metadata(data.replace(b"version: 0", b"version: 1"), "file")


def test_fm04_meta_properties_of_a_real_kafka_are_read_and_ours_say_the_same(real: Path) -> None:
    data = (real.parent / "meta.properties").read_bytes()
    found = decode_meta(data, "meta")
    assert found == ("kraftlogTestClusterAAA", 3, uuid_from_text("WVgOKTrjSTm503GBhPGShQ"))
    assert decode_meta(encode_meta(*found), "meta") == found
    for broken in (b"version=2\n", data.replace(b"node.id=3", b"node.id=x"), data.replace(b"cluster.id", b"cluster")):
        with pytest.raises(MalformedBytes):
            decode_meta(broken, "meta")


@pytest.mark.parametrize("base_offset", [0, 184, 479])
def test_fm30_the_indexes_of_a_real_log_are_those_that_kafka_made_of_it(real: Path, base_offset: int) -> None:
    files = MemoryFileSystem()
    segment = Segment.create(FileHandles(files), ".", base_offset, 0)
    at = 0
    for data in read_batches((real / file_name(base_offset, LOG_SUFFIX)).read_bytes()):
        segment.index_batch(at, read_header(data.data), 4096)
        at += len(data.data)
    segment.close_indexes()
    index, time_index = KAFKAS_INDEXES[base_offset]
    assert read_whole(files, segment.offsets.file.path).hex() == index
    assert read_whole(files, segment.times.file.path).hex() == time_index


def test_fm30_a_snapshot_of_no_producers_is_kafkas() -> None:
    assert encode_snapshot([]).hex() == "000148674bc700000000"


@given(st.lists(st.builds(
    ProducerEntry, IDS, st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1), IDS, st.integers(0, 2**31 - 1), IDS,
    st.integers(-1, 2**31 - 1), IDS,
)))  # fmt: skip
def test_db75_a_snapshot_is_read_as_it_was_written_and_no_changed_bit_goes_unseen(entries: list[ProducerEntry]) -> None:
    data = encode_snapshot(entries)
    assert decode_snapshot(data, "snapshot") == entries
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 0x10
        with pytest.raises(MalformedBytes, match="snapshot"):
            decode_snapshot(bytes(changed), "snapshot")


def test_a_snapshot_that_is_cut_off_is_refused() -> None:
    data = encode_snapshot([ProducerEntry(1, 0, 0, 0, 0, 0, -1, -1)])
    for size in range(len(data)):
        with pytest.raises(MalformedBytes):
            decode_snapshot(data[:size], "snapshot")


def test_db73_aborted_transactions_are_34_bytes_each() -> None:
    aborted = AbortedTransaction(producer_id=901, first_offset=23, last_offset=27, last_stable_offset=25)
    data = aborted.encode()
    assert data.hex() == "0000" + "0000000000000385" + "0000000000000017" + "000000000000001b" + "0000000000000019"
    assert decode_aborted(data * 2 + data[:5], "file") == [aborted, aborted]
    with pytest.raises(MalformedBytes, match="version 1"):
        decode_aborted(b"\0\1" + data[2:], "file")
