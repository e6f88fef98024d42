"""The output of a replica in a step: actions, and requests over the connections to its peers."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftbase.endpoint import Endpoint
from kraftbase.types import Epoch
from raft.core.actions import Action, FlushLog, LogRange, Reply, Send, SnapshotRange
from raft.core.connections import Connections
from raft.core.decisions import Decision
from raft.core.log import LogState
from raft.core.messages import Request, Response


@dataclass(slots=True, kw_only=True)
class Output:
    """The actions ordered so far in this step, and their reasons; `connections` has the requests in progress."""

    connections: Connections
    actions: list[Action] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    """The decisions of this step, for observers of the replica."""

    def order(self, action: Action) -> None:
        """Order `action` after everything ordered so far."""
        self.actions.append(action)

    def order_flush(self, log: LogState) -> None:
        """Order a flush if the log has unflushed records and no flush is in progress."""
        if not log.is_flushing and log.flushed_end_offset < log.end_offset:
            log.is_flushing = True
            self.actions.append(FlushLog(log.end_offset))

    def reply(self, request_id: int, response: Response, reads: LogRange | SnapshotRange | None = None) -> None:
        """Answer a request, with data to read from the log or a snapshot."""
        self.actions.append(Reply(request_id, response, reads))

    def send(self, endpoint: Endpoint, request: Request, epoch: Epoch, now_ms: int) -> None:
        """Send a request of that epoch to a peer whose connection is ready."""
        correlation_id = self.connections.sent(endpoint, request, epoch, now_ms)
        self.actions.append(Send(correlation_id, endpoint, request))

    def take_actions(self) -> list[Action]:
        """Remove and return the actions."""
        actions, self.actions = self.actions, []
        return actions
