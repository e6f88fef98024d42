"""What a program uses of the node that it runs: listeners, appends, who leads (Kafka's RaftClient)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

import structlog

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from raft.core.config import FETCH_VERSIONS
from raft.core.events import FetchVersionAllowed, StateDigestReported, StateMachineFenced
from raft.core.types import Epoch, LeaderAndEpoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey, StateDigest
from raft.listener import Listener
from raft.node import Node
from raft.rpc.codec import STATE_DIGEST_BYTES
from raft.storage.batch import encode_body
from snapshot.writer import SnapshotWriter

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedAppend:
    """An append whose offsets are known and that is not written yet (LI-20)."""

    base_offset: Offset
    end_offset: Offset
    """The offset after its last record."""
    committed: asyncio.Future[None]
    """Done when it is committed; ApiError if it was refused, or NOT_LEADER_OR_FOLLOWER if leadership was lost
    before: then it may still be committed by the next leader."""


class ClientSnapshotWriter:
    """A snapshot that a program is writing: `append`, `freeze`, `close`; closed without a freeze it is none (SN-05)."""

    def __init__(self, writer: SnapshotWriter, on_frozen: Callable[[], None]) -> None:
        self._writer = writer
        self._on_frozen = on_frozen

    def append(self, records: Sequence[bytes]) -> None:
        """Add one batch of the state machine's records. Raises StorageError, such as OutOfSpace: then close it."""
        self._writer.append(encode_body(records), len(records))

    def freeze(self) -> None:
        """Make it a snapshot, durably: other nodes may fetch it and new listeners load it from now on."""
        self._writer.freeze()
        self._on_frozen()

    def close(self) -> None:
        """Let go of the file; closing twice changes nothing."""
        self._writer.close()

    def __enter__(self) -> ClientSnapshotWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RaftClient:
    """A handle on one node. All of it must be used on the node's event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self._node.identity.cluster_id

    @property
    def node_key(self) -> ReplicaKey:
        """Who this node is."""
        return self._node.identity.key

    @property
    def voter_ids(self) -> frozenset[NodeId]:
        """Who votes, and may lead."""
        return frozenset(voter.key.node_id for voter in self._node.identity.voters.voters())

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader as this node knows it."""
        return self._node.replica.leader_and_epoch

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader listens, None while it is not known."""
        return self._node.leader_endpoint_for_clients

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed; -1 while this node does not know."""
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

    def register(self, listener: Listener, *, start_offset: Offset | None = None) -> None:
        """Feed `listener` every committed batch from the one that holds `start_offset` (LI-06).

        A listener that remembers how far it got names the offset after the last record that it took. One that names
        none is new: it begins with the newest snapshot, if there is one and it can load it, else with the log's first
        record (SN-60, SN-61). Registering twice is logged and changes nothing; raises ValueError for a negative offset.
        """
        if start_offset is not None and start_offset < 0:
            raise ValueError(f"start_offset is {start_offset}; offsets start at 0")
        if not self._node.delivery.register(listener, start_offset):
            logger.warning("the listener is registered already", listener=repr(listener))

    def unregister(self, listener: Listener) -> None:
        """Stop feeding `listener`. Registered again, it starts from the offset it names then (LI-06)."""
        if not self._node.delivery.unregister(listener):
            logger.warning("the listener is not registered", listener=repr(listener))

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest snapshot that this node has (LI-29)."""
        return self._node.latest_snapshot_id

    def create_snapshot(
        self, snapshot_id: OffsetAndEpoch, last_contained_log_timestamp_ms: int
    ) -> ClientSnapshotWriter | None:
        """Begin a snapshot of a state machine that has taken everything below `snapshot_id.offset` (KIP-630, SN-07).

        Its epoch is that of the last record taken, and the timestamp that of its batch. Append what the state machine
        holds, freeze, close. None if nobody needs it: the log starts further on, or there is one. Raises ValueError
        for an id that is not committed, not in the log, or not where a batch ends; StorageError, such as OutOfSpace.
        """
        writer = self._node.create_snapshot(snapshot_id, last_contained_log_timestamp_ms)
        return None if writer is None else ClientSnapshotWriter(writer, self._node.snapshot_taken)

    async def append(self, records: Sequence[bytes]) -> Offset:
        """Append `records`, all or none, and return the last one's offset when they are committed.

        Raises ValueError for no records, ApiError NOT_LEADER_OR_FOLLOWER if this node does not lead or stops
        leading before (the records may then still be committed), RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR when
        the disk is full, THROTTLING_QUOTA_EXCEEDED when too much is pending; POLICY_VIOLATION, and nothing is written,
        where only the node's own controller appends (`HostedState.is_sole_writer`).
        """
        if not self._node.takes_records:
            message = "only the controller appends to this log, which looks whether a record can be applied: ask it"
            raise ApiError(ErrorCode.POLICY_VIOLATION, message)
        body = encode_body(records)
        prepared = self.prepare_append(self.leader_and_epoch.epoch, body, len(records))
        self.schedule_appends()
        await asyncio.shield(prepared.committed)
        return Offset(prepared.end_offset - 1)

    def prepare_append(self, epoch: Epoch, body: bytes, record_count: int) -> PreparedAppend:
        """Prepare an append of an encoded `kraftpb.v1.BatchBody` with `record_count` records (LI-20, LI-21).

        Its offsets are known at once; nothing is written before `schedule_appends`. Raises ValueError for no records
        or an epoch that has not come yet, ApiError as `append` does.
        """
        if record_count < 1:
            raise ValueError(f"an append of {record_count} records; give at least one")
        if epoch > self.leader_and_epoch.epoch:
            raise ValueError(f"epoch {epoch} has not come yet; this node knows of epoch {self.leader_and_epoch.epoch}")
        base_offset, committed = self._node.prepare_append(epoch, body, record_count)
        return PreparedAppend(base_offset, Offset(base_offset + record_count), committed)

    def schedule_appends(self) -> None:
        """Let everything that was prepared be written (LI-20)."""
        self._node.schedule_appends()

    def report_state_digest(self, digest: StateDigest) -> None:
        """Tell the quorum what this node's state machine came to; all nodes must report at the same offsets.

        The state machine of a node that comes to something else than the others' is fenced: see `Node`. Raises
        ValueError for a negative offset or a digest of another length: the other nodes would refuse every fetch.
        """
        if digest.end_offset < 0 or len(digest.digest) != STATE_DIGEST_BYTES:
            raise ValueError(
                f"a state digest has {STATE_DIGEST_BYTES} bytes and an offset of 0 or more,"
                f" not {len(digest.digest)} bytes at {digest.end_offset}"
            )
        self._node.step(StateDigestReported(digest))

    def state_machine_fenced(self) -> None:
        """Tell the quorum that what this node's state machine stores is not what it applied: it has stopped.

        The node is not elected any more, and asks to rebuild its state machine: see `HostedState.on_may_rebuild`.
        """
        self._node.step(StateMachineFenced())

    def allow_fetch_version(self, version: int) -> None:
        """Let this node's fetches have that version at most: what the cluster has agreed on (PK-05).

        The next fetch follows it. Raises ValueError for a version that there is not.
        """
        if version not in FETCH_VERSIONS:
            raise ValueError(f"there is no version {version} of Fetch; there are {FETCH_VERSIONS}")
        self._node.step(FetchVersionAllowed(version))

    def fatal(self, error: BaseException) -> None:
        """End the process, or what the node was told to do then: what it holds in memory cannot be trusted.

        For where the `error` would only be logged if it were raised, such as in an RPC or a timer.
        """
        self._node.fatal(error)

    def resign(self, epoch: Epoch) -> None:
        """Stop leading `epoch` (RF-102).

        An older epoch is ignored. Raises ValueError for a negative epoch, one that has not come yet, or the present
        one if this node does not lead it.
        """
        present = self.leader_and_epoch
        if epoch < 0 or epoch > present.epoch:
            raise ValueError(f"cannot resign from epoch {epoch}; the present one is {present.epoch}")
        if epoch == present.epoch:
            if not self._node.replica.is_leader:
                raise ValueError(
                    f"node {self.node_key.node_id} does not lead epoch {epoch}; leader: {present.leader_id}"
                )
            self._node.resign(epoch)
