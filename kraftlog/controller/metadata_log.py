"""The port to the log: what the controller needs from a node. `raft.client.RaftClient` implements it."""

from __future__ import annotations

from typing import Protocol

from kraftbase.endpoint import Endpoint
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.types import LeaderAndEpoch, ReplicaKey
from raft.shell.appends import OnSettled


class MetadataLog(Protocol):
    """The log as its leader's client sees it. All on the event loop's thread."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        ...

    @property
    def node_key(self) -> ReplicaKey:
        """This node's id and directory id."""
        ...

    @property
    def voter_ids(self) -> frozenset[NodeId]:
        """The voters, each of which may be the controller."""
        ...

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader as this node knows it."""
        ...

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader listens, None while it is not known."""
        ...

    @property
    def next_append_offset(self) -> Offset:
        """The base offset of the next prepared append, if this node leads."""
        ...

    def prepare_append(self, epoch: Epoch, body: bytes, record_count: int, on_settled: OnSettled) -> Offset:
        """Prepare an append, all of it or none, and return its base offset; it is not written yet (LI-20).

        `on_settled` is called once, never within this call: with None when the append is committed, with an error when
        that is no longer certain. It may be called within any other call to this log, and must not call back into it.
        Raises ApiError and changes nothing if the append is refused (LI-21); then `on_settled` is never called.
        """
        ...

    def schedule_appends(self) -> None:
        """Write everything that was prepared (LI-20)."""
        ...

    def resign(self, epoch: Epoch) -> None:
        """Stop leading `epoch` (RF-102)."""
        ...

    def fatal(self, error: BaseException) -> None:
        """End the process: its state in memory cannot be trusted."""
        ...
