"""The production controller on a simulated node: its ports to the simulated replica and to the tables.

Runs with brokers have one on every node, in addition to the small service that the clients of registers use
(`kraftlog.sim.node.register_service`); both append to the same log. What the controller logs as a bug of its own ends
the run.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from unittest import mock

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.controller import Controller
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.controller.rules import pages
from kraftlog.sim.node.stepped_process import Environment, SteppedProcess
from kraftlog.sim.node.watcher import Watcher
from kraftlog.sim.observation.service import Answered, Asked
from kraftlog.sim.virtual.crash import ProcessKilled
from kraftlog.sim.virtual.event_queue import MICROSECONDS_PER_MS
from kraftpb.v1.admin_pb2 import Operation, OperationResult
from raft.core.events import FetchVersionAllowed, ResignRequested
from raft.core.types import Epoch, LeaderAndEpoch, Offset, ReplicaKey
from statemachine.apply.fetch_version import FetchVersionGate, allowed_fetch_version
from statemachine.words.limits import OPERATION_TIMEOUT_MS_DEFAULT

PAGE_PARTITIONS: Final = 2
"""The size of a page in simulations: their clusters are small, and fencing a broker must still take several pages."""

APPEND_MS_MAX: Final = 15
"""The longest that an append keeps the process busy: long enough that slices end in the middle of the work on pages."""

WATCHED_SHARE: Final = 0.3
"""How many of the processes have a publisher."""

READ_SHARE: Final = 0.2
"""How often somebody who has seen an acknowledgement reads from the node at once."""

READ_US_MAX: Final = 2_000

OnAnswer = Callable[[OperationResult, Offset], None]
"""Called with the answer and how far the answering node has applied the log."""


class CommitFuture:
    """The outcome of an append (`kraftlog.controller.metadata_log.CommitFuture`)."""

    def __init__(self, process: SteppedProcess) -> None:
        self._process = process
        self._is_done = False
        self._error: ApiError | None = None
        self._callbacks: list[Callable[[Any], object]] = []

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._is_done

    def cancelled(self) -> bool:
        """Always False: nothing cancels it."""
        return False

    def exception(self) -> ApiError | None:
        """Why it is not certain that the append is committed."""
        return self._error

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Call back, in a step of its own, when the outcome is known."""
        if self._is_done:
            self._process.runtime.call_soon(lambda: self._call(callback))
        else:
            self._callbacks.append(callback)

    def complete(self, error: ApiError | None) -> None:
        """The outcome is known: schedule the callbacks."""
        self._is_done, self._error = True, error
        for callback in self._callbacks:
            self.add_done_callback(callback)

    def _call(self, callback: Callable[[Any], object]) -> None:
        callback(self)


@dataclass(frozen=True, slots=True)
class SimulatedAppend:
    """`kraftlog.controller.metadata_log.PreparedAppend`."""

    base_offset: Offset
    end_offset: Offset
    committed: CommitFuture


class SimulatedLog:
    """`kraftlog.controller.metadata_log.MetadataLog` over the shell of a simulated process."""

    def __init__(self, process: SteppedProcess) -> None:
        self._process = process
        self._random = process.machine.new_random()
        self._futures: dict[int, CommitFuture] = {}
        self.cluster_id: str = process.environment.cluster_id
        self.node_key: ReplicaKey = process.machine.key
        self.voter_ids = frozenset(voter.key.node_id for voter in process.environment.voters.voters())

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """As the replica knows it."""
        return self._process.shell.replica.leader_and_epoch

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """As the replica knows it."""
        return self._process.shell.replica.leader_endpoint

    @property
    def next_append_offset(self) -> Offset:
        """Of the replica."""
        return self._process.shell.replica.next_append_offset

    def prepare_append(self, epoch: Epoch, body: bytes, record_count: int) -> SimulatedAppend:
        """By way of the shell; the process may be killed before."""
        process = self._process
        process.crash_point()
        if self._random.random() < process.environment.append_kill_rate:
            process.environment.marks.hit("the controller was killed between two appends")
            raise ProcessKilled
        process.stalled_us += self._random.randrange(APPEND_MS_MAX * MICROSECONDS_PER_MS)
        append_id = process.shell.new_id()
        future = self._futures[append_id] = CommitFuture(process)
        try:
            base_offset = process.shell.prepare_append(append_id, epoch, body, record_count)
        except ApiError as error:
            del self._futures[append_id]
            process.environment.marks.hit(f"error: {error.code.name}")
            raise
        return SimulatedAppend(base_offset, Offset(base_offset + record_count), future)

    def schedule_appends(self) -> None:
        """By way of the shell."""
        self._process.shell.schedule_appends()

    def fatal(self, error: BaseException) -> None:
        """Nothing: what is raised in a step ends the process."""

    def resign(self, epoch: Epoch) -> None:
        """Through the shell; an epoch that has ended is ignored (RF-102)."""
        replica = self._process.shell.replica
        if replica.is_leader and replica.epoch == epoch:
            self._process.shell.step(ResignRequested(epoch))

    def complete(self, append_id: int, error: ApiError | None) -> bool:
        """An append is settled. Returns False if it is not the controller's."""
        future = self._futures.pop(append_id, None)
        if future is None:
            return False
        future.complete(error)
        return True


class ControllerHost:
    """One process's controller, if this run has brokers; else nothing happens here."""

    def __init__(self, process: SteppedProcess) -> None:
        self._process = process
        self._log: SimulatedLog | None = None
        self._random = process.machine.new_random()
        self.controller: Controller | None = None
        brokers = process.environment.parameters.brokers
        if brokers is None:
            return
        self._log = SimulatedLog(process)
        self.controller = Controller(
            self._log,
            process.store,
            process.state_machine,
            runtime=process.runtime,
            random=process.machine.new_random(),
            config=ControllerConfig(
                broker_session_timeout_ms=brokers.session_timeout_ms,
                leader_imbalance_check_interval_seconds=brokers.balance_interval_seconds,
                unclean_election_check_interval_ms=brokers.unclean_interval_ms,
                metadata_max_idle_interval_ms=brokers.idle_interval_ms,
            ),
            on_bug=self._found_bug,
        )
        if process.machine.new_random().random() < WATCHED_SHARE:
            process.state_machine.install_publisher(Watcher(process))
        process.state_machine.subscribe(FetchVersionGate(process.store, self._allow_fetch_version))
        process.runtime.call_soon(lambda: self._allow_fetch_version(allowed_fetch_version(process.store)))

    def _found_bug(self, message: str, **details: object) -> None:
        """What the controller reports as a bug of its own is a violation."""
        text = f"the controller says: {message} {details or ''}".rstrip()
        self._process.environment.report_violation(text, sys.exc_info()[1])

    def _allow_fetch_version(self, version: int) -> None:
        self._process.shell.step(FetchVersionAllowed(version))

    def handle(self, operation: Operation, respond: OnAnswer) -> None:
        """A broker or an administrator asks for something."""

        process = self._process
        number = process.new_number()
        timeout_ms = operation.timeout_ms or OPERATION_TIMEOUT_MS_DEFAULT
        deadline_us = process.environment.event_queue.now_us + timeout_ms * MICROSECONDS_PER_MS

        def answer(result: OperationResult) -> None:
            process.environment.marks.hit(f"answer: {ErrorCode(result.error_code).name}")
            is_done = result.error_code == ErrorCode.NONE
            process.step.answers.append(Answered(number, Offset(max(0, result.end_offset) if is_done else 0)))
            if is_done and self._random.random() < READ_SHARE:
                process.after(
                    self._random.randrange(READ_US_MAX), "read", partial(process.read_service.read, Offset(0), 0)
                )
            respond(result, process.state_machine.applied_end_offset)

        process.step.asked.append(Asked(number, deadline_us))

        if self.controller is not None:
            self.controller.take(operation, answer)
            self.controller.schedule()

    def append_completed(self, append_id: int, error: ApiError | None) -> bool:
        """An append is settled; False if it is not the controller's."""
        return self._log is not None and self._log.complete(append_id, error)


@contextlib.contextmanager
def small_pages(environment: Environment) -> Iterator[None]:
    """Let the controllers' pages be small, for as long as this lasts."""
    if environment.parameters.brokers is None:
        yield
        return
    with mock.patch.object(pages, "PAGE_PARTITIONS", PAGE_PARTITIONS):
        yield
