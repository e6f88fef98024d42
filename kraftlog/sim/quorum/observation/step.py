"""What happened to one node between two checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kraftbase.types import Offset
from kraftlog.sim.quorum.observation.node_view import STATE_MACHINE, Ends, NodeView
from kraftlog.sim.quorum.observation.service import Answered, Asked, FencedByEvidence
from raft.core.actions import Action
from raft.core.events import Event
from raft.core.messages import Request, Response
from raft.core.types import Batch, LeaderAndEpoch, OffsetAndEpoch

NOTHING: Final = Offset(-1)


@dataclass(slots=True)
class Delivery:
    """A delivery to a node's listener: committed batches, a snapshot, or a leader change."""

    batches: tuple[Batch, ...] = ()
    snapshot_id: OffsetAndEpoch | None = None
    """The snapshot that was loaded."""
    listener: str = STATE_MACHINE
    leader: LeaderAndEpoch | None = None
    epoch_start_offset: Offset | None = None
    """With a leader change: set if and only if this node leads."""


@dataclass(slots=True)
class Step:
    """What happened to one node between two checks: one callback of its process, from start to end."""

    now_us: int
    node: NodeView
    label: str
    """The kind of step, for users: `timer`, `Fetch from 2`, `start`, `crash` and so on."""
    events: list[Event] = field(default_factory=list)
    """The replica's events, in order; usually one."""
    actions: list[Action] = field(default_factory=list)
    """The replica's actions, in order. After a crash the last of them may not have been carried out."""
    replies: list[tuple[Request, Response]] = field(default_factory=list)
    """The responses that were sent, with their requests."""
    deliveries: list[Delivery] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    """The operations and reads that its admin service received."""
    answers: list[Answered] = field(default_factory=list)
    """The answers of its admin service."""
    fenced: list[FencedByEvidence] = field(default_factory=list)
    """The brokers that its controller fenced because it concluded that their processes had ended."""
    ends: Ends | Offset = NOTHING
    """`NodeView.ends` after the step."""
    is_news: bool = False
    """Whether `NodeView.news` has changed since the node's last step."""
    disk_changed: bool = False
    """Whether durable data may have changed. The node's view of its disk is up to date."""
    started: bool = False
    """Whether the process was started in this step."""
    ended: str = ""
    """Why the process ended in this step; empty if it did not."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing happened, as when a timer found nothing to do."""
        return not (
            self.events or self.actions or self.replies or self.deliveries or self.asked or self.answers
            or self.fenced or self.disk_changed or self.started or self.ended
        )  # fmt: skip
