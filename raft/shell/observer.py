"""The port for those who watch a shell: the simulator's checkers, the debug log of a node's decisions, tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from raft.core.actions import Action
from raft.core.events import Event
from raft.core.replica_view import ReplicaView


class ShellObserver(Protocol):
    """It is told of every event that the replica takes. It only watches: it must not call back into the shell.

    It runs on the shell's own thread, within the step. What it raises is fatal, as all that a step raises.
    """

    def stepped(self, event: Event | None, actions: Sequence[Action], replica: ReplicaView) -> None:
        """The replica has taken `event`, None at its start, and ordered `actions`; none of them is carried out yet.

        Those that a write of the election state holds up are carried out later, in this order (`Shell.is_behind`). An
        event that violates an invariant of the replica is not told: the shell's host gets the error, and ends.
        """
        ...
