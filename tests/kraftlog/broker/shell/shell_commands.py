"""The commands of the transcripts of a broker (how to write one: `tests.transcripts`).

    start                         a process of broker 1 starts: it has one log directory, and a directory of its own
    disk                          what waits for a thread is done
    bound                         its listeners are
    accept 7                      the controller registers it with epoch 7
    applied 8                     the metadata is applied up to there
    answer fenced                 to a heartbeat; also unfenced, may go
    refuse STALE_BROKER_EPOCH     the answer to what it asks is this error
    advance 200 ms                time passes
    shut down                     it is asked to hand over, and to end
    close                         it is asked to end at once
    fail                          it cannot go on
    logs lost                     its log directory fails
    done                          what it waits for at its end is done
    crash                         the process is gone, and what was not synced
    empty disk                    its log directory is empty; the broker is down

What it does is a line; nothing is one if it waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from kraftbase.errors import ApiError, ErrorCode, StorageError
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.runtime import OnDone
from kraftbase.types import Offset
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from kraftlog.broker.shell.broker_shell import BrokerShell, ShellPorts, ShellSettings
from kraftlog.broker.shell.directory_assignments import AssignmentsPace
from kraftlog.broker.shell.maintenance import MaintenanceIntervals
from kraftlog.broker.shell.membership import Pace
from kraftlog.broker.shell.opening import LogConfigs, LogsToOpen
from kraftlog.broker.shell.parts import Parts, PartsSettings
from kraftlog.broker.shell.ports import OnAnswer, OnResult
from kraftlog.replicas.replication.follower import FetchSettings
from kraftlog.sim.engine.tables_in_memory import empty_image, tables_in_memory
from kraftlog.telemetry.observer import (
    CleanShutdownMarked,
    Decision,
    LogsClosed,
    RegistrationLost,
    RegistrationRefused,
    ShutdownAllowed,
    ShutdownAsked,
    ShutdownTimedOut,
)
from kraftlog.telemetry.registry import Registry
from kraftpb.v1.admin_pb2 import BrokerHeartbeatResponse, Operation, OperationResult, RegisterBrokerResponse
from statemachine.apply.publishers import MetadataPublisher
from statemachine.query.descriptions import BrokerListener
from tests.kraftlog.broker.shell.membership_commands import FIRST_ID, heartbeat_line, registration_line
from tests.kraftlog.telemetry.recorder import Recorder
from tests.raft.by_hand import HandRuntime

CLUSTER_ID = "kraftlogTestClusterAAA"
NEVER_MS = 1e9


class ThreadsByHand(HandRuntime):
    """Its threads work when they are asked to."""

    def run(self) -> None:
        while self.soon:
            self.soon.popleft()()

    def work(self) -> None:
        """Do what waits for a thread, and what that leads to, until nothing does."""
        while self.on_disk or self.aside:
            if self.on_disk:
                self.run_disk_work()
            else:
                self.run_aside_work()
            self.run()


class ShownDecisions(Recorder):
    """Those that nothing else shows are lines of the transcript."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def decided(self, decision: Decision) -> None:
        super().decided(decision)
        match decision:
            case RegistrationRefused(_, error, _, is_final):
                self._lines.append(f"is not registered: {error}{', and ends' if is_final else ''}")
            case RegistrationLost(broker_epoch, error):
                self._lines.append(f"has lost its registration of epoch {broker_epoch}: {error}")
            case ShutdownAsked(timeout_ms):
                self._lines.append(f"asks to be let go, for {timeout_ms} ms")
            case ShutdownAllowed():
                self._lines.append("is let go")
            case ShutdownTimedOut():
                self._lines.append("is not let go in time")
            case LogsClosed(is_clean):
                self._lines.append(f"its logs are closed, {'each with its mark' if is_clean else 'not all well'}")
            case CleanShutdownMarked(broker_epoch):
                self._lines.append(f"marks the clean shutdown of epoch {broker_epoch}")


class Stage:
    """A broker's disks, the process that runs on them, and all that it reaches by ports."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self.files = MemoryFileSystem()
        self.runtime = ThreadsByHand()
        self.tables = tables_in_memory(empty_image(CLUSTER_ID))
        self.lines: list[str] = []
        self.observer = ShownDecisions(self.lines)
        self.shell: BrokerShell | None = None
        self.on_result: OnResult | None = None
        self.on_listening: Callable[[Mapping[str, int]], None] | None = None
        self.on_step_done: OnDone | None = None
        self.on_applied: tuple[int, OnDone] | None = None
        self._offset = 0
        self._ids = self._incarnations = 0

    @property
    def process(self) -> BrokerShell:
        assert self.shell is not None
        return self.shell

    def start(self) -> None:
        self.on_result = self.on_listening = self.on_step_done = self.on_applied = None
        directory = BrokerDirectory.open(self.files, "broker", 1)
        directory.claim(CLUSTER_ID, directory.directory_id or self.new_id())
        settings = ShellSettings(
            broker_id=1,
            rack=None,
            advertised=lambda ports: [BrokerListener(name, "localhost", port) for name, port in ports.items()],
            logs=LogsToOpen(
                cluster_id=CLUSTER_ID,
                broker_id=1,
                paths=self._paths,
                last_configs=self._last_configs,
                new_id=self.new_id,
                on_progress=lambda progress: None,
            ),
            parts=PartsSettings(
                broker_id=1,
                lag_max_ms=30_000,
                fetch=FetchSettings(),
                intervals=MaintenanceIntervals(
                    retention_ms=NEVER_MS,
                    checkpoint_ms=NEVER_MS,
                    high_watermarks_ms=NEVER_MS,
                    isr_ms=NEVER_MS,
                    producers_ms=NEVER_MS,
                    room_ms=NEVER_MS,
                ),
                assignments=AssignmentsPace(),
            ),
            pace=Pace(heartbeat_interval_ms=2_000),
        )
        ports = ShellPorts(
            runtime=self.runtime,
            files=self.files,
            controller=self,
            operations=self,
            connector=self,
            metadata=self,
            network=self,
            registry=Registry(),
            observer=self.observer,
            listeners=(),
        )
        self.shell = BrokerShell(
            settings, ports, self, directory=directory, cluster=ClusterView(CLUSTER_ID), configs=TopicConfigs(1, {})
        )
        self.lines.append("opens its logs")
        self.shell.start()

    @contextmanager
    def _last_configs(self) -> Iterator[LogConfigs]:
        yield lambda partition: TopicConfigs(1, {}).log_config(partition.topic)

    def new_id(self) -> UUID:
        self._ids += 1
        return UUID(int=FIRST_ID + self._ids)

    def connect(self, broker_id: int) -> object:
        raise NotImplementedError

    def step_done(self) -> None:
        """What the broker waits for at its end is done."""
        on_done, self.on_step_done = self.on_step_done, None
        assert on_done is not None
        on_done(None)

    # --- ControllerPort, OperationsPort -------------------------------------------------------------------------------

    def ask(self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False) -> None:
        assert self.on_result is None, "one thing is asked at a time"
        self.on_result = on_result
        if operation.HasField("register_broker"):
            self.lines.append(registration_line(operation.register_broker))
        else:
            self.lines.append(heartbeat_line(operation.broker_heartbeat))

    submit = ask

    def find_cluster(self, on_found: OnAnswer[str]) -> None:
        raise NotImplementedError

    # --- MetadataFeed -------------------------------------------------------------------------------------------------

    @property
    def applied_end_offset(self) -> int:
        return self._offset

    def follow(self) -> None:
        self.lines.append("follows the metadata")

    def wait_applied(self, end_offset: Offset, timeout_ms: float, on_done: OnDone) -> None:
        self.lines.append(f"waits for the metadata below {end_offset}")
        self.on_applied = (end_offset, on_done)

    def applied(self, offset: int) -> None:
        """The metadata is applied up to there."""
        self._offset = offset
        if self.on_applied is not None and offset >= self.on_applied[0]:
            (_, on_done), self.on_applied = self.on_applied, None
            on_done(None)

    def install_publisher(self, publisher: MetadataPublisher) -> None:
        self.lines.append("takes its partitions over")
        publisher.on_snapshot(Offset(0), self.tables.connection)

    def stop(self, on_stopped: OnDone) -> None:
        self._step("follows no more", on_stopped)

    # --- NetworkPort --------------------------------------------------------------------------------------------------

    def listen(self, on_listening: Callable[[Mapping[str, int]], None]) -> None:
        self.lines.append("listens")
        self.on_listening = on_listening

    def answer_pending(self, on_done: OnDone) -> None:
        self._step("answers what waits for the controller", on_done)

    def close(self, on_closed: OnDone) -> None:
        self._step("closes its connections", on_closed)

    def close_controller(self, on_closed: OnDone) -> None:
        self._step("asks the controller for nothing any more", on_closed)

    def _step(self, line: str, on_done: OnDone) -> None:
        self.lines.append(line)
        self.on_step_done = on_done

    # --- ShellHost ----------------------------------------------------------------------------------------------------

    def new_incarnation(self) -> UUID:
        self._incarnations += 1
        return UUID(int=self._incarnations)

    def show_progress(self, message: str) -> None:
        self.lines.append(f"tells: {message}")

    def opened(self, parts: Parts) -> None:
        self.lines.append("its logs are open")

    def serving(self) -> None:
        self.lines.append("serves")

    def heartbeat_answered(self, *, is_fenced: bool) -> None:
        self.lines.append(f"is {'fenced' if is_fenced else 'unfenced'}")

    def closed(self, error: BaseException | None, *, is_clean: bool) -> None:
        how = "in good order" if is_clean else "like a crash"
        self.lines.append(f"has ended, {how}{'' if error is None else f': {error}'}")


class Commands:
    """One file's."""

    def __init__(self, *paths: str) -> None:
        """The broker's log directories; one if none is named."""
        self._stage = stage = Stage(paths or ("logs",))
        self.observer = stage.observer
        self._commands: list[tuple[str, Callable[..., object]]] = [
            (r"start", stage.start),
            (r"disk", stage.runtime.work),
            (r"bound", self._bound),
            (r"accept (\d+)", self._accept),
            (r"applied (\d+)", lambda offset: stage.applied(int(offset))),
            (r"answer (fenced|unfenced|may go)", self._answer),
            (r"refuse (\w+)", lambda code: self._settle(ApiError(ErrorCode[code], "refused"))),
            (r"advance (\d+) ms", lambda duration_ms: stage.runtime.advance(int(duration_ms))),
            (r"shut down", lambda: stage.process.shut_down()),
            (r"close", lambda: stage.process.close()),
            (r"fail", lambda: stage.process.fail(LookupError("a bug"))),
            (r"logs lost", self._logs_lost),
            (r"(\w+) lost", self._directory_lost),
            (r"done", stage.step_done),
            (r"crash", self._crash),
            (r"empty disk", self._empty_disk),
        ]

    async def run(self, line: str) -> list[str]:
        """Run one command; returns its lines."""
        for pattern, execute in self._commands:
            found = re.fullmatch(pattern, line)
            if found is not None:
                execute(*found.groups())
                self._stage.runtime.run()
                self._stage.runtime.advance(0)
                lines = list(self._stage.lines)
                self._stage.lines.clear()
                return lines
        raise ValueError(f"there is no such command: {line}")

    def _bound(self) -> None:
        assert self._stage.on_listening is not None
        self._stage.on_listening({"PLAINTEXT": 9092})

    def _settle(self, result: OperationResult | ApiError) -> None:
        on_result, self._stage.on_result = self._stage.on_result, None
        assert on_result is not None
        on_result(result)

    def _accept(self, broker_epoch: str) -> None:
        self._settle(OperationResult(register_broker=RegisterBrokerResponse(broker_epoch=int(broker_epoch))))

    def _answer(self, answer: str) -> None:
        response = BrokerHeartbeatResponse(is_fenced=answer != "unfenced", should_shut_down=answer == "may go")
        self._settle(OperationResult(broker_heartbeat=response))

    def _directory_lost(self, path: str) -> None:
        logs = self._stage.process._logs
        assert logs is not None
        (directory,) = [of for of in logs.directories if of.path == path]
        directory.fail(StorageError("input/output error"))

    def _logs_lost(self) -> None:
        for directory in self._stage.process._logs.directories if self._stage.process._logs else ():
            directory.fail(StorageError("input/output error"))

    def _crash(self) -> None:
        self._stage.runtime.on_disk.clear()
        self._stage.runtime.aside.clear()
        self._stage.runtime.timers.clear()
        self._stage.files.crash()

    def _empty_disk(self) -> None:
        self._stage.files.rename_directory("logs", "elsewhere")
