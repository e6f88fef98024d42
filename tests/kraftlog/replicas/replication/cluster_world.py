"""Several brokers without sockets that follow each other: real logs, fetchers and handlers, one clock by hand."""

from __future__ import annotations

import heapq
import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.runtime import Timer
from kraftbase.types import Offset
from kraftlog.broker.apis.fetch import FetchApi
from kraftlog.broker.apis.lookups import PartitionLookup
from kraftlog.broker.apis.offsets import ListOffsetsApi
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from kraftlog.broker.quotas.client_quotas import ClientQuotas
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.codec import decode, encode
from kraftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData
from kraftlog.kafka.messages.list_offsets import ListOffsetsRequest
from kraftlog.kafka.notation import Message, Versions
from kraftlog.network.requests import ClientRequest, RequestContext
from kraftlog.replicas.partitions.fetch_sessions import FetchSessionCache
from kraftlog.replicas.partitions.partition import Partition, Replication
from kraftlog.replicas.partitions.partitions import Partitions, reraise
from kraftlog.replicas.replication.follower import FetchSettings, Follower
from kraftlog.replicas.replication.isr_changes import Controller, IsrChanges
from kraftlog.replicas.replication.isr_changes import OnAnswer as OnIsrAnswer
from kraftlog.replicas.replication.ports import OnAnswer
from kraftlog.replicas.replication.replica_fetchers import ReplicaFetchers
from kraftlog.replicas.replication.throttle import ReplicationQuota
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.partition_log import PartitionLog
from kraftpb.v1.admin_pb2 import AlterPartitionRequest
from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.database import open_database
from tests.kraftlog.broker.broker_world import registration, replicas, topic
from tests.kraftlog.broker.services import services
from tests.kraftlog.storage.builders import CLUSTER_ID, StepRuntime, all_batches, batch
from tests.kraftlog.telemetry.recorder import Recorder
from tests.statemachine.builders import an_id
from tests.statemachine.builders import batch as metadata_batch
from tests.statemachine.states import write_new_database

A, B, C = 1, 2, 3
LAG_MAX_MS = 30_000
SETTINGS = FetchSettings()
BACKOFF_MS = SETTINGS.backoff_ms
WAIT_MS = SETTINGS.wait_max_ms


class _Due(NamedTuple):
    due_ms: float
    number: int
    timer: ClockTimer


class ClockTimer:
    """A timer of the clock."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ClockRuntime(StepRuntime):
    """Timers fire when a test lets time pass."""

    def __init__(self) -> None:
        super().__init__()
        self._due: list[_Due] = []
        self._numbers = itertools.count()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        timer = ClockTimer(callback)
        heapq.heappush(self._due, _Due(self.clock_ms + delay_ms, next(self._numbers), timer))
        return timer

    def pass_ms(self, time_ms: float) -> None:
        """Let so much time pass; everything that can happen in it happens."""
        end_ms = self.clock_ms + time_ms
        self.run()
        while self._due and self._due[0].due_ms <= end_ms:
            due_ms, _, timer = heapq.heappop(self._due)
            self.clock_ms = max(self.clock_ms, due_ms)
            if timer.callback is not None:
                timer.callback()
            self.run()
        self.clock_ms = end_ms


class Wire:
    """A connection of one broker to another."""

    def __init__(self, cluster: Cluster, source: int, target: int) -> None:
        self._cluster = cluster
        self._source = source
        self._target = cluster.brokers[target]
        self._incarnation = self._target.incarnation
        self.waiting: list[OnAnswer] = []
        self.is_closed = False
        self._on_client_done: list[Callable[[], None]] = []
        cluster.wires.append(self)

    @property
    def ends(self) -> tuple[int, int]:
        return self._source, self._target.broker_id

    def ask(self, request: Message, versions: Versions, on_answer: OnAnswer) -> None:
        self._cluster.asked(*self.ends, request)
        self.waiting.append(on_answer)
        if request.KEY in self._cluster.lacking:
            refusal = ApiError(ErrorCode.UNSUPPORTED_VERSION, "it is not offered")
            self._cluster.runtime.call_soon(lambda: self._refuse(on_answer, refusal))
            return
        self._cluster.runtime.call_soon(lambda: self._deliver(request, versions.highest, on_answer))

    def _refuse(self, on_answer: OnAnswer, refusal: ApiError) -> None:
        if on_answer in self.waiting:
            self.waiting.remove(on_answer)
            on_answer(refusal)

    def close(self) -> None:
        self.is_closed = True
        self.waiting.clear()
        self._cluster.runtime.call_soon(self._hurry)

    def _hurry(self) -> None:
        for told in self._on_client_done:
            told()

    def _deliver(self, request: Message, version: int, on_answer: OnAnswer) -> None:
        if on_answer not in self.waiting:
            return
        if self.is_closed or self._cluster.is_cut(*self.ends) or not self._target.is_alive(self._incarnation):
            self.break_off()
            return
        api = api_of(request.KEY)
        received = decode(api.request, version, bytearray(encode(request, version)))

        def reply(response: Message | None, throttle_ms: int = 0) -> None:
            assert response is not None
            answer = decode(api.response, version, bytearray(encode(response, version)))
            self._cluster.runtime.call_soon(lambda: self._answer(request, answer, on_answer))

        context = RequestContext("127.0.0.1", "PLAINTEXT", "follower")
        handled = ClientRequest(api, version, received, context, 100, self._on_client_done)
        self._target.handle(handled, reply)

    def _answer(self, request: Message, answer: Message, on_answer: OnAnswer) -> None:
        if on_answer not in self.waiting:
            return
        if self._cluster.holds(*self.ends, lambda: self._answer(request, answer, on_answer)):
            return
        self.waiting.remove(on_answer)
        on_answer(self._cluster.answered(*self.ends, answer))

    def break_off(self) -> None:
        """The connection is gone."""
        waiting, self.waiting = self.waiting, []
        self.is_closed = True
        self._cluster.broken_off(*self.ends)
        for on_answer in waiting:
            on_answer(ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {self._target.broker_id} is gone"))


class Member:
    """One broker, with what is on its disk."""

    def __init__(self, cluster: Cluster, broker_id: int, directory: Path) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.files = MemoryFileSystem()
        self.incarnation = 0
        self._directory = directory
        self._is_running = False

    def is_alive(self, incarnation: int) -> bool:
        return self._is_running and self.incarnation == incarnation

    def start(self) -> None:
        """Start with what is on the disk, and all of the metadata."""
        self.incarnation += 1
        self._is_running = True
        runtime = self.cluster.runtime
        path = self._directory / f"{self.broker_id}-{self.incarnation}"
        path.mkdir()
        self.tables = MetadataTables(
            open_database(write_new_database(path / "metadata.db", CLUSTER_ID), CLUSTER_ID).conn
        )
        weakref.finalize(self.tables, self.tables.connection.close)
        self.configs = TopicConfigs(self.broker_id, {})
        self.view = ClusterView(CLUSTER_ID)
        self.logs = LogManager.open(
            self.files, self.cluster.log_paths, runtime, cluster_id=CLUSTER_ID, node_id=self.broker_id,
            config_of=lambda partition: self.configs.log_config(partition.topic),
        )  # fmt: skip
        self.observer = Recorder()
        self.fetchers = ReplicaFetchers(
            Follower(
                broker_id=self.broker_id, broker_epoch=lambda: self.broker_id, logs=self.logs, runtime=runtime,
                connector=self, settings=self.cluster.settings, throttle=self.configs,
                quota=ReplicationQuota(runtime.now_ms()), on_gone=self.view.doubt, on_back=self.view.trust,
                observer=self.observer,
            )
        )  # fmt: skip
        self.isr_changes = IsrChanges(
            self.broker_id, lambda: self.broker_id, self.cluster.controller, runtime, self.observer
        )
        self.partitions = Partitions(
            self.logs, self.configs,
            Replication(
                self.broker_id, self.view, LAG_MAX_MS, runtime.now_ms, self.isr_changes.ask, self.observer
            ),
            followers=self.fetchers, listeners=(), on_placed=lambda partition, directory_id: None, on_failed=reraise,
        )  # fmt: skip
        lookup = PartitionLookup(self.partitions, self.view)
        self.sessions = FetchSessionCache(itertools.count(1 + 1_000 * self.incarnation).__next__)
        has = services(
            lookup=lookup, runtime=runtime, usage=QuotaUsage(ClientQuotas()), sessions=self.sessions,
            observer=self.observer,
        )  # fmt: skip
        self.fetch, self.list_offsets = FetchApi(has), ListOffsetsApi(has)
        for records in self.cluster.metadata:
            self._apply(records)
        self.tables.take_deltas()
        for publisher in (self.view, self.configs, self.partitions):
            publisher.on_snapshot(Offset(self.tables.applied.end_offset), self.tables.connection)

    def _apply(self, records: Sequence[MetadataRecord]) -> None:
        self.tables.apply([metadata_batch(self.tables.applied.end_offset, records)], note_delta=True)

    def learn(self, records: Sequence[MetadataRecord]) -> None:
        """Apply what was committed."""
        self._apply(records)
        for delta in self.tables.take_deltas():
            for publisher in (self.view, self.configs, self.partitions):
                publisher.on_delta(delta)

    def kill(self, *, loses_power: bool = False) -> None:
        """End it at once; with the power everything goes that was not flushed."""
        self._is_running = False
        self.fetchers.stop()
        self.isr_changes.stop()
        if loses_power:
            self.files.crash()
        else:
            self.files.end_process()
        for wire in self.cluster.wires:
            if wire.ends[1] == self.broker_id and not wire.is_closed:
                wire.break_off()

    def connect(self, broker_id: int) -> Wire:
        """As a LeaderConnector."""
        return Wire(self.cluster, self.broker_id, broker_id)

    def handle(self, request: ClientRequest, reply: Callable[..., None]) -> None:
        match request.body:
            case FetchRequest():
                self.fetch.handle(request, reply)
            case ListOffsetsRequest():
                self.list_offsets.handle(request, reply)

    # --- its replica of a partition -----------------------------------------------------------------------------------

    def replica(self, index: int = 0, number: int = 1) -> Partition:
        found = self.partitions.with_id(an_id(number), index)
        assert found is not None
        return found

    def log(self, index: int = 0, number: int = 1) -> PartitionLog:
        return self.replica(index, number).online_log()

    def append(self, value: bytes = b"value", count: int = 1, index: int = 0, *, flushes: bool = True) -> int:
        """Append a batch as the leader; returns its base offset."""
        replica = self.replica(index)
        log = replica.online_log()
        base_offset = log.append_as_leader(
            batch(count, value=value), replica.leader_epoch, self.cluster.runtime.wall_clock_ms()
        ).base_offset
        if flushes:
            log.flush()
        replica.appended()
        replica.raise_high_watermark()
        return base_offset

    def batches(self, index: int = 0) -> list[bytes]:
        """Everything in its log."""
        return all_batches(self.log(index))


class SilentController:
    """It answers no request for another ISR."""

    def alter_partition(self, request: AlterPartitionRequest, on_answer: OnIsrAnswer) -> None:
        """Do nothing."""


class Cluster:
    """Brokers, what is committed, and the network between them."""

    def __init__(
        self, directory: Path, brokers: Sequence[int], settings: FetchSettings = SETTINGS,
        controller: Controller | None = None, log_paths: Sequence[str] = ("data",),
    ) -> None:  # fmt: skip
        self.runtime = ClockRuntime()
        self.settings = settings
        self.controller = SilentController() if controller is None else controller
        self.log_paths = log_paths
        self.metadata: list[Sequence[MetadataRecord]] = []
        self.wires: list[Wire] = []
        self.requests: list[tuple[int, int, Message]] = []
        """Who has asked whom what."""
        self.lacking: set[int] = set()
        """Keys of APIs that no broker offers."""
        self._cut: set[tuple[int, int]] = set()
        self._held: dict[tuple[int, int], list[Callable[[], None]]] = {}
        self._tamper: Callable[[PartitionData], None] | None = None
        self.brokers: Mapping[int, Member] = {number: Member(self, number, directory) for number in brokers}

    def __getitem__(self, broker_id: int) -> Member:
        return self.brokers[broker_id]

    def start(self, *records: MetadataRecord) -> None:
        """Start all brokers with what `records` make."""
        self.metadata.append(records)
        for member in self.brokers.values():
            member.start()

    def commit(self, *records: MetadataRecord, to: Sequence[int] | None = None) -> None:
        """Commit records, and have brokers apply them: those given, or all that run. The others do when they start."""
        self.metadata.append(records)
        for member in self.brokers.values():
            if member.is_alive(member.incarnation) and (to is None or member.broker_id in to):
                member.learn(records)

    def settle(self, time_ms: float = 2_000) -> None:
        """Let everything happen that happens in so much time."""
        self.runtime.pass_ms(time_ms)

    # --- the network --------------------------------------------------------------------------------------------------

    def cut(self, source: int, target: int) -> None:
        """Break the connections of one broker to another, and refuse new ones."""
        self._cut.add((source, target))
        for wire in self.wires:
            if wire.ends == (source, target) and not wire.is_closed:
                wire.break_off()

    def mend(self) -> None:
        """Refuse no connections any more."""
        self._cut.clear()

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cut

    def hold(self, source: int, target: int) -> None:
        """Hold the answers on their way from `target` back to `source`."""
        self._held[source, target] = []

    def release(self, source: int, target: int) -> None:
        """Deliver them."""
        for deliver in self._held.pop((source, target)):
            deliver()

    def holds(self, source: int, target: int, deliver: Callable[[], None]) -> bool:
        held = self._held.get((source, target))
        if held is None:
            return False
        held.append(deliver)
        return True

    def change_answers(self, change: Callable[[PartitionData], None] | None) -> None:
        """Change what leaders say of partitions."""
        self._tamper = change

    def asked(self, source: int, target: int, request: Message) -> None:
        """A broker asks another something."""
        self.requests.append((source, target, request))

    def broken_off(self, source: int, target: int) -> None:
        """A connection of one broker to another is gone."""

    def answered(self, source: int, target: int, answer: Message) -> Message:
        """What the broker `source` is answered by `target`, as a test wants it."""
        if self._tamper is not None and isinstance(answer, FetchResponse):
            for topic in answer.responses:
                for data in topic.partitions:
                    self._tamper(data)
        return answer

    def fetches(self, source: int, target: int) -> list[FetchRequest]:
        """The fetches of a broker from another so far."""
        return [
            request
            for found_source, found_target, request in self.requests
            if (found_source, found_target) == (source, target) and isinstance(request, FetchRequest)
        ]

    def positions(self, source: int, target: int) -> list[FetchPartition]:
        """The partitions in these, in order."""
        return [
            partition
            for request in self.fetches(source, target)
            for topic in request.topics
            for partition in topic.partitions
        ]


def two_brokers(tmp_path: Path, *records: MetadataRecord) -> Cluster:
    """Broker A leads partition 0 of clicks, and B follows."""
    cluster = Cluster(tmp_path, [A, B])
    cluster.start(registration(A), registration(B), topic("clicks"), replicas(on=[A, B], epoch=0), *records)
    return cluster


def led_by(leader: int, epoch: int, *, on: tuple[int, ...] = (A, B), index: int = 0) -> MetadataRecord:
    return replicas(on=on, leader=leader, epoch=epoch, index=index)
