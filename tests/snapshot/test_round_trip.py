"""A reader reads what a writer wrote, on every file system; the same input gives the same bytes (SN-04, SN-06)."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftbase.errors import StorageError
from kraftbase.files.files import FileSystem, join, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftpb.v1 import batch_pb2
from raft.core.types import OffsetAndEpoch
from raft.storage.batch import batch_body, batch_timestamp, decode_batches, records
from snapshot.format import SnapshotHeader
from snapshot.names import snapshot_name
from snapshot.reader import SnapshotReader
from tests.snapshot.builders import (
    CONTENT,
    DIRECTORY,
    HEADER_OF_TESTS,
    TIMESTAMP_MS,
    an_id,
    open_store,
    snapshot_bytes,
    split,
    write_snapshot,
)


@pytest.mark.parametrize("content", [(), CONTENT], ids=["without records", "with records"])
def test_what_is_written_is_read_back(files: FileSystem, content: tuple[tuple[bytes, ...], ...]) -> None:
    store = open_store(files)
    path = write_snapshot(store, an_id(), content)
    assert path == join(DIRECTORY, snapshot_name(an_id()))
    with store.open(an_id()) as reader:
        assert (reader.path, reader.snapshot_id, reader.header) == (path, an_id(), HEADER_OF_TESTS)
        assert [tuple(records(batch)) for batch in reader.batches()] == list(content)
        assert [tuple(records(batch)) for batch in reader.batches()] == list(content), "it is read any number of times"
        summary = reader.verify()
    data = read_whole(files, path)
    before_footer = b"".join(split(data)[:-1])
    assert summary.snapshot_id == an_id()
    assert summary.header == HEADER_OF_TESTS
    assert summary.size_bytes == reader.size_bytes == len(data)
    assert (summary.batch_count, summary.record_count) == (len(content), sum(map(len, content)))
    assert summary.digest == sha256(snapshot_name(an_id()).encode() + before_footer).digest()


@given(
    st.integers(0, 2**63 - 1),
    st.integers(1, 2**31 - 1),
    st.builds(SnapshotHeader, st.integers(0, 2**63 - 1), st.text(max_size=30)),
    st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=5), max_size=6),
)
def test_whatever_is_written_is_read_back(
    end_offset: int, epoch: int, header: SnapshotHeader, content: list[list[bytes]]
) -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    snapshot_id = an_id(end_offset, epoch)
    with store.create(snapshot_id, header) as writer:  # type: ignore[union-attr]
        for batch in content:
            writer.append(batch_pb2.BatchBody(records=batch).SerializeToString(), len(batch))
        writer.freeze()
    with store.open(snapshot_id) as reader:
        assert reader.header == header
        assert reader.verify().record_count == sum(map(len, content))
        assert [records(batch) for batch in reader.batches()] == content


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1000), st.integers(0, 1000))
def test_read_at_gives_the_bytes_of_the_file(memory_files: MemoryFileSystem, position: int, byte_count: int) -> None:
    store = open_store(memory_files)
    if store.latest() is None:
        write_snapshot(store, an_id())
    with store.open(an_id()) as reader:
        assert reader.read_at(position, byte_count) == snapshot_bytes(an_id())[position : position + byte_count]


def test_sn04_the_header_is_first_and_the_footer_last() -> None:
    first, *data_batches, last = decode_batches(snapshot_bytes(an_id()))
    assert first.is_control and last.is_control and not any(batch.is_control for batch in data_batches)
    header = batch_pb2.ControlBody.FromString(batch_body(first)).records
    footer = batch_pb2.ControlBody.FromString(batch_body(last)).records
    assert [record.WhichOneof("record") for record in header] == ["snapshot_header"]
    assert [record.WhichOneof("record") for record in footer] == ["snapshot_footer"]
    assert header[0].snapshot_header.last_contained_log_timestamp == TIMESTAMP_MS
    assert header[0].snapshot_header.cluster_id == HEADER_OF_TESTS.cluster_id


def test_sn04_offsets_count_from_zero_and_every_batch_has_the_epoch_and_the_timestamp() -> None:
    batches = decode_batches(snapshot_bytes(an_id(500, 7)))
    assert [batch.base_offset for batch in batches] == [0, 1, 3, 4, 7]
    assert {batch.epoch for batch in batches} == {7}
    assert {batch_timestamp(batch) for batch in batches} == {TIMESTAMP_MS}


def test_the_same_input_gives_the_same_bytes_whoever_writes_it(files: FileSystem) -> None:
    path = write_snapshot(open_store(files, token="a"), an_id())
    elsewhere = MemoryFileSystem()
    other_path = write_snapshot(open_store(elsewhere, token="0123456789abcdef"), an_id())
    assert read_whole(files, path) == read_whole(elsewhere, other_path)


@pytest.mark.parametrize("other_id", [an_id(501, 3), an_id(500, 4)], ids=["end offset", "epoch"])
def test_another_id_gives_another_digest(other_id: OffsetAndEpoch) -> None:
    assert snapshot_bytes(an_id())[-32:] != snapshot_bytes(other_id)[-32:]


def test_two_at_work_on_the_same_snapshot_do_not_disturb_each_other(files: FileSystem) -> None:
    one = open_store(files, token="1").create(an_id(), HEADER_OF_TESTS)
    other = open_store(files, token="2").create(an_id(), HEADER_OF_TESTS)
    assert one is not None and other is not None
    with one, other:
        for writer in (one, other):
            writer.append(batch_pb2.BatchBody(records=[b"same"]).SerializeToString(), 1)
        one.freeze()
        first = read_whole(files, one.path)
        other.freeze()
    assert read_whole(files, other.path) == first
    assert files.list_directory(DIRECTORY) == [snapshot_name(an_id())]


def test_a_snapshot_that_is_not_there_is_refused_by_its_path(files: FileSystem) -> None:
    store = open_store(files)
    with pytest.raises(StorageError, match=store.path_of(an_id())):
        store.open(an_id())


def test_sn02_a_file_with_another_name_is_not_read(files: FileSystem) -> None:
    path = write_snapshot(open_store(files), an_id())
    files.rename(path, join(DIRECTORY, "copy"))
    with pytest.raises(StorageError, match="data/snapshots/copy is not named like a snapshot"):
        SnapshotReader(files, join(DIRECTORY, "copy"))
