"""A broker's machine: its disk, its clock, and its processes, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol
from uuid import UUID

from kraftbase.errors import ApiError, ErrorCode, FlushFailed, KraftlogError, StorageError
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.broker.shell.broker_states import Closing
from kraftlog.broker.shell.ports import OnResult
from kraftlog.kafka.notation import Message, Versions
from kraftlog.sim.broker_log.process import SYNCS, BrokerProcess
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.clock import Clock
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.disk import QUICK_SYNC_US, Disk
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS, EventQueue
from kraftlog.sim.replication.broker import SHUTDOWN_TIMEOUT_MS, Broker
from kraftlog.sim.replication.checkers.lives import Directory, Lives
from kraftlog.sim.replication.controller import SimulatedController
from kraftlog.sim.replication.controller_nodes import ControllerNodes
from kraftlog.sim.replication.metadata_log import empty_tables
from kraftlog.sim.replication.parameters import FULL, ReplicationParameters
from kraftlog.sim.replication.wire import Exchange, Line, Wire
from kraftpb.v1 import admin_pb2
from statemachine.store.metadata_tables import MetadataTables

STEADILY_SLOW_SYNC_US: Final = (2_000, 9_000)
KILLED_BY_THEN: Final = 80
"""A process that is to be killed between two file operations is killed within this many operations."""


class MachineWorld(Protocol):
    """The part of the world that machines use."""

    parameters: ReplicationParameters
    event_queue: EventQueue
    marks: Marks
    wire: Wire
    controller: SimulatedController
    nodes: ControllerNodes

    def new_random(self) -> Random:
        """Return a new random number generator, seeded by the world's."""
        ...

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        ...

    def broker_started(self, machine: Machine) -> None:
        """Record that a broker's logs are open."""
        ...

    def broker_stepped(self, machine: Machine) -> None:
        """Record the end of a step of a broker's process."""
        ...

    def broker_ended(self, machine: Machine, crash: Crash) -> None:
        """Record that a broker's process has ended in the given way."""
        ...

    def serve(self, machine: Machine, broker: Broker, body: Message, version: int, exchange: Exchange) -> None:
        """Handle a request that arrived at a broker, within a step of it."""
        ...


class Connection:
    """`kraftlog.replicas.replication.replica_fetcher.LeaderConnection` over the wire.

    All brokers here have the same version, so the newest version of a request is used without ApiVersions.
    """

    def __init__(self, machine: Machine, destination: int) -> None:
        self._machine = machine
        self._process = machine.process
        self._destination = destination
        self._under_way: list[Exchange] = []
        self._is_closed = False
        self._line = Line()

    def ask(self, request: Message, versions: Versions, on_answer: Callable[[Message | ApiError], None]) -> None:
        """Send a request. `on_answer` is called with its response or error."""

        def answered(response: Message | ApiError) -> None:
            if not self._is_closed:
                on_answer(response)

        self._under_way = [exchange for exchange in self._under_way if not exchange.is_over]
        self._under_way.append(
            self._machine.world.wire.ask(
                self._process,
                self._machine.broker_id,
                self._destination,
                request,
                versions.highest,
                answered,
                self._line,
            )
        )

    def close(self) -> None:
        """Close the connection. Pending requests get no answer, and the server learns of it."""
        self._is_closed = True
        for exchange in self._under_way:
            if not exchange.is_over:
                exchange.close()
                exchange.tell_server()


class Machine:
    """A broker's machine, and the environment of its processes (`kraftlog.sim.broker_log.process.ProcessHost`)."""

    def __init__(self, world: MachineWorld, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.event_queue = world.event_queue
        self.marks = world.marks
        self.random = world.new_random()
        self.clock = Clock(offset_ms=self.random.randrange(1_000_000))
        self.disk = Disk(world.new_random())
        self.mend_slow_disk()
        self.tables: MetadataTables = empty_tables()
        self.applied_batches = 0
        self.process = BrokerProcess(self)
        self.process.has_ended = True
        self.broker: Broker | None = None
        """The broker of the running process, once its logs are open."""
        self.life = 0
        """The number of processes so far."""
        self.is_powered = True
        self.failing_directory = ""
        """The directory in which every write and sync fails; empty: none."""
        self.has_failed_disk = False
        self.away: set[str] = set()
        """Log directories that are missing when a process starts."""
        self._in_their_place: set[str] = set()
        self.next_crash = Crash.KILLED
        """How the process ends if it is killed within a step."""
        self.kills_at_start = False
        self.asks_at_start = False
        """Whether the next process is asked to end while it opens its logs."""
        self.kills_at_end = False
        """Whether the process is killed between two file operations while it closes its logs."""
        self.while_down: Callable[[], None] | None = None
        """Called once, when the process has ended."""
        self._starting: Broker | None = None
        """The broker of the running process, from its start on."""
        self.exchanges: list[Exchange] = []
        """The exchanges that the process serves."""
        self.lives = Lives(str(broker_id), SHUTDOWN_TIMEOUT_MS * MICROSECONDS_PER_MS)
        self._numbers = 0

    def connect(self, broker_id: int) -> Connection:
        """Open a connection of this broker to another one (`LeaderConnector`)."""
        return Connection(self, broker_id)

    @property
    def log_paths(self) -> list[str]:
        """All log directories that the machine has had."""
        return [
            *(f"logs-{number}" for number in range(self.world.parameters.directories)),
            *sorted(self._in_their_place),
        ]

    @property
    def present_log_paths(self) -> list[str]:
        """The log directories that are present. An empty one replaces each missing one, and stays in use."""
        self._in_their_place |= {f"in-place-of-{path}" for path in self.away}
        return [path for path in self.log_paths if path not in self.away]

    @property
    def files(self) -> MemoryFileSystem:
        """The files of the machine's disk."""
        return self.disk.files

    def mend_slow_disk(self) -> None:
        """Reset the duration of syncs to the normal one of this run."""
        is_slow = self.world.parameters.has_slow_disks
        self.disk.sync_us = STEADILY_SLOW_SYNC_US if is_slow else QUICK_SYNC_US

    def new_id(self) -> UUID:
        """Return a unique id."""
        return UUID(int=(self.broker_id << 64) + 1_000_000 + self.new_number())

    def new_number(self) -> int:
        """Return a number that is unique on this machine."""
        self._numbers += 1
        return self._numbers

    def before_operation(self, operation: str, path: str) -> None:
        """Fail an operation on a file of the failing directory. Raises FlushFailed, StorageError."""
        if self.failing_directory and path.startswith(self.failing_directory):
            self.marks.hit("an operation failed")
            if operation in SYNCS:
                raise FlushFailed(f"{operation} of {path} failed: input/output error: injected")
            raise StorageError(f"{operation} of {path} failed: input/output error: injected")

    # --- processes ----------------------------------------------------------------------------------------------------

    def step(self, work: Callable[[Broker], None]) -> None:
        """Call `work` with the broker in a step of its process. Nothing happens if no broker runs."""
        process = self.process

        def do() -> None:
            if self.broker is not None and self.broker.process is process:
                work(self.broker)

        process.run(do)

    def start(self) -> None:
        """Start a process. Its clock is correct, and a failed disk has been repaired."""
        if not self.process.has_ended:
            return
        self.clock.wall_offset_ms = 0
        self.failing_directory = ""
        self.has_failed_disk = False
        self.is_powered = True
        self.life += 1
        self.process = BrokerProcess(self)
        self.lives.started()
        self.files.before_operation = self.process.before_operation
        if self.kills_at_start:
            self.kills_at_start = False
            self.kill_within(self.next_crash)
        self.process.run(self._open)
        if self.asks_at_start:
            self.asks_at_start = False
            self.marks.hit("asked to end at its start")
            self.shut_down()

    def _open(self) -> None:
        try:
            self._starting = Broker(self, self.world.parameters, self)
        except (StorageError, FlushFailed):  # such as a full disk
            self.give_up()
        else:
            self._starting.shell.start()

    def opened(self, broker: Broker) -> None:
        """Record that the broker's logs are open."""
        self.broker = broker
        self.lives.opened(_directories(broker))
        self.process.after_step = self._stepped
        self.world.note(f"broker {self.broker_id} has started, after {self.process.operations} operations on files")
        self.marks.hit("a broker started")
        self.world.broker_started(self)

    def _stepped(self) -> None:
        broker = self.broker
        if broker is not None and isinstance(broker.shell.state, Closing):
            self._closes(broker)
        self.world.broker_stepped(self)

    def _closes(self, broker: Broker) -> None:
        if not broker.is_closed:
            self.lives.ends(_directories(broker), self.files)
        elif self.kills_at_end:
            self.kills_at_end = False
            self.kill_within(self.random.choice(list(Crash)))

    def serving(self, broker: Broker) -> None:
        """Check and record that the broker has taken its partitions over."""
        self._check(lambda: self.lives.serves(self.tables.applied.end_offset))
        self.world.note(f"broker {self.broker_id} has taken over, epoch {broker.epoch}")

    def kill_within(self, crash: Crash) -> None:
        """Kill the process before one of its next file operations."""
        self.next_crash = crash
        self.process.operations_left = self.random.randrange(KILLED_BY_THEN)

    def process_ended(self) -> None:
        """End a process that was killed within a step or has shut down."""
        if self.process.is_killed:
            self.marks.hit(self._killed())
        self.end(self.next_crash)

    def _killed(self) -> str:
        if self.broker is None:
            return "killed at its start"
        return "killed at its end" if self._is_closing(self.broker) else "killed between two operations"

    def _is_closing(self, broker: Broker) -> bool:
        return isinstance(broker.shell.state, Closing)

    def end(self, crash: Crash, down_ms: int | None = None) -> None:
        """End the process in the given way. Another one starts after `down_ms`, or a random time."""
        self.process.has_ended = True
        if self.broker is not None and self._is_closing(self.broker):
            is_one_missing = bool(self.broker.logs.failed)
            self.lives.killed_at_its_end(_directories(self.broker), self.files, is_one_missing=is_one_missing)
        self.broker = None
        self._starting = None
        self.kills_at_end = False
        self.next_crash = Crash.KILLED
        self.files.before_operation = None
        self.disk.crash(crash)
        self.is_powered = crash is Crash.KILLED
        self.world.note(f"broker {self.broker_id} has ended: {crash}")
        self.marks.hit(f"ended: {crash}")
        if self.is_powered:
            self.close_connections()
        self.exchanges.clear()
        self.world.broker_ended(self, crash)
        if down_ms is None:
            session_ms = self.world.parameters.session_timeout_ms
            down_ms = int(self.random.choice([0.01, 0.3, 1.2, 3.0]) * session_ms)
        self.event_queue.after(down_ms * MICROSECONDS_PER_MS, self.start)
        work, self.while_down = self.while_down, None
        if work is not None:
            work()

    def close_connections(self) -> None:
        """Close the connections: each client that waits for an answer gets an error."""
        for exchange in self.exchanges:
            if not exchange.is_over:
                exchange.broken()
        self.exchanges.clear()

    @property
    def is_up(self) -> bool:
        """Whether a broker runs."""
        return self.broker is not None

    # --- the network --------------------------------------------------------------------------------------------------

    @property
    def is_listening(self) -> bool:
        """Whether a process accepts connections."""
        return self.broker is not None and self.broker.is_serving

    @property
    def refuses(self) -> bool:
        """Whether connections are refused at once."""
        return self.is_powered

    def serve(self, body: Message, version: int, exchange: Exchange) -> None:
        """Handle a request that has arrived."""
        self.exchanges = [open_exchange for open_exchange in self.exchanges if not open_exchange.is_over]
        self.exchanges.append(exchange)
        self.step(lambda broker: self.world.serve(self, broker, body, version, exchange))

    # --- the metadata -------------------------------------------------------------------------------------------------

    def apply_metadata(self, batch_count: int) -> None:
        """Apply the first `batch_count` committed batches, which have arrived."""

        def do(broker: Broker) -> None:
            batches = self.world.controller.log.batches[self.applied_batches : batch_count]
            if batches and broker.follows:
                self.applied_batches = batch_count
                broker.apply(batches)

        self.step(do)

    # --- the controller -----------------------------------------------------------------------------------------------

    def new_incarnation(self) -> UUID:
        """Return an id that no registration has had."""
        return UUID(bytes=self.random.randbytes(16))

    def ask_controller(self, operation: admin_pb2.Operation, timeout_ms: int, on_result: OnResult) -> None:
        """Send an operation to the controller, for the process that runs now."""

        def answered(result: admin_pb2.OperationResult | ApiError) -> None:
            self._hears(operation, result)
            on_result(result)

        self._check(lambda: self._tells(operation))
        self.world.wire.ask_controller(
            self.world.nodes.asked_by(self.broker_id), self.process, self.broker_id, operation, timeout_ms, answered
        )

    def _check(self, check: Callable[[], None]) -> None:
        """Run a check within a step of the broker. A violation ends the run, not the broker."""
        try:
            check()
        except Violation as found:
            violation = found  # the name of an exception ends with its block

            def end() -> None:
                raise violation

            self.event_queue.after(0, end)

    def _tells(self, operation: admin_pb2.Operation) -> None:
        broker = self.broker
        if broker is None:
            return
        if operation.HasField("register_broker"):
            is_one_missing = bool(broker.logs.failed)
            self.lives.registers(
                operation.register_broker, _directories(broker), self.files, is_one_missing=is_one_missing
            )
        elif operation.HasField("broker_heartbeat"):
            self.lives.sends_heartbeat(
                operation.broker_heartbeat, _directories(broker), self.files, self.tables.applied.end_offset,
                may_be_full=FULL in self.world.parameters.fault_kinds,
            )  # fmt: skip

    def _hears(self, operation: admin_pb2.Operation, result: admin_pb2.OperationResult | ApiError) -> None:
        if isinstance(result, ApiError):
            is_unknown = result.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
            if operation.HasField("broker_heartbeat") and is_unknown:
                self.lives.unregistered()
        elif operation.HasField("register_broker"):
            self.lives.registered(result.register_broker.broker_epoch)
        elif result.broker_heartbeat.should_shut_down:
            self.lives.may_end()

    def give_up(self) -> None:
        """End the process in the middle of a step."""
        self.process.has_ended = True
        self.next_crash = Crash.KILLED

    # --- shutting down ------------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Begin the controlled shutdown. Leaderships move first, if the controller can be reached in time."""
        if self._starting is not None:
            self.lives.asked_to_end(self.event_queue.now_us)
            self.process.run(self._starting.shell.shut_down)

    def closed(self, error: BaseException | None, *, is_clean: bool) -> None:
        """Check and record that the broker has shut down."""
        if error is not None and not isinstance(error, KraftlogError | FlushFailed):
            raise error
        if self.broker is not None:
            is_one_missing = bool(self.broker.logs.failed)
            self.lives.ended(_directories(self.broker), self.event_queue.now_us, error, is_one_missing=is_one_missing)
            self.broker.leaderships.checker().is_over()
        self.process.has_ended = True
        if error is not None:
            self.marks.hit("a broker stopped by itself")
            self.next_crash = Crash.KILLED
            return
        self.marks.hit("shut down cleanly" if is_clean else "shut down with trouble")
        self.next_crash = self.random.choice([Crash.KILLED, Crash.NOTHING_KEPT])


def _directories(broker: Broker) -> list[Directory]:
    return [
        Directory(
            directory.path, directory.directory_id.bytes, not directory.offline_reason,
            all(log.recovery_point == log.log_end_offset for log in directory.logs.values()),
        )
        for directory in broker.logs.directories
    ]  # fmt: skip
