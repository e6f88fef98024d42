"""The commands of the transcripts of replication (how to write one: `tests.transcripts`).

    brokers 1 2 3                  they start; topic clicks has partition 0, replicas on all, led by the first
    partitions 2                   from the next `brokers` on, clicks has so many
    one batch in an answer         from the next `brokers` on, a partition's share of an answer is so small
    log directories 2              from the next `brokers` on, each broker has so many
    leader 2 in epoch 1, isr 2 3   the metadata says so of clicks-0, and all brokers that run learn it
    only 2 learns: leader ...      the same, which the other brokers learn when they start
    topic follower.replication.throttled.replicas = *    a config of clicks
    broker 2 follower.replication.throttled.rate = 5     a config of a broker
    append a to 1                  broker 1 appends a batch as the leader, and has it on its disk; `b to clicks-1 at 1`
    lag check at 1                 broker 1 looks who is not caught up
    advance 10 ms                  time passes
    kill 1; start 1                its process ends at once; it starts again
    cut 2->1; mend                 nothing passes from 2 to 1; all connections can be made again
    hold 2->1; release 2->1        answers to 2 stay on their way
    controller accepts             what it is asked for; the metadata does not say it yet
    controller refuses FENCED_LEADER_EPOCH
    the disk of clicks-0 at 1 fails
    twin of 2 uses session 1 at 1  a request comes twice: the session's epoch is another one
    1 evicts session 1             the leader gives the session's slot to somebody else
    log 1                          the values in its log

Messages between brokers are lines, as is what a broker logs, and what has changed of the replicas of clicks-0 after a
command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from kraftbase.errors import ApiError, ErrorCode, StorageError
from kraftlog.kafka.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_batch import read_batches
from kraftlog.replicas.replication.follower import FetchSettings
from kraftlog.replicas.replication.isr_changes import OnAnswer
from kraftpb.v1.admin_pb2 import AlterPartitionRequest, AlterPartitionResponse, AlterPartitionResult
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.words.resources import ResourceType
from tests.kraftlog.broker.broker_world import registration, topic
from tests.kraftlog.replicas.replication.cluster_world import Cluster, Member
from tests.statemachine.builders import an_id, config

NOT_SAID = frozenset({"event", "log_level", "partition", "leader"})
QUIET = ("a log is created", "log directory", "a partition's log", "inventor")
"""What brokers log of their logs' start."""


class Stage(Cluster):
    """Brokers, and what is seen of them."""

    def __init__(
        self, directory: Path, brokers: Sequence[int], directories: int, bytes_max: int, lines: list[str]
    ) -> None:
        paths = ["data"] if directories == 1 else [f"disk{number}" for number in range(1, directories + 1)]
        super().__init__(directory, brokers, FetchSettings(max_bytes=bytes_max), controller=self, log_paths=paths)
        self.lines = lines
        self.isr_request: tuple[AlterPartitionRequest, OnAnswer] | None = None
        self.partition_epoch = 0
        self.states: dict[int, str] = {}

    # --- what is seen -------------------------------------------------------------------------------------------------

    def asked(self, source: int, target: int, request: Message) -> None:
        super().asked(source, target, request)
        if isinstance(request, FetchRequest):
            which = "a full Fetch" if request.session_epoch <= 0 else "Fetch"
            session = f", session {request.session_id} epoch {request.session_epoch}" if request.session_id else ""
            asked = [
                f"clicks-{one.partition} from {one.fetch_offset} (last epoch {one.last_fetched_epoch},"
                f" leader epoch {one.current_leader_epoch})"
                for found in request.topics
                for one in found.partitions
            ]
            asked += [
                f"no more clicks-{one}" for forgotten in request.forgotten_topics_data for one in forgotten.partitions
            ]
            self.lines.append(f"{source}->{target} {which}{session}: {', '.join(asked) or 'as before'}")
        else:
            self.lines.append(f"{source}->{target} {type(request).__name__.removesuffix('Request')}")

    def answered(self, source: int, target: int, answer: Message) -> Message:
        if isinstance(answer, FetchResponse):
            told = [data_line(data) for found in answer.responses for data in found.partitions]
            error = ErrorCode(answer.error_code).name if answer.error_code else ""
            session = f" session {answer.session_id}:" if answer.session_id else ""
            self.lines.append(f"{target}->{source}{session} {error or ', '.join(told) or 'nothing new'}")
        return super().answered(source, target, answer)

    def broken_off(self, source: int, target: int) -> None:
        self.lines.append(f"{source}->{target} the connection is gone")

    def alter_partition(self, request: AlterPartitionRequest, on_answer: OnAnswer) -> None:
        """As the controller of all brokers: the answer is a command."""
        for asked in request.partitions:
            isr = " ".join(str(member.broker_id) for member in asked.new_isr)
            self.lines.append(
                f"{request.broker_id}->controller AlterPartition: leader epoch {asked.leader_epoch}, partition epoch"
                f" {asked.partition_epoch}, isr {isr}"
            )
        self.isr_request = (request, on_answer)

    def logged(self, logger: object, level: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """A line that a broker logs, as a processor of structlog."""
        event = str(entry["event"])
        if not any(word in event for word in QUIET):
            details = ", ".join(f"{key} {value}" for key, value in sorted(entry.items()) if key not in NOT_SAID)
            self.lines.append(f"logged: {event}" + (f" ({details})" if details else ""))
        raise structlog.DropEvent

    def show_changes(self) -> None:
        """What has changed of the replicas since this was called last."""
        for member in self.brokers.values():
            state = replica_line(member) if member.is_alive(member.incarnation) else "is down"
            if self.states.get(member.broker_id) != state:
                self.states[member.broker_id] = state
                self.lines.append(f"{member.broker_id} {state}")


def data_line(data: PartitionData) -> str:
    """What a leader answers of one partition."""
    name = f"clicks-{data.partition_index}"
    if data.error_code:
        return f"{name} {ErrorCode(data.error_code).name}"
    if data.diverging_epoch.epoch >= 0:
        return f"{name} DivergingEpoch: epoch {data.diverging_epoch.epoch} ends at {data.diverging_epoch.end_offset}"
    count = sum(1 for _ in read_batches(data.records or b""))
    return f"{name} {count} {'batch' if count == 1 else 'batches'}, high watermark {data.high_watermark}"


def replica_line(member: Member) -> str:
    """The replica of clicks-0."""
    replica = member.replica()
    if replica.log is None:
        return f"is offline: {replica.offline_reason}"
    leading = replica.leading
    if leading is not None:
        pending = "" if leading.pending is None else f", asks for {sorted(leading.pending.isr)}"
        role = f"leads epoch {replica.leader_epoch} with ISR {list(leading.isr)}{pending}"
    else:
        role = f"follows {replica.record.leader} in epoch {replica.leader_epoch}"
    log = replica.log
    return f"{role}: log {log.log_start_offset} to {log.log_end_offset}, high watermark {log.high_watermark}"


class Commands:
    """One file's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: Stage | None = None
        self._lines: list[str] = []
        self._partitions = self._directories = 1
        self._bytes_max = 1024 * 1024
        self._commands: list[tuple[str, Callable[..., object]]] = [
            (r"brokers ([\d ]+)", self._brokers),
            (r"partitions (\d+)", lambda count: setattr(self, "_partitions", int(count))),
            (r"one batch in an answer", lambda: setattr(self, "_bytes_max", 1)),
            (r"log directories (\d+)", lambda count: setattr(self, "_directories", int(count))),
            (r"(?:only (\d) learns: )?leader (-?\d) in epoch (\d+), isr ([\d ]+)", self._leader),
            (r"topic (\S+) = (\S+)", lambda name, value: self._stage.commit(config("clicks", name, value))),
            (r"broker (\d) (\S+) = (\S+)", self._broker_config),
            (r"append (\w+) to (?:clicks-(\d) at )?(\d)", self._append),
            (r"lag check at (\d)", lambda broker: self._stage[int(broker)].partitions.check_isrs()),
            (r"advance (\d+) ms", lambda duration_ms: self._stage.settle(int(duration_ms))),
            (r"kill (\d)", lambda broker: self._stage[int(broker)].kill()),
            (r"start (\d)", lambda broker: self._stage[int(broker)].start()),
            (r"cut (\d)->(\d)", lambda source, target: self._stage.cut(int(source), int(target))),
            (r"mend", lambda: self._stage.mend()),
            (r"hold (\d)->(\d)", lambda source, target: self._stage.hold(int(source), int(target))),
            (r"release (\d)->(\d)", lambda source, target: self._stage.release(int(source), int(target))),
            (r"controller accepts", lambda: self._controller(ErrorCode.NONE)),
            (r"controller refuses (\w+)", lambda code: self._controller(ErrorCode[code])),
            (r"the disk of clicks-0 at (\d) fails", self._disk_fails),
            (r"twin of (\d) uses session (\d+) at (\d)", self._twin),
            (r"(\d) evicts session (\d+)", lambda at, number: self._stage[int(at)].sessions.remove(int(number))),
            (r"log (\d)", self._log),
        ]

    @property
    def _stage(self) -> Stage:
        assert self._known is not None, "begin with brokers"
        return self._known

    async def run(self, line: str) -> list[str]:
        """Run one command; returns its lines."""
        for pattern, execute in self._commands:
            found = re.fullmatch(pattern, line)
            if found is None:
                continue
            before = structlog.get_config()["processors"]
            structlog.configure(processors=[self._logged])
            try:
                execute(*found.groups())
                if self._known is not None:
                    self._stage.runtime.run()
                    self._stage.show_changes()
            finally:
                structlog.configure(processors=before)
            lines = self._lines.copy()
            self._lines.clear()
            return lines
        raise ValueError(f"there is no such command: {line}")

    def _logged(self, logger: object, level: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return self._stage.logged(logger, level, entry)

    # --- commands -----------------------------------------------------------------------------------------------------

    def _brokers(self, numbers: str) -> None:
        brokers = [int(number) for number in numbers.split()]
        self._known = Stage(self._directory, brokers, self._directories, self._bytes_max, self._lines)
        self._stage.start(
            topic("clicks"),
            *(registration(broker) for broker in brokers),
            *(self._record(brokers[0], 0, brokers, index) for index in range(self._partitions)),
        )

    def _record(self, leader: int, epoch: int, isr: Sequence[int], index: int = 0) -> MetadataRecord:
        return MetadataRecord(
            partition=PartitionRecord(
                topic_id=an_id(1), partition_id=index, replicas=list(self._stage.brokers), isr=isr, leader=leader,
                leader_epoch=epoch, partition_epoch=self._stage.partition_epoch,
            )
        )  # fmt: skip

    def _leader(self, only: str | None, leader: str, epoch: str, isr: str) -> None:
        self._stage.partition_epoch += 1
        record = self._record(int(leader), int(epoch), [int(number) for number in isr.split()])
        self._stage.commit(record, to=[int(only)] if only else None)

    def _broker_config(self, broker: str, name: str, value: str) -> None:
        self._stage.commit(config(broker, name, value, ResourceType.BROKER))

    def _append(self, value: str, index: str | None, broker: str) -> None:
        try:
            self._stage[int(broker)].append(value.encode(), index=int(index or 0))
        except ApiError as error:
            self._lines.append(f"{broker} refuses it: {error}")

    def _controller(self, code: ErrorCode) -> None:
        assert self._stage.isr_request is not None, "the controller is asked for nothing"
        (request, on_answer), self._stage.isr_request = self._stage.isr_request, None
        results = [
            AlterPartitionResult(
                topic_id=asked.topic_id, partition_id=asked.partition_id, error_code=code, error_message="refused",
                leader=request.broker_id, leader_epoch=asked.leader_epoch,
                isr=[member.broker_id for member in asked.new_isr], partition_epoch=asked.partition_epoch + 1,
            )
            for asked in request.partitions
        ]  # fmt: skip
        if code is ErrorCode.NONE:
            self._stage.partition_epoch += 1
        on_answer(AlterPartitionResponse(partitions=results))

    def _disk_fails(self, broker: str) -> None:
        """What the broker's shell does then (`kraftlog.broker.shell.broker_shell`) is to look at the logs."""
        member = self._stage[int(broker)]
        directory = member.logs.directory_of(member.replica().name)
        assert directory is not None
        directory.fail(StorageError("input/output error"))
        member.partitions.check_logs()
        lost = [of.path for of in member.logs.directories if of.offline_reason]
        self._lines.append(f"{broker} has to tell the controller that it has lost {', '.join(lost)}")

    def _twin(self, broker: str, session_id: str, at: str) -> None:
        session = self._stage[int(at)].sessions.get(int(session_id))
        assert session is not None, f"{at} has no session {session_id}"
        session.advance()

    def _log(self, broker: str) -> None:
        found = [
            f"{record.offset}: {(record.value or b'').decode()} (epoch {one.partition_leader_epoch})"
            for data in self._stage[int(broker)].batches()
            for one in read_batches(data)
            for record in one.records()
        ]
        self._lines.append(f"{broker} has {', '.join(found) or 'nothing'}")
