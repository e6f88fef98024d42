"""The production controller on a simulated node: its ports to the simulated replica and to the tables.

In runs with brokers every node has one, in addition to the register service
(`kraftlog.sim.quorum.node.register_service`); both append to the same log. Whatever the controller logs as a bug of its
own is a violation and ends the run.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final
from unittest import mock

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Epoch, Offset
from kraftlog.controller.controller import Controller
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.controller.dead_brokers import Replies
from kraftlog.controller.rules import pages
from kraftlog.controller.rules.broker_evidence import Endpoints
from kraftlog.sim.engine.virtual.crash import ProcessKilled
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.quorum.node.read_service import ReadService
from kraftlog.sim.quorum.node.state_machine import StateMachine
from kraftlog.sim.quorum.node.stepped_process import ProcessHost, SteppedProcess
from kraftlog.sim.quorum.node.store import SimulatedStore
from kraftlog.sim.quorum.node.watcher import Watcher
from kraftlog.sim.quorum.observation.service import Answered, Asked, FencedByEvidence
from kraftpb.v1.admin_pb2 import BrokerHeartbeatRequest, Operation, OperationResult
from kraftpb.v1.metadata_pb2 import RegisterBrokerRecord
from raft.core.events import FetchVersionAllowed, ResignRequested
from raft.core.types import LeaderAndEpoch, ReplicaKey
from raft.shell.appends import OnSettled, PendingAppends
from statemachine.apply.fetch_version import FetchVersionGate, allowed_fetch_version
from statemachine.words.limits import OPERATION_TIMEOUT_MS_DEFAULT

PAGE_PARTITIONS: Final = 2
"""The size of a page in simulations. The clusters are small, and fencing a broker must still take several pages."""

APPEND_MS_MAX: Final = 15
"""The longest time that an append keeps the process busy: long enough that a time slice ends within work on pages."""

WATCHED_SHARE: Final = 0.3
"""The share of processes with a publisher."""

READ_SHARE: Final = 0.2
"""The share of acknowledged operations whose caller reads from the node right afterwards."""

READ_US_MAX: Final = 2_000

OnAnswer = Callable[[OperationResult, Offset], None]
"""Called with the answer and the applied end offset of the answering node."""


class SimulatedLog:
    """`kraftlog.controller.metadata_log.MetadataLog` on the shell of a simulated process."""

    def __init__(self, process: SteppedProcess) -> None:
        self._process = process
        self._random = process.machine.new_random()
        self.appends = PendingAppends(process.runtime.call_soon)
        self.cluster_id: str = process.host.cluster_id
        self.node_key: ReplicaKey = process.machine.key
        self.voter_ids = frozenset(voter.key.node_id for voter in process.host.voters.voters())

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader and epoch that the replica knows."""
        return self._process.shell.replica.leader_and_epoch

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """The leader's endpoint that the replica knows."""
        return self._process.shell.replica.leader_endpoint

    @property
    def next_append_offset(self) -> Offset:
        """The offset of the replica's next append."""
        return self._process.shell.replica.next_append_offset

    def prepare_append(self, epoch: Epoch, body: bytes, record_count: int, on_settled: OnSettled) -> Offset:
        """Append through the shell. The process may be killed before that."""
        process = self._process
        process.crash_point()
        if self._random.random() < process.host.append_kill_rate:
            process.host.marks.hit("the controller was killed between two appends")
            raise ProcessKilled
        process.stalled_us += self._random.randrange(APPEND_MS_MAX * MICROSECONDS_PER_MS)
        append_id = process.shell.new_id()
        try:
            return self.appends.prepare(
                append_id, on_settled, lambda: process.shell.prepare_append(append_id, epoch, body, record_count)
            )
        except ApiError as error:
            process.host.marks.hit(f"error: {error.code.name}")
            raise

    def schedule_appends(self) -> None:
        """Schedule appends through the shell."""
        self._process.shell.schedule_appends()

    def fatal(self, error: BaseException) -> None:
        """Do nothing: an error raised in a step ends the process."""

    def resign(self, epoch: Epoch) -> None:
        """Resign through the shell. An epoch that has ended is ignored (RF-102)."""
        replica = self._process.shell.replica
        if replica.is_leader and replica.epoch == epoch:
            self._process.shell.step(ResignRequested(epoch))


class ControllerHost:
    """The controller of one process in runs with brokers. In other runs its methods do nothing."""

    def __init__(
        self, process: SteppedProcess, store: SimulatedStore, state_machine: StateMachine, reads: ReadService
    ) -> None:
        self._process = process
        self._state_machine = state_machine
        self._reads = reads
        self._log: SimulatedLog | None = None
        self._random = process.machine.new_random()
        self.controller: Controller | None = None
        brokers = process.host.parameters.brokers
        if brokers is None:
            return
        self._log = SimulatedLog(process)
        self.controller = Controller(
            self._log,
            store,
            state_machine,
            runtime=process.runtime,
            random=process.machine.new_random(),
            config=ControllerConfig(
                broker_session_timeout_ms=brokers.session_timeout_ms,
                leader_imbalance_check_interval_seconds=brokers.balance_interval_seconds,
                unclean_election_check_interval_ms=brokers.unclean_interval_ms,
                metadata_max_idle_interval_ms=brokers.idle_interval_ms,
                remote_log_storage_system_enable=True,
            ),
            on_bug=self._found_bug,
            connect=self._connect,
        )
        self.controller.dead_brokers.on_fenced = self._fenced
        if process.machine.new_random().random() < WATCHED_SHARE:
            state_machine.install_publisher(Watcher(process))
        state_machine.subscribe(FetchVersionGate(store, self._allow_fetch_version))
        process.runtime.call_soon(lambda: self._allow_fetch_version(allowed_fetch_version(store)))

    def _found_bug(self, message: str, **details: object) -> None:
        """Report what the controller logs as a bug of its own as a violation."""
        text = f"the controller says: {message} {details or ''}".rstrip()
        self._process.host.report_violation(text, sys.exc_info()[1])

    def _allow_fetch_version(self, version: int) -> None:
        self._process.shell.step(FetchVersionAllowed(version))

    def handle(self, operation: Operation, respond: OnAnswer) -> None:
        """Handle an operation of a broker or the administrator; call `respond` with the answer."""

        process = self._process
        number = process.new_number()
        timeout_ms = operation.timeout_ms or OPERATION_TIMEOUT_MS_DEFAULT
        deadline_us = process.host.event_queue.now_us + timeout_ms * MICROSECONDS_PER_MS

        def answer(result: OperationResult) -> None:
            process.host.marks.hit(f"answer: {ErrorCode(result.error_code).name}")
            is_done = result.error_code == ErrorCode.NONE
            process.step.answers.append(Answered(number, Offset(max(0, result.end_offset) if is_done else 0)))
            if is_done and self._random.random() < READ_SHARE:
                process.after(self._random.randrange(READ_US_MAX), "read", partial(self._reads.read, Offset(0), 0))
            respond(result, self._state_machine.applied_end_offset)

        process.step.asked.append(Asked(number, deadline_us))

        if self.controller is not None:
            self.controller.submit([operation], answer)

    def heartbeat_came(self, stream: int, heartbeat: BrokerHeartbeatRequest) -> None:
        """Pass on a heartbeat that arrived on a broker's stream."""
        if self.controller is not None:
            self.controller.dead_brokers.heartbeat(stream, heartbeat)

    def stream_ended(self, stream: int) -> None:
        """Record that a broker has ended its stream."""
        if self.controller is not None:
            self.controller.dead_brokers.stream_ended(stream, by_peer=True)

    def _connect(self, endpoints: Endpoints, on_replies: Callable[[Replies], None]) -> None:
        """Connect to a broker's listeners. `on_replies` is called after the slowest reply."""
        process = self._process
        host, node_id = process.host, process.machine.node_id
        found = {endpoint: host.reply_to_connection(node_id, endpoint) for endpoint in endpoints}
        delay_us = max(delay_us for _, delay_us in found.values())
        replies = {endpoint: reply for endpoint, (reply, _) in found.items()}
        process.after(process.stalled_us + delay_us, "connections", lambda: on_replies(replies))

    def _fenced(self, broker: RegisterBrokerRecord) -> None:
        machine = self._process.machine
        is_clock_right = machine.clock.rate <= 1 and not machine.view.has_leapt
        self._process.host.marks.hit("a broker was fenced by evidence")
        self._process.step.fenced.append(
            FencedByEvidence(broker.broker_id, broker.incarnation_id, is_clock_right=is_clock_right)
        )

    def append_completed(self, append_id: int, error: ApiError | None) -> bool:
        """Pass on the outcome of an append. Return False if the append is not the controller's."""
        if self._log is None or append_id not in self._log.appends:
            return False
        self._log.appends.settle(append_id, error)
        return True


@contextlib.contextmanager
def small_pages(host: ProcessHost) -> Iterator[None]:
    """Return a context manager in which controllers use small pages."""
    if host.parameters.brokers is None:
        yield
        return
    with mock.patch.object(pages, "PAGE_PARTITIONS", PAGE_PARTITIONS):
        yield
