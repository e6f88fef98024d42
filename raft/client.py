"""A program's handle on the node that it runs: listeners, appends, the leader (Kafka's RaftClient)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType

import structlog

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.config import FETCH_VERSIONS
from raft.core.events import FetchVersionAllowed, StateDigestReported, StateMachineFenced
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch, ReplicaKey, StateDigest
from raft.delivery import AnyListener
from raft.node import Node
from raft.rpc.codec import STATE_DIGEST_BYTES
from raft.shell.appends import OnSettled
from raft.storage.batch import encode_body
from snapshot.writer import SnapshotWriter

logger = structlog.get_logger(__name__)


def resolving(committed: asyncio.Future[None]) -> OnSettled:
    """An `on_settled` for a program that waits for its prepared append: completes or fails `committed`.

    `client.prepare_append(epoch, body, count, resolving(committed))`, `client.schedule_appends()`, `await committed`.
    """

    def settle(error: ApiError | None) -> None:
        if committed.done():
            return  # the caller no longer waits
        if error is None:
            committed.set_result(None)
        else:
            committed.set_exception(error)
            committed.exception()  # the caller may be gone: asyncio must not log that

    return settle


class ClientSnapshotWriter:
    """A snapshot that a program is writing: `append`, `freeze`, `close`. Without `freeze` it is discarded (SN-05)."""

    def __init__(self, writer: SnapshotWriter, on_frozen: Callable[[], None]) -> None:
        self._writer = writer
        self._on_frozen = on_frozen

    def append(self, records: Sequence[bytes]) -> None:
        """Add one batch of the state machine's records. After a StorageError, such as OutOfSpace, close it."""
        self._writer.append(encode_body(records), len(records))

    def freeze(self) -> None:
        """Make the snapshot durable; other nodes may then fetch it, and new listeners load it."""
        self._writer.freeze()
        self._on_frozen()

    def close(self) -> None:
        """Close the file; closing twice changes nothing."""
        self._writer.close()

    def __enter__(self) -> ClientSnapshotWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RaftClient:
    """The interface to one node. Call it only on the node's event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self._node.identity.cluster_id

    @property
    def node_key(self) -> ReplicaKey:
        """This node's id and directory id."""
        return self._node.identity.key

    @property
    def voter_ids(self) -> frozenset[NodeId]:
        """The ids of the voters."""
        return frozenset(voter.key.node_id for voter in self._node.identity.voters.voters())

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader, as far as this node knows."""
        return self._node.replica.leader_and_epoch

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """The address at which the leader listens; None while it is not known."""
        return self._node.leader_endpoint_for_clients

    @property
    def high_watermark(self) -> Offset:
        """The offset below which everything is committed; -1 while this node does not know it."""
        return self._node.replica.high_watermark

    @property
    def log_start_offset(self) -> Offset:
        """The first offset in this node's log."""
        return self._node.log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The end of this node's log, committed or not."""
        return self._node.replica.log_end_offset

    @property
    def next_append_offset(self) -> Offset:
        """The base offset of the next prepared append, if this node leads."""
        return self._node.replica.next_append_offset

    def register(self, listener: AnyListener, *, start_offset: Offset | None = None) -> None:
        """Call `listener` with every committed batch from the one that holds `start_offset` (LI-06).

        A listener that keeps its position gives the offset after the last record that it has applied. A listener
        without an offset is new: it starts with the newest snapshot, if one exists and the listener can load it, else
        with the log's first record (SN-60, SN-61). A second registration is logged and changes nothing. Raises
        ValueError for a negative offset.
        """
        if start_offset is not None and start_offset < 0:
            raise ValueError(f"start_offset is {start_offset}; offsets start at 0")
        if not self._node.delivery.register(listener, start_offset):
            logger.warning("listener is already registered", listener=repr(listener))

    def unregister(self, listener: AnyListener) -> None:
        """Stop calling `listener`. If it is registered again, it starts from the offset given then (LI-06)."""
        if not self._node.delivery.unregister(listener):
            logger.warning("listener is not registered", listener=repr(listener))

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest snapshot that this node has (LI-29)."""
        return self._node.latest_snapshot_id

    def create_snapshot(
        self, snapshot_id: OffsetAndEpoch, last_contained_log_timestamp_ms: int
    ) -> ClientSnapshotWriter | None:
        """Begin a snapshot of a state machine that has applied everything below `snapshot_id.offset` (KIP-630, SN-07).

        The id's epoch is that of the last record applied, and the timestamp is that of its batch. Append the state
        machine's records, freeze the writer, close it. Returns None if the snapshot is not needed: the log starts above
        it, or it exists. Raises ValueError for an id that is not committed, not in the log, or not at the end of a
        batch; StorageError, such as OutOfSpace.
        """
        writer = self._node.create_snapshot(snapshot_id, last_contained_log_timestamp_ms)
        return None if writer is None else ClientSnapshotWriter(writer, self._node.snapshot_taken)

    async def append(self, records: Sequence[bytes]) -> Offset:
        """Append `records`, all or none, and return the last one's offset when they are committed.

        Raises ValueError for no records, and ApiError: NOT_LEADER_OR_FOLLOWER if this node does not lead or stops
        leading first (the records may then still be committed), RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR when
        the disk is full, THROTTLING_QUOTA_EXCEEDED when too much is pending, POLICY_VIOLATION where only the node's own
        controller appends (`HostedState.is_sole_writer`); then nothing is written.
        """
        if not self._node.takes_records:
            message = "only the controller appends to this log, which checks that each record can be applied: ask it"
            raise ApiError(ErrorCode.POLICY_VIOLATION, message)
        body = encode_body(records)
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        epoch = self.leader_and_epoch.epoch
        base_offset = self.prepare_append(epoch, body, len(records), resolving(committed))
        self.schedule_appends()
        await committed
        return Offset(base_offset + len(records) - 1)

    def prepare_append(self, epoch: Epoch, body: bytes, record_count: int, on_settled: OnSettled) -> Offset:
        """Prepare an append of `record_count` records, an encoded `kraftpb.v1.BatchBody`; returns its base offset.

        Nothing is written before `schedule_appends` (LI-20, LI-21). `on_settled` is called once, never within this
        call: with None when the append is committed, or with NOT_LEADER_OR_FOLLOWER when leadership is lost first; the
        next leader may still commit it then. It must not raise, and must not call back into this client. `resolving`
        makes one that ends a future. Raises ValueError for no records or for an epoch above the present one, ApiError
        as `append` does; then `on_settled` is never called.
        """
        if record_count < 1:
            raise ValueError(f"an append of {record_count} records; give at least one")
        if epoch > self.leader_and_epoch.epoch:
            raise ValueError(f"epoch {epoch} is above the current one, {self.leader_and_epoch.epoch}")
        return self._node.prepare_append(epoch, body, record_count, on_settled)

    def schedule_appends(self) -> None:
        """Release every prepared append for writing (LI-20)."""
        self._node.schedule_appends()

    def report_state_digest(self, digest: StateDigest) -> None:
        """Report a digest of this node's state machine to the quorum; all nodes must report at the same offsets.

        A node whose digest differs from the majority's is fenced: see `Node`. Raises ValueError for a negative offset
        or a digest of another length: the leader would refuse every fetch.
        """
        if digest.end_offset < 0 or len(digest.digest) != STATE_DIGEST_BYTES:
            raise ValueError(
                f"invalid state digest: it must have {STATE_DIGEST_BYTES} bytes and an offset of 0 or more,"
                f" not {len(digest.digest)} bytes at {digest.end_offset}"
            )
        self._node.step(StateDigestReported(digest))

    def state_machine_fenced(self) -> None:
        """Report to the quorum that this node's state machine has stopped: its data is not what it applied.

        The node is no longer elected, and asks to rebuild its state machine: see `HostedState.on_may_rebuild`.
        """
        self._node.step(StateMachineFenced())

    def allow_fetch_version(self, version: int) -> None:
        """Set the highest version of Fetch that this node sends: the version that the cluster has finalized (PK-05).

        It applies from the next fetch on. Raises ValueError for an unknown version.
        """
        if version not in FETCH_VERSIONS:
            raise ValueError(f"Fetch version {version} is unknown; known are {FETCH_VERSIONS}")
        self._node.step(FetchVersionAllowed(version))

    def fatal(self, error: BaseException) -> None:
        """End the process, or call the node's own handler: the state in memory cannot be trusted.

        For code in which a raised `error` would only be logged, such as an RPC handler or a timer.
        """
        self._node.fatal(error)

    def resign(self, epoch: Epoch) -> None:
        """Stop leading `epoch` (RF-102).

        An older epoch is ignored. Raises ValueError for a negative epoch, for one above the current epoch, and for the
        current epoch if this node does not lead it.
        """
        present = self.leader_and_epoch
        if epoch < 0 or epoch > present.epoch:
            raise ValueError(f"cannot resign from epoch {epoch}; the current one is {present.epoch}")
        if epoch == present.epoch:
            if not self._node.replica.is_leader:
                raise ValueError(
                    f"node {self.node_key.node_id} does not lead epoch {epoch}; leader: {present.leader_id}"
                )
            self._node.resign(epoch)
