"""Reads on a simulated node, answered as by the admin service (`kraftlog.admin.server.service.AdminServicer`)."""

from __future__ import annotations

from kraftbase.errors import ApiError
from kraftbase.types import Offset
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.quorum.node.state_machine import StateMachine
from kraftlog.sim.quorum.node.stepped_process import SteppedProcess
from kraftlog.sim.quorum.node.store import SimulatedStore
from kraftlog.sim.quorum.observation.service import Answered, Asked


class ReadService:
    """The read service of one process."""

    def __init__(self, process: SteppedProcess, store: SimulatedStore, state_machine: StateMachine) -> None:
        self._process = process
        self._store = store
        self._state_machine = state_machine

    def read(self, min_applied_end_offset: Offset, wait_ms: int) -> None:
        """Read rows for a client once `min_applied_end_offset` is applied and all acknowledged operations are, too."""
        process = self._process
        number = process.new_number()
        deadline_us = process.host.event_queue.now_us + wait_ms * MICROSECONDS_PER_MS
        process.step.asked.append(Asked(number, deadline_us, True, min_applied_end_offset))

        def on_done(error: BaseException | None) -> None:
            if error is not None and not isinstance(error, ApiError):
                raise error
            process.step.answers.append(self._refused(number) if error is not None else self._answer(number))

        self._state_machine.wait_applied(min_applied_end_offset, wait_ms, on_done)

    def _answer(self, number: int) -> Answered:
        process = self._process
        (end_offset,) = self._store.reader.execute("SELECT end_offset FROM applied").fetchone()
        try:
            self._state_machine.refuse_if_fenced()
        except ApiError:
            return self._refused(number)
        process.host.marks.hit("a read was answered")
        return Answered(number, applied_end_offset=Offset(end_offset), is_fenced=self._state_machine.is_fenced)

    def _refused(self, number: int) -> Answered:
        self._process.host.marks.hit("a read was refused")
        return Answered(number)
