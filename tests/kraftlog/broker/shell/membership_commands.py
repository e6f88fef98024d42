"""The commands of the transcripts of a broker's membership (how to write one: `tests.transcripts`).

    start                         a process of broker 1 starts: it has one log directory, and a directory of its own
    cluster found                 the nodes answer, the first time that it asks
    accept 7                      the controller registers it with epoch 7; with `, an older copy` it knows better
    disk                          what waits for the thread of the disk is done
    applied 12                    how far it has applied the metadata
    answer fenced                 to a heartbeat; also unfenced, may go
    refuse STALE_BROKER_EPOCH     the answer to what it asks is this error
    advance 200 ms                time passes
    connection lost               that to the controller
    shut down                     it is asked to
    end                           the process ends, and all its logs are closed; with `, logs not closed` they are not
    crash                         the process is gone, and what was not synced

What it does is a line; nothing is one if it waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.registered_epochs import RegisteredEpochs
from kraftlog.broker.shell.membership import Candidacy, Membership, Pace
from kraftlog.broker.shell.ports import OnAnswer, OnResult
from kraftlog.telemetry.observer import Decision
from kraftpb.v1.admin_pb2 import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    LogDirSpace,
    Operation,
    OperationResult,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from statemachine.query.descriptions import BrokerListener
from tests.raft.by_hand import HandRuntime

CLUSTER_ID = "kraftlogTestClusterAAA"
FIRST_ID = 2**100
LOG_DIR = UUID(int=FIRST_ID + 1)


class DiskByHand(HandRuntime):
    """Its disk's thread works when it is asked to."""

    def run(self) -> None:
        while self.soon:
            self.soon.popleft()()


@dataclass
class LogDirectory:
    """One that is in use, as far as epochs go."""

    path: str = "/logs"
    directory_id: UUID = LOG_DIR
    offline_reason: str = ""

    def note_registration(self, broker_epoch: int) -> None:
        """Its inventory knows."""

    def fail(self, error: BaseException) -> None:
        self.offline_reason = str(error)


class Stage:
    """A broker's disk, the process that runs on it, and the controller that it asks."""

    def __init__(self, files: MemoryFileSystem | None = None) -> None:
        self.files = files or MemoryFileSystem()
        self.files.make_directories("/logs")
        self.runtime = DiskByHand()
        self.lines: list[str] = []
        self.membership: Membership | None = None
        self.directory: BrokerDirectory | None = None
        self.on_result: OnResult | None = None
        self.on_cluster: OnAnswer[str] | None = None
        self.metadata_offset = 0
        self.decisions: list[Decision] = []
        self._incarnations = 0

    def start(self, epochs: RegisteredEpochs | None = None) -> None:
        self.directory = BrokerDirectory.open(self.files, "/broker", 1)
        self.on_result = self.on_cluster = None
        self.metadata_offset = 0
        self.membership = Membership(
            candidacy=Candidacy(1, [BrokerListener("PLAINTEXT", "localhost", 9092)], None, [LOG_DIR]),
            pace=Pace(heartbeat_interval_ms=2_000),
            directory=self.directory,
            epochs=epochs or RegisteredEpochs(self.files, [LogDirectory()], self.runtime),
            controller=self,
            runtime=self.runtime,
            host=self,
        )
        self.membership.start()

    def settle(self, result: OperationResult | ApiError) -> None:
        """Answer what it asks."""
        on_result, self.on_result = self.on_result, None
        assert on_result is not None
        on_result(result)

    def end(self, clean_epoch: int | None) -> None:
        """The process ends by itself."""
        self.process.stop()
        assert self.directory is not None
        self.directory.close(clean_epoch)

    @property
    def process(self) -> Membership:
        assert self.membership is not None
        return self.membership

    # --- ControllerPort -----------------------------------------------------------------------------------------------

    def ask(self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False) -> None:
        assert self.on_result is None, "one thing is asked at a time"
        self.on_result = on_result
        if operation.HasField("register_broker"):
            self.lines.append(registration_line(operation.register_broker))
        else:
            self.lines.append(heartbeat_line(operation.broker_heartbeat))

    def find_cluster(self, on_found: OnAnswer[str]) -> None:
        self.lines.append("asks which cluster this is")
        self.on_cluster = on_found

    # --- MembershipHost -----------------------------------------------------------------------------------------------

    def new_incarnation(self) -> UUID:
        self._incarnations += 1
        return UUID(int=self._incarnations)

    def read_metadata_offset(self, on_read: OnAnswer[int]) -> None:
        on_read(self.metadata_offset)

    def offline_log_dirs(self) -> Sequence[bytes]:
        return ()

    def log_dir_space(self) -> Sequence[LogDirSpace]:
        return ()

    def show_progress(self, message: str) -> None:
        self.lines.append(f"tells: {message}")

    def decided(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def registration_accepted(self, broker_epoch: int) -> None:
        self.lines.append(f"is registered with epoch {broker_epoch}")

    def heartbeat_answered(self, *, is_fenced: bool) -> None:
        self.lines.append(f"is {'fenced' if is_fenced else 'unfenced'}")

    def released(self) -> None:
        self.lines.append("may go")

    def membership_ended(self, error: BaseException) -> None:
        self.lines.append(f"cannot go on: {error}")


def registration_line(request: RegisterBrokerRequest) -> str:
    incarnation = UUID(bytes=request.incarnation_id).int
    is_clean = request.HasField("previous_broker_epoch")
    clean = f", clean shutdown of epoch {request.previous_broker_epoch}" if is_clean else ""
    epochs = ", ".join("no epoch" if epoch < 0 else f"epoch {epoch}" for epoch in request.log_dir_epochs)
    numbers = ", ".join(map(directory_number, request.log_dirs))
    return f"registers as incarnation {incarnation}{clean}, its log directory {numbers} has {epochs}"


def directory_number(directory_id: bytes) -> str:
    """Log directories are numbered by their ids."""
    return str(UUID(bytes=directory_id).int - FIRST_ID)


def heartbeat_line(request: BrokerHeartbeatRequest) -> str:
    leaving = ", wants to shut down" if request.want_shut_down else ""
    lost = "".join(f", log directory {directory_number(of)} is lost" for of in request.offline_log_dirs)
    applied = request.current_metadata_offset
    return f"heartbeat of epoch {request.broker_epoch}, metadata applied to {applied}{leaving}{lost}"


class Commands:
    """One file's."""

    def __init__(self) -> None:
        self._stage = Stage()
        self.decisions = self._stage.decisions
        self._commands: list[tuple[str, Callable[..., object]]] = [
            (r"start", lambda: self._stage.start()),
            (r"cluster found", self._cluster_found),
            (r"accept (\d+)(, an older copy)?", self._accept),
            (r"disk", lambda: self._stage.runtime.run_disk_work()),
            (r"applied (\d+)", self._applied),
            (r"answer (fenced|unfenced|may go)", self._answer),
            (r"refuse (\w+)", self._refuse),
            (r"advance (\d+) ms", lambda duration_ms: self._stage.runtime.advance(int(duration_ms))),
            (r"connection lost", lambda: self._stage.process.tell_now()),
            (r"shut down", lambda: self._stage.process.leave()),
            (r"end(, logs not closed)?", self._end),
            (r"crash", self._crash),
        ]

    async def run(self, line: str) -> list[str]:
        """Run one command; returns its lines."""
        for pattern, execute in self._commands:
            found = re.fullmatch(pattern, line)
            if found is not None:
                execute(*found.groups())
                self._stage.runtime.advance(0)
                lines, self._stage.lines = self._stage.lines, []
                return lines
        raise ValueError(f"there is no such command: {line}")

    def _cluster_found(self) -> None:
        assert self._stage.on_cluster is not None
        self._stage.on_cluster(CLUSTER_ID)

    def _accept(self, broker_epoch: str, is_older: str | None) -> None:
        older = [LOG_DIR.bytes] if is_older else []
        answer = RegisterBrokerResponse(broker_epoch=int(broker_epoch), older_log_dirs=older)
        self._stage.settle(OperationResult(register_broker=answer))

    def _applied(self, offset: str) -> None:
        self._stage.metadata_offset = int(offset)

    def _answer(self, answer: str) -> None:
        response = BrokerHeartbeatResponse(is_fenced=answer != "unfenced", should_shut_down=answer == "may go")
        self._stage.settle(OperationResult(broker_heartbeat=response))

    def _refuse(self, code: str) -> None:
        self._stage.settle(ApiError(ErrorCode[code], "refused"))

    def _end(self, not_closed: str | None) -> None:
        clean_epoch = None if not_closed else self._stage.process.clean_epoch
        self._stage.end(clean_epoch)
        how = "like a crash" if clean_epoch is None else f"clean, epoch {clean_epoch}"
        self._stage.lines.append(f"ends: {how}")

    def _crash(self) -> None:
        self._stage.process.stop()  # nothing of it runs on
        self._stage.runtime.on_disk.clear()
        self._stage.files.crash()
