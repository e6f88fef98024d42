"""The bytes of one connection's answers that wait for those to earlier requests, counted with those that are unsent."""

from __future__ import annotations

from kraftbase.shared_bytes import SharedBytes
from kraftlog.network.conversation import Conversation


class EarlyAnswers:
    """Of one connection. They are there already, so they count whether there is room or not."""

    def __init__(self, shared: SharedBytes, conversation: Conversation) -> None:
        self.held_bytes = 0
        self._shared = shared
        self._conversation = conversation

    def count(self) -> None:
        """Count those that there are now."""
        more_bytes = self._conversation.early_bytes - self.held_bytes
        self.held_bytes += more_bytes
        if more_bytes > 0:
            self._shared.hold(more_bytes)
        elif more_bytes:
            self._shared.give_back(-more_bytes)
