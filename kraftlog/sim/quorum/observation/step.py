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
    """What a node's listener was given: committed batches, or a leader."""

    batches: tuple[Batch, ...] = ()
    snapshot_id: OffsetAndEpoch | None = None
    """A snapshot was loaded."""
    listener: str = STATE_MACHINE
    leader: LeaderAndEpoch | None = None
    epoch_start_offset: Offset | None = None
    """With a leader: set iff this node leads."""


@dataclass(slots=True)
class Step:
    """What happened to one node between two checks: one callback of its process, from beginning to end."""

    now_us: int
    node: NodeView
    label: str
    """What it was, for users: `timer`, `Fetch from 2`, `start`, `crash` and so on."""
    events: list[Event] = field(default_factory=list)
    """The replica's events, in order; mostly one."""
    actions: list[Action] = field(default_factory=list)
    """What it ordered, in order. A crash may have come before all of it was carried out."""
    replies: list[tuple[Request, Response]] = field(default_factory=list)
    """What left as answers, with the requests."""
    deliveries: list[Delivery] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    """What its admin service was asked for."""
    answers: list[Answered] = field(default_factory=list)
    """What its admin service answered."""
    fenced: list[FencedByEvidence] = field(default_factory=list)
    """Brokers that its controller fenced because their processes have ended, as it says."""
    ends: Ends | Offset = NOTHING
    """`NodeView.ends` after it."""
    is_news: bool = False
    """Whether `NodeView.news` has changed since the node's last step."""
    disk_changed: bool = False
    """Whether what is durable may have changed; the node's view of it is fresh."""
    started: bool = False
    """Whether the process was started in this step."""
    ended: str = ""
    """Why the process ended in this step; empty if it did not."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing happened: a timer found nothing to do."""
        return not (
            self.events or self.actions or self.replies or self.deliveries or self.asked or self.answers
            or self.fenced or self.disk_changed or self.started or self.ended
        )  # fmt: skip
