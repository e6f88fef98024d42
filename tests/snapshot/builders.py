"""Snapshots, whole and damaged, for the tests of snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from kraftbase.checksum import crc32c
from kraftbase.errors import CorruptSnapshot
from kraftbase.files.files import FileSystem, join, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, Offset
from kraftpb.v1 import batch_pb2
from raft.core.types import Batch, OffsetAndEpoch
from raft.storage.batch import CONTROL_ATTRIBUTE, HEADER, HEADER_BYTES, MAGIC, encode_batch, encode_body
from snapshot.format import SnapshotHeader
from snapshot.names import snapshot_name
from snapshot.reader import SnapshotReader, SnapshotSummary
from snapshot.store import SnapshotStore

DIRECTORY = "data/snapshots"
TIMESTAMP_MS = 1_700_000_000_000
HEADER_OF_TESTS = SnapshotHeader(TIMESTAMP_MS, "MkU3OEVBNTcwNTJENDM2Qg")
CONTENT: tuple[tuple[bytes, ...], ...] = ((b"abc", b"de"), (b"f" * 20,), (b"g", b"", b"h"))
"""The records of a small snapshot's batches."""


def an_id(offset: int = 500, epoch: int = 3) -> OffsetAndEpoch:
    """A snapshot's id, the offset first, as in its name."""
    return OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(offset))


def open_store(files: FileSystem, token: str = "c0ffee") -> SnapshotStore:
    """The store that the tests use."""
    return SnapshotStore(files, DIRECTORY, token=lambda: token)


def overwrite(path: Path, data: bytes) -> None:
    """Change a file as a bad disk does, whatever its mode: a snapshot is read-only."""
    path.chmod(0o600)
    path.write_bytes(data)


def write_snapshot(
    store: SnapshotStore, snapshot_id: OffsetAndEpoch, content: Sequence[Sequence[bytes]] = CONTENT
) -> str:
    """Make a whole snapshot; returns its path."""
    writer = store.create(snapshot_id, HEADER_OF_TESTS)
    assert writer is not None
    with writer:
        for records in content:
            writer.append(encode_body(records), len(records))
        writer.freeze()
    return writer.path


def snapshot_bytes(snapshot_id: OffsetAndEpoch, content: Sequence[Sequence[bytes]] = CONTENT) -> bytes:
    """The bytes of a snapshot's file."""
    files = MemoryFileSystem()
    return read_whole(files, write_snapshot(open_store(files), snapshot_id, content))


def split(data: bytes) -> list[bytes]:
    """The batches of a snapshot: the header, the data batches, the footer."""
    batches = []
    while data:
        length = HEADER.unpack_from(data)[1]
        batches.append(data[:length])
        data = data[length:]
    return batches


def put(files: FileSystem, data: bytes, snapshot_id: OffsetAndEpoch | None = None) -> str:
    """Write a file with these bytes under the name of a snapshot, replacing an existing one; returns its path."""
    path = join(DIRECTORY, snapshot_name(snapshot_id or an_id()))
    if files.exists(path):
        files.remove(path)
    file = files.open(path, create=True)
    file.write_at(0, data)
    file.close()
    return path


def verify(files: FileSystem, path: str) -> SnapshotSummary:
    """Open and verify."""
    with SnapshotReader(files, path) as reader:
        return reader.verify()


def read_batches(files: FileSystem, path: str) -> list[Batch]:
    """Open and read everything."""
    with SnapshotReader(files, path) as reader:
        return list(reader.batches())


def control(base_offset: int, *records: batch_pb2.ControlRecord, epoch: int = 3, record_count: int = 1) -> bytes:
    """A control batch that fits its CRC."""
    body = batch_pb2.ControlBody(records=records).SerializeToString()
    return encode_batch(Offset(base_offset), Epoch(epoch), body, record_count, TIMESTAMP_MS, is_control=True).data


def data_batch(base_offset: int, records: Sequence[bytes], epoch: int = 3) -> bytes:
    """A data batch that fits its CRC."""
    return encode_batch(Offset(base_offset), Epoch(epoch), encode_body(records), len(records), TIMESTAMP_MS).data


def any_batch(
    body: bytes,
    *,
    length: int | None = None,
    magic: int = MAGIC,
    attributes: int = CONTROL_ATTRIBUTE,
    base_offset: int = 0,
    epoch: int = 3,
    delta: int = 0,
    count: int = 1,
) -> bytes:
    """A batch that fits its CRC and may be wrong in everything else."""
    true_length = HEADER_BYTES + len(body)
    fields = (true_length if length is None else length, magic, attributes, base_offset, epoch, delta)
    covered = HEADER.pack(0, *fields, TIMESTAMP_MS, TIMESTAMP_MS, count)[4:] + body
    return crc32c(covered).to_bytes(4, "big") + covered


def refusal(disk: MemoryFileSystem, data: bytes, snapshot_id: OffsetAndEpoch | None = None) -> str:
    """Why a file with these bytes is refused, whichever way it is read."""
    path = put(disk, data, snapshot_id)
    with pytest.raises(CorruptSnapshot) as by_verify:
        verify(disk, path)
    with pytest.raises(CorruptSnapshot) as by_reading:
        read_batches(disk, path)
    assert str(by_verify.value) == str(by_reading.value)
    assert path in str(by_verify.value)
    return str(by_verify.value).removeprefix(f"the snapshot {path} is damaged: ")


def sealed(before_footer: bytes, footer_offset: int, snapshot_id: OffsetAndEpoch | None = None) -> bytes:
    """With a footer whose digest is right."""
    snapshot_id = snapshot_id or an_id()
    digest = sha256(snapshot_name(snapshot_id).encode() + before_footer).digest()
    footer = batch_pb2.ControlRecord(snapshot_footer=batch_pb2.SnapshotFooter(digest=digest))
    return before_footer + control(footer_offset, footer, epoch=snapshot_id.epoch)
