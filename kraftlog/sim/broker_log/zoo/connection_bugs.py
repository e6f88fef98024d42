"""Bugs of what is said over a client's connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftlog.kafka.notation import Message
from kraftlog.network.conversation import Conversation, Exchange
from kraftlog.sim.engine.mutation import instead, mutation


@mutation("an answer leaves as soon as it is there", "our own")
def answers_overtake() -> list[Any]:
    """Clients take it for the one to an earlier request."""
    answer = Conversation.answer

    def hasty(self: Conversation, exchange: Exchange, response: Message | None) -> None:
        if self.unwritten is None and not self._is_writing:
            self.exchanges.remove(exchange)
            self.exchanges.appendleft(exchange)
        answer(self, exchange, response)

    return [instead(Conversation, "answer", hasty)]


@mutation("a Produce with acks=0 holds up the answers behind it", "DB-64")
def no_answer_is_waited_for() -> list[Any]:
    """It has none, and they wait for it."""
    answer = Conversation.answer

    def wait(self: Conversation, exchange: Exchange, response: Message | None) -> None:
        if response is not None:
            answer(self, exchange, response)

    return [instead(Conversation, "answer", wait)]


@mutation("a Fetch is not told that its client is gone", "our own")
def gone_clients_wait() -> list[Any]:
    """It is held for as long as the client has said, and with it what it holds."""

    def waiting(self: Conversation) -> list[Callable[[], None]]:
        return []

    return [instead(Conversation, "waiting", waiting)]
