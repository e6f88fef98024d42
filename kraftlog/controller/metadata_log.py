"""The port to the log: what the controller needs of a node. `raft.client.RaftClient` is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kraftbase.endpoint import Endpoint
from raft.core.types import Epoch, LeaderAndEpoch, NodeId, Offset, ReplicaKey


class CommitFuture(Protocol):
    """The outcome of an append, like an `asyncio.Future`; the simulator has its own kind."""

    def done(self) -> bool:
        """Whether the outcome is known."""
        ...

    def cancelled(self) -> bool:
        """Whether it will never be known here."""
        ...

    def exception(self) -> BaseException | None:
        """Once it is known: None if the append is committed, else why that is not certain."""
        ...

    def add_done_callback(self, callback: Callable[[Any], object], /) -> object:
        """Call back with this when it is known, never from within another call."""
        ...


class PreparedAppend(Protocol):
    """An append whose offsets are known and that is not written yet (LI-20)."""

    @property
    def base_offset(self) -> Offset:
        """The offset of its first record."""
        ...

    @property
    def end_offset(self) -> Offset:
        """The offset after its last record."""
        ...

    @property
    def committed(self) -> CommitFuture:
        """Done when it is committed; holds an ApiError if that is not certain."""
        ...


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

    def prepare_append(self, epoch: Epoch, body: bytes, record_count: int) -> PreparedAppend:
        """Prepare an append, all of it or none. Raises ApiError and changes nothing if it is refused (LI-21)."""
        ...

    def schedule_appends(self) -> None:
        """Have everything that was prepared written (LI-20)."""
        ...

    def resign(self, epoch: Epoch) -> None:
        """Stop leading `epoch` (RF-102)."""
        ...

    def fatal(self, error: BaseException) -> None:
        """End the process: what it holds in memory cannot be trusted."""
        ...
