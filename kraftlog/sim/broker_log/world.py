"""A disk, a broker on it that is killed and started again, and its promises."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, cast

from kraftbase.errors import FlushFailed, KraftlogError, StorageError
from kraftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kraftlog.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kraftlog.kafka.notation import Message
from kraftlog.sim.broker_log.broker import Broker
from kraftlog.sim.broker_log.checkers.batches import Batch, whole_batches
from kraftlog.sim.broker_log.checkers.durable import is_durable
from kraftlog.sim.broker_log.checkers.log_files import Aborted, aborted_transactions, read_log
from kraftlog.sim.broker_log.checkers.promises import FOR_EVER, PartitionPromises
from kraftlog.sim.broker_log.checkers.rules import ACKNOWLEDGED, GOES_ON, INDEXES, SOUND
from kraftlog.sim.broker_log.checkers.transactions import StableView, check_last_stable
from kraftlog.sim.broker_log.described import describe_replicas
from kraftlog.sim.broker_log.file_damage import FileDamage, FilesToDamage
from kraftlog.sim.broker_log.index_corruption import corrupt_index
from kraftlog.sim.broker_log.metadata import Metadata, Topic, rules_of
from kraftlog.sim.broker_log.parameters import LogParameters, TopicParameters
from kraftlog.sim.broker_log.process import SYNCS, BrokerProcess
from kraftlog.sim.engine.event_world import EventWorld
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.clock import Clock
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.disk import QUICK_SYNC_US, Disk
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from statemachine.replay.deltas import MetadataDelta

EARLIEST: Final = -2
NO_ERROR: Final = 0
READ_COMMITTED: Final = 1
STEADILY_SLOW_SYNC_US: Final = (3_000, 12_000)
LOOK_UPS: Final = 3
"""How many offsets and times of each partition are looked up in a check."""
KILLED_BY_THEN: Final = 60
"""A process that is to be killed between two file operations is killed within this many operations."""


class World(EventWorld):
    """The world of one run."""

    def __init__(self, parameters: LogParameters, marks: Marks, *, echo: bool = False) -> None:
        super().__init__(Random(f"world of a broker's log {parameters.seed}"), marks, echo=echo)
        self.parameters = parameters
        self.clock = Clock(offset_ms=self.random.randrange(1_000_000))
        self.disk = Disk(self.new_random())
        self.corrupt_indexes: set[str] = set()
        """Paths of indexes in which a bit has changed. Only the results of look-ups in them are checked."""
        self.mend_slow_disk()
        self.metadata = Metadata(parameters.partitions)
        self.promises: dict[tuple[bytes, int], PartitionPromises] = {}
        """The promises of all existing topics."""
        self.failing_directory = ""
        """The directory in which every write and sync fails; empty: none."""
        self.lost_answers_rate = 0.02
        self.next_crash = Crash.KILLED
        """How the process ends if it is killed within a step."""
        self.kills_at_start = False
        self.while_down: Callable[[], None] | None = None
        """Called once, when the process has ended."""
        self.damage: FileDamage | None = None
        """The damage to files, until the log is unchanged again."""
        self.damage_was_put_back = False
        self.files_to_damage = FilesToDamage(
            self.disk.files, [f"logs-{number}" for number in range(parameters.directories)], self.corrupt_indexes
        )
        self.process = BrokerProcess(self)
        self.broker: Broker | None = None
        """The broker of the running process, once it serves."""
        self._starting: Broker | None = None
        """The broker of the running process, from its start on."""
        self._segments_deleted = 0
        """How many segments retention has deleted in this process, as far as they were noted."""
        self._past_checks = 0
        self._has_lost_power = False
        self._has_failed_disk = False
        self._trouble_since_us: int | None = None

    def mend_slow_disk(self) -> None:
        """Reset the duration of syncs to the normal one of this run."""
        self.disk.sync_us = STEADILY_SLOW_SYNC_US if self.parameters.has_slow_disk else QUICK_SYNC_US

    # --- topics -------------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, parameters: TopicParameters) -> None:
        """Create a topic, and notify the broker."""
        deltas = self.metadata.create(name, parameters)
        topic = self.metadata.topics[name]
        slack_ms = 2 * self.parameters.maintain_interval_ms + 2_000
        for index in range(self.parameters.partitions):
            self.promises[topic.topic_id, index] = PartitionPromises(f"{name}-{index}", rules_of(parameters, slack_ms))
        self.deliver(deltas)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its promises."""
        topic = self.metadata.topics[name]
        deltas = self.metadata.delete(name)
        for index in range(self.parameters.partitions):
            self._past_checks += self.promises.pop((topic.topic_id, index)).checks
        self.deliver(deltas)

    def deliver(self, deltas: list[MetadataDelta]) -> None:
        """Pass deltas to the broker that runs or starts."""
        broker = self._starting
        if broker is not None:
            self.process.run(lambda: broker.on_deltas(deltas))

    def promises_of(self, topic: Topic, index: int) -> PartitionPromises | None:
        """Return the promises about a partition; None if it was deleted."""
        return self.promises.get((topic.topic_id, index))

    # --- the broker ---------------------------------------------------------------------------------------------------

    def step(self, work: Callable[[Broker], None]) -> None:
        """Call `work` with the broker in a step of its process. Nothing happens if no broker is reachable."""
        process = self.process

        def do() -> None:
            broker = self._reached(process)
            if broker is not None:
                work(broker)

        process.run(do)

    def _reached(self, process: BrokerProcess) -> Broker | None:
        """Return the broker of the process until it closes its connections. Later changes to its logs would be lost."""
        broker = self.broker
        return broker if broker is not None and broker.process is process and not broker.is_closed else None

    def start_broker(self) -> None:
        """Start a process. Its clock is correct, and a failed disk has been repaired."""
        self.clock.wall_offset_ms = 0
        self._note_hindered_flushes()
        self.failing_directory = ""
        self._has_failed_disk = False
        self._end_trouble()
        self.process = BrokerProcess(self)
        self.disk.files.before_operation = self.process.before_operation
        if self.kills_at_start:
            self.kill_within(self.next_crash)
            self.kills_at_start = False
        self.process.run(self._open)

    def _open(self) -> None:
        try:
            self._starting = Broker(self, self.process, self.disk.files, self.parameters, self.metadata)
        except (StorageError, FlushFailed):  # such as a full disk
            self.process.has_ended = True
        else:
            self._starting.shell.start()

    def serving(self, broker: Broker) -> None:
        """Check a broker that has taken its partitions over."""
        self.broker = broker
        self._segments_deleted = 0
        self.note(f"the broker has started, after {self.process.operations} operations on files")
        self.marks.hit("the broker started")
        self.files_to_damage.copy_checkpoints()
        self._check_damage(broker)
        self.check(broker)
        self._has_lost_power = False
        self._every(self.parameters.maintain_interval_ms, self._look)

    def _every(self, interval_ms: int, work: Callable[[Broker], None]) -> None:
        """Let the present process call `work` at an interval."""
        process = self.process

        def do() -> None:
            broker = self._reached(process)
            if broker is not None:
                work(broker)
                process.after(interval_ms * MICROSECONDS_PER_MS, do)

        process.after(interval_ms * MICROSECONDS_PER_MS, do)

    def _look(self, broker: Broker) -> None:
        deleted = broker.parts.maintenance.segments_deleted - self._segments_deleted
        if deleted:
            self._segments_deleted += deleted
            self.marks.hit("segments were deleted")
            self.note(f"{deleted} segments were deleted")
        self.check(broker)

    def kill_within(self, crash: Crash) -> None:
        """Kill the process before one of its next file operations."""
        self.next_crash = crash
        self.process.operations_left = self.random.randrange(KILLED_BY_THEN)

    def process_ended(self) -> None:
        """End a process that was killed within a step or has shut down."""
        if self.process.is_killed:
            self.marks.hit("killed between two operations" if self.broker is not None else "killed at its start")
        self.end_broker(self.next_crash)

    def end_broker(self, crash: Crash) -> None:
        """End the process in the given way. Another one starts after a while."""
        self.process.has_ended = True
        self.broker = self._starting = None
        self.disk.files.before_operation = None
        self.disk.crash(crash)
        self.note(f"the broker has ended: {crash}")
        self.marks.hit(f"ended: {crash}")
        if crash is not Crash.KILLED:
            self._has_lost_power = True
            self._note_hindered_flushes()
            for promises in self.promises.values():
                if promises.power_lost(self.event_queue.now_us):
                    self.marks.hit("what was not flushed was lost")
        self.event_queue.after(self.random.choice([1, 100, 1_000]) * MICROSECONDS_PER_MS, self.start_broker)
        work, self.while_down = self.while_down, None
        if work is not None:
            work()

    def shut_down(self) -> None:
        """Shut the broker down."""
        if self._starting is not None:
            self.process.run(self._starting.shell.shut_down)

    def closed(self, broker: Broker, error: BaseException | None, *, is_clean: bool) -> None:
        """Record that the broker has shut down."""
        if error is not None and not isinstance(error, KraftlogError | FlushFailed):
            raise error
        is_clean = is_clean and not self.has_trouble and not broker.has_lost_directories
        for promises in self.promises.values() if is_clean else ():
            promises.all_is_durable(self.event_queue.now_us)
        self.marks.hit("shut down cleanly" if is_clean else "shut down with trouble")
        self.process.has_ended = True
        self.next_crash = self.random.choice([Crash.KILLED, Crash.NOTHING_KEPT])

    def end_in_peace(self) -> None:
        """Shut the broker down with an intact disk. It is started again."""
        self.make_room()
        self.shut_down()

    @property
    def checks(self) -> int:
        """How many checks were made."""
        return self._past_checks + sum(promises.checks for promises in self.promises.values())

    def describe_nodes(self) -> list[str]:
        """Return a line for the broker and each of its replicas."""
        if self.broker is None:
            return ["the broker is down, or starts"]
        return ["the broker serves", *describe_replicas(self.broker.partitions)]

    @property
    def has_trouble(self) -> bool:
        """Whether flushes may fail."""
        return self._has_failed_disk or self.disk.files.space_limit is not None

    def fail_directory(self, number: int) -> None:
        """Fail every change in a log directory until the broker is started again."""
        self.failing_directory = f"logs-{number}"
        self._has_failed_disk = True
        self._begin_trouble()

    def fill_disk(self, free_bytes: int) -> None:
        """Limit the free space of the disk to `free_bytes`."""
        self.disk.files.space_limit = self.disk.files.used_bytes() + free_bytes
        self._begin_trouble()

    def corrupt_index(self, random: Random) -> bool:
        """Change a bit of an index on disk. Return False if no index has an entry there."""
        path = corrupt_index(self.disk.files, self.parameters.directories, random)
        if path is not None:
            self.corrupt_indexes.add(path)
        return path is not None

    def damage_files(self, kind: str, random: Random) -> bool:
        """Damage some log, while the broker is down. Return False if no log is suitable."""
        found = [
            (directory, partition, entry) for directory, partition, entry in self.files_to_damage.logs()
            if partition.topic in self.metadata.topics
            and self.metadata.topics[partition.topic].topic_id == entry.topic_id.bytes
        ]  # fmt: skip
        if not found or self.present_damage is not None:
            return False
        self.damage = self.files_to_damage.damage(kind, *random.choice(found), random)
        if self.damage is None:
            return False
        self.damage_was_put_back = False
        self.marks.hit(f"damaged {kind}")
        self.note(f"{kind}: {self.damage.path}")
        return True

    def put_files_back(self) -> None:
        """Put the files of the damaged log back, as an operator."""
        damage = self.present_damage
        if damage is not None:
            if self.broker is not None:
                self.end_broker(Crash.KILLED)
            damage.put_back(self.disk.files)
            self.damage_was_put_back = True
            self.note(f"the files of {damage.path} are put back")

    def make_room(self) -> None:
        """End the limit of the disk's space."""
        self._note_hindered_flushes()
        self.disk.files.space_limit = None
        self._end_trouble()

    def _note_hindered_flushes(self) -> None:
        for promises in self.promises.values() if self._trouble_since_us is not None else ():
            promises.flushes_were_hindered(self._trouble_since_us or 0, self.event_queue.now_us)

    def _begin_trouble(self) -> None:
        if self._trouble_since_us is None:
            self._trouble_since_us = self.event_queue.now_us

    def _end_trouble(self) -> None:
        if not self.has_trouble:
            self._trouble_since_us = None

    def before_operation(self, operation: str, path: str) -> None:
        """Fail an operation on a file of the failing directory. Raises FlushFailed, StorageError."""
        if self.failing_directory and path.startswith(self.failing_directory):
            self.marks.hit("an operation failed")
            if operation in SYNCS:
                raise FlushFailed(f"{operation} of {path} failed: input/output error: injected")
            raise StorageError(f"{operation} of {path} failed: input/output error: injected")

    # --- checks -------------------------------------------------------------------------------------------------------

    def told_of(self, topic: Topic, index: int, base_offset: int, content: bytes, title: str) -> None:
        """Check a batch that a client learns of: with `flush.before.ack` it must be durable. Raises Violation."""
        promises = self.promises_of(topic, index)
        path = None if self.broker is None else self.broker.path_of(topic, index)
        if promises is None or path is None or not promises.rules.flush_before_ack or base_offset < promises.start:
            return
        if not is_durable(self.disk.files, path, base_offset, content):
            raise Violation(
                f"{title}: {promises.name}: the batch at {base_offset} is not durable when the response leaves"
            )

    def check(self, broker: Broker) -> None:
        """Compare files and look-ups with the promises. Raises Violation."""
        for damaged, reason in broker.damaged:
            if not self._is_lost(damaged):
                raise Violation(f"{SOUND}: {reason}")
        for topic in self.metadata.topics.values():
            for index in range(self.parameters.partitions):
                promises = self.promises[topic.topic_id, index]
                path = broker.path_of(topic, index)
                if path is not None:
                    self._check_one(broker, topic, index, promises, path)
                elif not self._has_failed_disk and promises.by_offset and not self._is_lost((topic.name, index)):
                    partition = broker.partitions.with_id(topic.topic_id, index)
                    reason = "" if partition is None else partition.offline_reason
                    raise Violation(f"{ACKNOWLEDGED}: {promises.name} is offline, but its disk is intact: {reason}")

    @property
    def present_damage(self) -> FileDamage | None:
        """The damage of a log that is still changed or missing, and whose topic was not deleted since."""
        damage = self.damage
        if damage is not None:
            topic = self.metadata.topics.get(damage.partition.topic)
            if topic is None or topic.topic_id != damage.topic_id.bytes:
                self.damage = None
        return self.damage

    def _is_lost(self, partition: tuple[str, int]) -> bool:
        """Whether records of a log are missing, which makes it offline."""
        damage = self.present_damage
        return damage is not None and damage.is_loss and damage.partition == partition

    def _check_damage(self, broker: Broker) -> None:
        """Check that a log whose files were damaged or put back is unchanged.

        While files are missing it may be offline.
        """
        damage = self.present_damage
        if damage is None or (damage.is_loss and not self.damage_was_put_back):
            return
        log = broker.open_log(damage.partition)
        if log is not None:
            damage.check(self.disk.files, log)
            self.marks.hit(f"as it was, after '{damage.kind}'")
            self.damage = None

    def _check_one(self, broker: Broker, topic: Topic, index: int, promises: PartitionPromises, path: str) -> None:
        start = self._look_up_time(broker, topic, index, EARLIEST)
        promises.started(start)
        batches = read_log(self.disk.files, path, self.corrupt_indexes)
        promises.found(batches, self.true_ms, has_lost_power=self._has_lost_power)
        self._check_last_stable(broker, topic, index, batches, promises.name)
        kept = [batch for batch in batches if batch.last_offset >= max(promises.start, 0)]
        for batch in self.random.sample(kept, min(LOOK_UPS, len(kept))):
            self._compare_time(broker, topic, index, batch.max_timestamp_ms, kept, promises)
            if batch.last_offset in promises.owners:
                self._compare_offset(broker, topic, index, batch.last_offset, promises)
        aborted = [
            transaction for transaction in aborted_transactions(batches) if transaction.first_offset >= promises.start
        ]
        for transaction in self.random.sample(aborted, min(LOOK_UPS, len(aborted))):
            self._compare_aborted(broker, topic, index, transaction, promises)

    def _check_last_stable(self, broker: Broker, topic: Topic, index: int, batches: list[Batch], name: str) -> None:
        partition = broker.partitions.with_id(topic.topic_id, index)
        if partition is not None and partition.log is not None:
            log = partition.log
            view = StableView(log.log_start_offset, log.high_watermark, log.last_stable_offset)
            check_last_stable(name, batches, view)

    def _compare_time(
        self, broker: Broker, topic: Topic, index: int, timestamp_ms: int, kept: list[Batch],
        promises: PartitionPromises,
    ) -> None:  # fmt: skip
        """Check that a look-up by time finds the first batch that a scan finds.

        The leader must know what is committed.
        """
        if self._waits_for_flush(broker, topic, index):
            return
        expected = next(batch for batch in kept if batch.max_timestamp_ms >= timestamp_ms)
        found = self._look_up_time(broker, topic, index, timestamp_ms)
        is_hidden = found < 0 and expected.last_offset not in promises.owners
        if not is_hidden and not expected.base_offset <= found <= expected.last_offset:
            raise Violation(
                f"{INDEXES}: {promises.name}: a scan finds {timestamp_ms} at {expected.base_offset} to"
                f" {expected.last_offset}, but ListOffsets at {found}"
            )
        promises.checks += 1

    def _waits_for_flush(self, broker: Broker, topic: Topic, index: int) -> bool:
        """Whether the leader's epoch starts above the high watermark, because a full disk has prevented a flush."""
        partition = broker.partitions.with_id(topic.topic_id, index)
        log = None if partition is None else partition.log
        if log is None or not log.config.flush_before_ack or log.recovery_point == log.log_end_offset:
            return False
        return log.high_watermark < log.epochs.entries()[-1][1]

    def _look_up_time(self, broker: Broker, topic: Topic, index: int, timestamp_ms: int) -> int:
        partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp_ms)
        body = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic.name, partitions=(partition,)),))
        found = cast(ListOffsetsResponse, self._ask_now(broker, body)).topics[0].partitions[0]
        if found.error_code != NO_ERROR:
            raise Violation(f"{ACKNOWLEDGED}: {topic.name}-{index} is online, but ListOffsets gets {found.error_code}")
        return found.offset

    def _compare_offset(
        self, broker: Broker, topic: Topic, index: int, offset: int, promises: PartitionPromises
    ) -> None:
        """Check that a Fetch finds the batch with an offset."""
        response = cast(FetchResponse, self._ask_now(broker, fetch_request(topic, index, offset, 1, 0)))
        found = response.responses[0].partitions[0]
        batches = whole_batches(found.records or b"")
        if found.error_code != NO_ERROR or not batches:
            raise Violation(f"{ACKNOWLEDGED}: {promises.name}: a Fetch from {offset} gets error {found.error_code}")
        promises.read(offset, batches, found.high_watermark, found.log_start_offset, self.event_queue.now_us)

    def _compare_aborted(
        self, broker: Broker, topic: Topic, index: int, aborted: Aborted, promises: PartitionPromises
    ) -> None:
        """Check that a reader of committed records gets the aborted transaction with its records."""
        request = fetch_request(topic, index, aborted.first_offset, 1, 0)
        request.isolation_level = READ_COMMITTED
        found = cast(FetchResponse, self._ask_now(broker, request)).responses[0].partitions[0]
        starts = [
            transaction.first_offset
            for transaction in found.aborted_transactions or ()
            if transaction.producer_id == aborted.producer_id
        ]
        is_told = aborted.first_offset in starts or (
            aborted.may_begin_earlier and min(starts, default=FOR_EVER) < aborted.first_offset
        )
        if found.records and not is_told:
            raise Violation(f"{INDEXES}: {promises.name}: a reader does not get {aborted}, only {starts}")
        if found.records:
            self.marks.hit("a reader got an aborted transaction")

    def _ask_now(self, broker: Broker, body: Message) -> Message:
        answers: list[Message | None] = []
        broker.handle(body, answers.append)
        if not answers or answers[0] is None:
            raise Violation(f"{GOES_ON}: {type(body).__name__} got no response although it has nothing to wait for")
        return answers[0]


def fetch_request(topic: Topic, index: int, offset: int, bytes_max: int, max_wait_ms: int) -> FetchRequest:
    """Return a Fetch of one partition, without a session."""
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=bytes_max,
        topics=(FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=(partition,)),),
    )  # fmt: skip
