"""The bytes of a snapshot (docs/formats/snapshot.md): batches as in the log, offsets from 0, between header and footer.

- The first batch is a control batch with the header, the last one a control batch with the footer (SN-04); those
  between them are data batches with the state machine's records. Every batch has the epoch of the snapshot's id, and
  the header's timestamp.
- After the header there may be one more control batch, with the voters and their directory ids (KIP-853): the bootstrap
  checkpoint has one.
- The footer holds a SHA-256 over the snapshot's name and every byte before the footer. So a file is detected that lacks
  its end or a batch, has a changed bit or another snapshot's name, and the snapshots of two nodes can be compared.
- Nothing in it depends on its writer or the time: two nodes' snapshots with the same id are the same bytes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from kraftbase.checks import check
from kraftbase.errors import ApiError, CorruptSnapshot
from kraftbase.types import Epoch, Offset
from kraftpb.v1 import batch_pb2
from raft.core.types import Batch, OffsetAndEpoch
from raft.core.voters import VoterSet
from raft.storage.batch import HEADER, HEADER_BYTES, batch_body, decode_batch, encode_batch
from raft.storage.control import decode_voters, encode_voters
from snapshot.names import snapshot_name

VERSION: Final = 0
"""The version of header and footer; a reader refuses any other."""

DIGEST_BYTES: Final = 32

BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest batch of a snapshot, so that a damaged length does not fill the memory."""


class SnapshotHeader(NamedTuple):
    """The header of a snapshot."""

    last_contained_log_timestamp_ms: int
    """When the leader appended the last batch below the snapshot's end, milliseconds since 1970."""
    cluster_id: str


def digest_prefix(snapshot_id: OffsetAndEpoch) -> bytes:
    """The bytes digested before the file's first byte: its name. The content does not show where in the log it ends."""
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


def voters_batch(snapshot_id: OffsetAndEpoch, header: SnapshotHeader, voters: VoterSet) -> Batch:
    """The second batch of a snapshot with voters. All of them must have directory ids."""
    body, record_count = encode_voters(voters)
    timestamp_ms = header.last_contained_log_timestamp_ms
    return encode_batch(Offset(1), batch_epoch(snapshot_id), body, record_count, timestamp_ms, is_control=True)


def batch_epoch(snapshot_id: OffsetAndEpoch) -> Epoch:
    """The epoch of every batch: the snapshot's. No batch has epoch 0, so those of the bootstrap checkpoint have 1."""
    return max(snapshot_id.epoch, Epoch(1))


def footer_batch(base_offset: Offset, snapshot_id: OffsetAndEpoch, header: SnapshotHeader, digest: bytes) -> Batch:
    """The last batch; `digest` is over the `digest_prefix` and everything before this batch."""
    record = batch_pb2.ControlRecord(snapshot_footer=batch_pb2.SnapshotFooter(version=VERSION, digest=digest))
    return _control_batch(base_offset, snapshot_id, record, header.last_contained_log_timestamp_ms)


def decode_header(batch: Batch) -> SnapshotHeader:
    """The header in the first batch. Raises CorruptSnapshot if the batch is no header, or of an unknown version."""
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


class SnapshotChecks:
    """Checks a snapshot's batches, given in order, from a file or from another node (SN-04).

    Do not trust batches before `finish` has returned. After an error, no further batch is accepted.
    """

    def __init__(self, snapshot_id: OffsetAndEpoch, described: str, cluster_id: str | None = None) -> None:
        """`described` names the snapshot in errors; with a `cluster_id`, a snapshot of another cluster is refused."""
        self._snapshot_id = snapshot_id
        self._described = described
        self._cluster_id = cluster_id
        self._running = sha256(digest_prefix(snapshot_id))
        self._end_offset = Offset(0)
        self.position = 0
        """Where in the snapshot the next batch begins, in bytes."""
        self.header: SnapshotHeader | None = None
        """Known from the first batch on."""
        self.voters: VoterSet | None = None
        """Known from the second batch on, if that has the voters."""
        self.digest: bytes | None = None
        """The digest in the footer; None until a footer with the right digest was read."""

    def next_batch_bytes(self, start: bytes) -> int | None:
        """How many bytes to pass to `take`, read from the first `HEADER_BYTES` of them; None if `start` has fewer.

        Raises CorruptSnapshot if they are more than any batch has, before the caller waits or allocates room for them.
        """
        if len(start) < HEADER_BYTES:
            return None
        length: int = HEADER.unpack_from(start)[1]
        if length > BATCH_BYTES_MAX:
            raise self._corrupt(f"the batch at byte {self.position} has a length of {length} bytes in its header")
        return max(HEADER_BYTES, length)  # `take` refuses less than a header

    def take(self, data: bytes) -> Batch:
        """Check the next batch; a control batch must be header, voters or footer. Raises CorruptSnapshot.

        Costs a CRC and a SHA-256 of its bytes.
        """
        check(self.digest is None, "no batch is taken behind a footer", snapshot=self._described)
        batch = self._decode(data)
        try:
            if self.header is None:
                self.header = self._checked_header(batch)
            elif batch.base_offset == 1 and (voters := decode_voters(batch)) is not None:
                self.voters = voters
            elif batch.is_control:
                self.digest = self._checked_footer(batch)
        except (CorruptSnapshot, ApiError) as error:
            raise self._corrupt(str(error)) from None
        self._running.update(data)
        self.position += len(data)
        self._end_offset = batch.end_offset
        return batch

    def finish(self, size_bytes: int) -> bytes:
        """The digest of a snapshot that has ended, with `size_bytes` in total.

        Raises CorruptSnapshot if it lacks its footer or has bytes after it.
        """
        if self.digest is None:
            raise self._corrupt(f"it ends at byte {size_bytes} without a footer")
        if size_bytes != self.position:
            raise self._corrupt(f"{size_bytes - self.position} bytes follow its footer")
        return self.digest

    def _decode(self, data: bytes) -> Batch:
        try:
            batch = decode_batch(data)
        except ApiError as error:
            reason = error.args[0].partition(" is refused: ")[2]  # the reason starts with a position in these bytes
            raise self._corrupt(f"at byte {self.position} there is no batch: {reason}") from None
        epoch = batch_epoch(self._snapshot_id)
        if batch.base_offset != self._end_offset or batch.epoch != epoch:
            raise self._corrupt(
                f"the batch at byte {self.position} has offset {batch.base_offset} and epoch {batch.epoch}, not"
                f" {self._end_offset} and {epoch}"
            )
        return batch

    def _checked_header(self, batch: Batch) -> SnapshotHeader:
        header = decode_header(batch)
        if self._cluster_id is not None and header.cluster_id != self._cluster_id:
            raise CorruptSnapshot(f"it is of cluster {header.cluster_id}, not of {self._cluster_id}")
        return header

    def _checked_footer(self, batch: Batch) -> bytes:
        digest = decode_footer(batch)
        if digest != self._running.digest():
            raise CorruptSnapshot("its digest is not that of its name and content")
        return digest

    def _corrupt(self, reason: str) -> CorruptSnapshot:
        return CorruptSnapshot(f"{self._described} is damaged: {reason}")


def _control_batch(
    base_offset: Offset, snapshot_id: OffsetAndEpoch, record: batch_pb2.ControlRecord, timestamp_ms: int
) -> Batch:
    body = batch_pb2.ControlBody(records=[record]).SerializeToString(deterministic=True)
    return encode_batch(base_offset, batch_epoch(snapshot_id), body, 1, timestamp_ms, is_control=True)


def _control_record(batch: Batch) -> batch_pb2.ControlRecord | None:
    if not batch.is_control or batch.record_count != 1:
        return None
    try:
        records = batch_pb2.ControlBody.FromString(batch_body(batch)).records
    except DecodeError:
        return None
    return records[0] if len(records) == 1 else None
