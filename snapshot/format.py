"""The bytes of a snapshot (docs/formats/snapshot.md): batches as in the log, offsets from 0, between header and footer.

- The first batch is a control batch with the header, the last one a control batch with the footer (SN-04); those
  between them are data batches with the state machine's records. Every batch has the epoch of the snapshot's id, and
  the header's timestamp.
- The footer holds a SHA-256 over the snapshot's name and every byte before the footer. So a file that lacks an end, a
  batch or a bit, or has another's name, is told from a whole one, and two nodes can compare what they made.
- Nothing in it depends on who wrote it or when: two nodes' snapshots with the same id are the same bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from kraftpb.v1 import batch_pb2
from raft.core.errors import CorruptSnapshot
from raft.core.types import Batch, Offset, OffsetAndEpoch
from raft.storage.batch import batch_body, encode_batch
from snapshot.names import snapshot_name

VERSION: Final = 0
"""Of header and footer; a reader refuses any other."""

DIGEST_BYTES: Final = 32

BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""No batch of a snapshot is larger, so that a damaged length does not fill the memory."""


class SnapshotHeader(NamedTuple):
    """What a snapshot says of itself."""

    last_contained_log_timestamp_ms: int
    """When the leader appended the last batch below the snapshot's end, milliseconds since 1970."""
    cluster_id: str


def digest_prefix(snapshot_id: OffsetAndEpoch) -> bytes:
    """What is digested before the file's first byte: its name. Nothing within says where in the log it ends."""
    return snapshot_name(snapshot_id).encode()


def header_batch(snapshot_id: OffsetAndEpoch, header: SnapshotHeader) -> Batch:
    """The first batch."""
    record = batch_pb2.ControlRecord(
        snapshot_header=batch_pb2.SnapshotHeader(
            version=VERSION,
            last_contained_log_timestamp=header.last_contained_log_timestamp_ms,
            cluster_id=header.cluster_id,
        )
    )
    return _control_batch(Offset(0), snapshot_id, record, header.last_contained_log_timestamp_ms)


def footer_batch(base_offset: Offset, snapshot_id: OffsetAndEpoch, header: SnapshotHeader, digest: bytes) -> Batch:
    """The last batch; `digest` is over the `digest_prefix` and everything before this batch."""
    record = batch_pb2.ControlRecord(snapshot_footer=batch_pb2.SnapshotFooter(version=VERSION, digest=digest))
    return _control_batch(base_offset, snapshot_id, record, header.last_contained_log_timestamp_ms)


def decode_header(batch: Batch) -> SnapshotHeader:
    """What the first batch says. Raises CorruptSnapshot if it is no header, or of a version that is not known."""
    record = _control_record(batch)
    if record is None or not record.HasField("snapshot_header"):
        raise CorruptSnapshot("it does not begin with a header")
    header = record.snapshot_header
    if header.version != VERSION:
        raise CorruptSnapshot(f"its version is {header.version}; this program knows version {VERSION}")
    if header.last_contained_log_timestamp < 0:
        raise CorruptSnapshot(f"its header has the timestamp {header.last_contained_log_timestamp}")
    return SnapshotHeader(header.last_contained_log_timestamp, header.cluster_id)


def decode_footer(batch: Batch) -> bytes:
    """The digest that the last batch holds. Raises CorruptSnapshot if it is no footer."""
    record = _control_record(batch)
    if record is None or not record.HasField("snapshot_footer"):
        raise CorruptSnapshot(f"the control batch at offset {batch.base_offset} is no footer")
    footer = record.snapshot_footer
    if footer.version != VERSION or len(footer.digest) != DIGEST_BYTES:
        raise CorruptSnapshot(f"its footer, of version {footer.version}, has a digest of {len(footer.digest)} bytes")
    return footer.digest


def _control_batch(
    base_offset: Offset, snapshot_id: OffsetAndEpoch, record: batch_pb2.ControlRecord, timestamp_ms: int
) -> Batch:
    body = batch_pb2.ControlBody(records=[record]).SerializeToString(deterministic=True)
    return encode_batch(base_offset, snapshot_id.epoch, body, 1, timestamp_ms, is_control=True)


def _control_record(batch: Batch) -> batch_pb2.ControlRecord | None:
    if not batch.is_control or batch.record_count != 1:
        return None
    try:
        records = batch_pb2.ControlBody.FromString(batch_body(batch)).records
    except DecodeError:
        return None
    return records[0] if len(records) == 1 else None
