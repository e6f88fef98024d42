"""Counts one connection's answers that wait for answers to earlier requests, together with all unsent answers."""

from __future__ import annotations

from kraftbase.shared_bytes import SharedBytes
from kraftlog.network.conversation import Conversation


class EarlyAnswers:
    """The early answers of one connection. They exist already, so they are counted even if there is no room."""

    def __init__(self, shared: SharedBytes, conversation: Conversation) -> None:
        self.held_bytes = 0
        self._shared = shared
        self._conversation = conversation

    def count(self) -> None:
        """Count the early answers that exist now."""
        more_bytes = self._conversation.early_bytes - self.held_bytes
        self.held_bytes += more_bytes
        if more_bytes > 0:
            self._shared.hold(more_bytes)
        elif more_bytes:
            self._shared.give_back(-more_bytes)
