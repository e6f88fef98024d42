"""One connection's turns and its work in slices: requests and answers that take long to read or to write."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from kraftlog.network.connection_states import DUE, NOT_DUE, TAKING, TAKING_AND_DUE, Turn
from kraftlog.network.requests import Steps
from kraftlog.network.turns import WAIT_SECONDS, SliceEnd, Turns, Worker, go_through


class Work:
    """The work of one connection, `worker`. `call_later` is the event loop's, in seconds."""

    def __init__(self, worker: Worker, turns: Turns, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        self.turn: Turn = NOT_DUE
        self.steps: deque[Steps] = deque()
        """Work in slices; later requests wait for it."""
        self._slice_end = SliceEnd.DONE
        self._worker = worker
        self._turns = turns
        self._call_later = call_later

    def schedule(self, *, is_fresh: bool) -> None:
        """Get a turn soon, unless one is due. Never at once: a handler must not be called from within a call of this or
        another handler. `is_fresh`: the connection has not just had a slice.
        """
        if self.turn is NOT_DUE:
            self.turn = DUE
        elif self.turn is TAKING:
            self.turn = TAKING_AND_DUE
        else:
            return
        take_turn = partial(self._turns.wait, self._worker, is_fresh=is_fresh)
        if self.steps and self._slice_end is SliceEnd.WAITS:
            self._call_later(WAIT_SECONDS, take_turn)
        else:
            take_turn()

    def end_turn(self) -> None:
        """The connection's turn is over."""
        self.turn = DUE if self.turn is TAKING_AND_DUE else NOT_DUE

    def go_on(self, may_go_on: Callable[[], bool]) -> bool:
        """Work until `may_go_on` returns False. Return whether all of the work is done. Raises what a step raises."""
        self._slice_end = go_through(self.steps, may_go_on)
        return self._slice_end is SliceEnd.DONE

    def drop(self) -> None:
        """Drop all work; steps in progress are closed."""
        steps, self.steps = self.steps, deque()
        del steps
