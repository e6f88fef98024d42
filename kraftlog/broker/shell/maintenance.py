"""The periodic work of a broker, once it has taken over its partitions."""

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
    """How often each kind of work is done, in milliseconds."""

    retention_ms: float
    """Delete segments that retention no longer keeps, and check for failed logs."""
    checkpoint_ms: float
    """Write down how far logs are flushed."""
    high_watermarks_ms: float
    """Write down the high watermarks."""
    isr_ms: float
    """Remove lagging followers from ISRs: half of `replica.lag.time.max.ms`, as in Kafka (DB-15)."""
    producers_ms: float
    """Forget producers that have been idle for too long."""
    room_ms: float
    """Measure the room in log directories."""


class Maintenance:
    """The periodic work of one broker. Not thread-safe."""

    def __init__(
        self,
        logs: LogManager,
        partitions: Partitions,
        intervals: MaintenanceIntervals,
        producer_expiration_ms: Callable[[], int],
        runtime: Runtime,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_failed` is called with an error that no log directory has caused: the broker must end."""
        self.room = LogDirRoom(logs)
        """The report to the controller about the room in log directories."""
        self.segments_deleted = 0
        """The number of segments that retention has deleted."""
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
        """Begin. The room is measured at once, because the first heartbeat of a serving broker reports it."""
        for repeated in self._others:
            repeated.start()
        self._measuring.start(is_due=True)

    def stop(self) -> None:
        """Stop all periodic work."""
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
    """Wrap `work` so that it runs as a single step."""

    def steps() -> Steps:
        work()
        return
        yield

    return steps
