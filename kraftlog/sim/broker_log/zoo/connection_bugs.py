"""Bugs of the conversation over a client's connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftlog.kafka.notation import Message
from kraftlog.network.conversation import Conversation, Exchange
from kraftlog.sim.engine.mutation import instead, mutation


@mutation("a response is sent before the responses to earlier requests", "our own")
def answers_overtake() -> list[Any]:
    """Clients take the response for the one to an earlier request."""
    answer = Conversation.answer

    def hasty(self: Conversation, exchange: Exchange, response: Message | None) -> None:
        if self.unwritten is None and not self._is_writing:
            self.exchanges.remove(exchange)
            self.exchanges.appendleft(exchange)
        answer(self, exchange, response)

    return [instead(Conversation, "answer", hasty)]


@mutation("a Produce with acks=0 blocks later responses", "DB-64")
def no_answer_is_waited_for() -> list[Any]:
    """A Produce with acks=0 has no response, but later responses wait for it."""
    answer = Conversation.answer

    def wait(self: Conversation, exchange: Exchange, response: Message | None) -> None:
        if response is not None:
            answer(self, exchange, response)

    return [instead(Conversation, "answer", wait)]


@mutation("a Fetch waits although its client has disconnected", "our own")
def gone_clients_wait() -> list[Any]:
    """The Fetch and its memory are held for the wait time of a client that has disconnected."""

    def waiting(self: Conversation) -> list[Callable[[], None]]:
        return []

    return [instead(Conversation, "waiting", waiting)]
