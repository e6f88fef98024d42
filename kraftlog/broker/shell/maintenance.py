"""What a broker does from time to time, once it has taken its partitions over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraftbase.runtime import Runtime
from kraftlog.broker.log_dir_space import LogDirRoom
from kraftlog.broker.shell.repeated import Repeated, Steps
from kraftlog.replicas.partitions.partitions import Partitions
from kraftlog.storage.log_manager import LogManager


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceIntervals:
    """How often each is done, in milliseconds."""

    retention_ms: float
    """Segments that are kept no longer are deleted, and failed logs looked for."""
    checkpoint_ms: float
    """It is written down how far logs are flushed."""
    high_watermarks_ms: float
    """It is written down what is committed."""
    isr_ms: float
    """Followers that lag leave ISRs: half of `replica.lag.time.max.ms`, as in Kafka (DB-15)."""
    producers_ms: float
    """Producers that have been idle for too long are forgotten."""
    room_ms: float
    """The room in log directories is measured."""


class Maintenance:
    """Of one broker. For one thread."""

    def __init__(
        self,
        logs: LogManager,
        partitions: Partitions,
        intervals: MaintenanceIntervals,
        producer_expiration_ms: Callable[[], int],
        runtime: Runtime,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_failed` is called with what no log directory can be blamed for: the broker cannot go on."""
        self.room = LogDirRoom(logs)
        """What the controller is told of the room in log directories."""
        self.segments_deleted = 0
        """How many segments retention has deleted."""
        self._logs = logs
        self._partitions = partitions
        self._producer_expiration_ms = producer_expiration_ms

        def every(interval_ms: float, work: Callable[[], Steps]) -> Repeated:
            return Repeated(runtime, interval_ms, work, on_failed)

        self._measuring = every(intervals.room_ms, at_once(self.room.measure))
        self._others = [
            every(intervals.retention_ms, self._maintain),
            every(intervals.checkpoint_ms, at_once(logs.checkpoint)),
            every(intervals.high_watermarks_ms, at_once(logs.checkpoint_high_watermarks)),
            every(intervals.isr_ms, at_once(partitions.check_isrs)),
            every(intervals.producers_ms, at_once(self._forget_producers)),
        ]

    def start(self) -> None:
        """Begin; the room is measured at once, since the first heartbeat of a broker that serves tells it."""
        for repeated in self._others:
            repeated.start()
        self._measuring.start(is_due=True)

    def stop(self) -> None:
        """Do nothing of it any more."""
        for repeated in (*self._others, self._measuring):
            repeated.stop()

    def _maintain(self) -> Steps:
        for deleted in self._logs.maintain_in_steps():
            self.segments_deleted += deleted
            yield deleted
        self._partitions.check_logs()

    def _forget_producers(self) -> None:
        self._logs.forget_producers(self._producer_expiration_ms())


def at_once(work: Callable[[], object]) -> Callable[[], Steps]:
    """The same work, in one step."""

    def steps() -> Steps:
        work()
        return
        yield

    return steps
