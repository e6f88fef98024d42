"""The production shell, with an observer of the core's events and orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raft.core.actions import Action
from raft.core.events import Event
from raft.shell.shell import Shell


class ObservedShell(Shell):
    """Calls the observer before the production code does anything."""

    def __init__(
        self, on_event: Callable[[Event], None], on_actions: Callable[[Sequence[Action]], None], **settings: object
    ) -> None:
        self._on_event = on_event
        self._on_actions = on_actions
        super().__init__(**settings)  # type: ignore[arg-type]

    def step(self, event: Event) -> None:
        """Note the event, then let the shell have it."""
        self._on_event(event)
        super().step(event)

    @property
    def has_pending_actions(self) -> bool:
        """Whether actions wait for the quorum state to be on disk."""
        return bool(self._actions)

    def _take(self, actions: Sequence[Action]) -> None:
        self._on_actions(actions)
        super()._take(actions)
