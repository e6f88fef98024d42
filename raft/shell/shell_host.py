"""The host of a shell, as the shell sees it: the node's identity, and the port for the shell's outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftbase.types import NodeId, Offset
from raft.core.actions import Send
from raft.core.messages import Response
from raft.core.types import LeaderAndEpoch, RefusedLeader, ReplicaKey, StateDigest
from raft.core.voters import VoterSet
from raft.shell.log_start_keeper import ListenerPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The node's identity, and the voters that it knows."""

    cluster_id: str
    key: ReplicaKey
    endpoint: Endpoint
    voters: VoterSet
    bootstrap_endpoints: tuple[Endpoint, ...] = ()
    client_endpoints: Mapping[NodeId, Endpoint] = field(default_factory=dict)
    """The addresses at which clients reach the voters, if replicas use other addresses."""

    def for_clients(self, node_id: NodeId | None, endpoint: Endpoint | None) -> Endpoint | None:
        """The address at which a client reaches the node that replicas reach at `endpoint`."""
        return endpoint if node_id is None else self.client_endpoints.get(node_id, endpoint)


class ShellHost(Protocol):
    """The port for the shell's outputs and questions. None of its methods may call back into the shell."""

    def send(self, send: Send) -> None:
        """Send a request to a peer; its outcome comes back by `Shell.outcome`."""
        ...

    def reply(self, request_id: int, response: Response, records: bytes) -> None:
        """Answer a request, with the encoded batches or the snapshot's bytes that go with it."""
        ...

    def append_completed(self, append_id: int, error: ApiError | None) -> None:
        """A prepared append is committed, or leadership was lost first, possibly while it is being prepared."""
        ...

    def committed(self, committed_end_offset: Offset) -> None:
        """Everything below is committed and on this node's disk. May be called again."""
        ...

    def leader_changed(
        self, leader: LeaderAndEpoch, leader_endpoint: Endpoint | None, epoch_start_offset: Offset | None
    ) -> None:
        """The leader has changed; `epoch_start_offset` is set iff this node leads (LI-05)."""
        ...

    def listener_positions(self) -> Sequence[ListenerPosition]:
        """The positions of the node's own listeners, which may hold back the log start."""
        ...

    def snapshots_changed(self) -> None:
        """A newer snapshot exists: a listener may be waiting for one."""
        ...

    def snapshot_damaged(self) -> None:
        """A damaged snapshot was deleted: another one must be taken."""
        ...

    def state_diverged(self, expected: StateDigest, own: StateDigest) -> None:
        """The state machine differs from the quorum's and must stop; called once."""
        ...

    def leader_refused(self, refused: RefusedLeader | None) -> None:
        """The epoch's leader lacks records committed here, so the node is not ready; None: it is ready again."""
        ...

    def may_rebuild_state(self) -> None:
        """The fenced state machine may be rebuilt now; called once."""
        ...

    def shutdown_complete(self) -> None:
        """The node has handed over. May be called again."""
        ...

    def fatal(self, error: BaseException) -> None:
        """The process must end."""
        ...
