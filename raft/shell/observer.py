"""The port for observers of a shell: the simulator's checkers, the debug log of a node's decisions, tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from raft.core.actions import Action
from raft.core.events import Event
from raft.core.replica_view import ReplicaView


class ShellObserver(Protocol):
    """Notified of every event that the replica processes. It only watches: it must not call back into the shell.

    It runs on the shell's own thread, within the step. An exception that it raises is fatal, like any in a step.
    """

    def stepped(self, event: Event | None, actions: Sequence[Action], replica: ReplicaView) -> None:
        """The replica has processed `event`, None at its start, and ordered `actions`; none is carried out yet.

        Actions that a write of the election state delays are carried out later, in this order (`Shell.is_behind`). For
        an event that violates an invariant of the replica this is not called: the shell's host gets the error, and
        ends.
        """
        ...
