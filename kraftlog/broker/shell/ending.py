"""The order in which a broker ends, when other replicas lead its partitions or after an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from kraftbase.runtime import OnDone, Runtime
from kraftbase.sentinels import UNKNOWN_EPOCH
from kraftlog.broker.shell.failures import FATAL
from kraftlog.broker.shell.parts import Parts
from kraftlog.broker.shell.ports import MetadataFeed, NetworkPort
from kraftlog.storage.log_manager import LogManager
from kraftlog.telemetry.observer import BrokerObserver, LogsClosed

logger = structlog.get_logger(__name__)

Step = Callable[[OnDone], object]
"""Begins a step, and calls back when the step has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingPorts:
    """What the end of a broker needs."""

    runtime: Runtime
    network: NetworkPort
    metadata: MetadataFeed
    leave_metadata: Callable[[], None]
    """Stops applying changes of the metadata."""
    clean_epoch: Callable[[], int | None]
    """Returns the epoch for the next start if all logs are closed; None: the start counts as one after a crash."""
    observer: BrokerObserver
    on_closed: Callable[[bool], None]
    """Called last, with whether all logs were closed cleanly."""


class Ending:
    """The end of one broker. Not thread-safe."""

    def __init__(self, logs: LogManager | None, parts: Parts | None, ports: EndingPorts) -> None:
        """`logs` and `parts` are None if the broker ends before it has them."""
        self._logs, self._parts, self._ports = logs, parts, ports
        self._is_clean = True
        self._steps = self._all_steps()

    def start(self) -> None:
        """Begin with the first step."""
        self._next(None)

    def _next(self, error: BaseException | None) -> None:
        """Begin the next step, even after one that failed: the logs must be closed in any case."""
        if error is not None:
            self._failed(error)
        try:
            step = next(self._steps, None)
            if step is not None:
                step(self._next)
                return
        except FATAL as failure:
            self._failed(failure)
        self._ports.on_closed(self._is_clean)

    def _failed(self, error: BaseException) -> None:
        logger.error("broker did not end cleanly: its next start recovers its logs", exc_info=error)
        self._is_clean = False

    def _all_steps(self) -> Iterator[Step]:
        parts, ports = self._parts, self._ports
        if parts is not None:
            parts.fetchers.stop()
            parts.isr_changes.stop()
            yield ports.network.answer_pending  # while the answers can still be sent
            yield ports.network.close
            parts.assignments.stop()
            yield ports.network.close_controller
            ports.leave_metadata()
            parts.maintenance.stop()
            yield ports.metadata.stop  # nothing else may touch the logs while they are closed, in a thread
        if self._logs is not None:
            self._logs.stop_work()  # from here on the only flushes are those that an append waits for
            yield self._wait_for_disk  # the work in progress in the disk's thread has ended
            while not all(directory.commits.is_idle for directory in self._logs.online):
                yield self._wait_for_disk
            yield self._close_logs

    def _wait_for_disk(self, on_done: OnDone) -> None:
        self._ports.runtime.run_on_disk(lambda: None, on_done)

    def _close_logs(self, on_done: OnDone) -> None:
        logs, clean_epoch = self._logs, self._ports.clean_epoch()

        are_clean = False

        def close() -> None:
            nonlocal are_clean
            if logs is not None:
                are_clean = logs.close(UNKNOWN_EPOCH if clean_epoch is None else clean_epoch)

        def closed(error: BaseException | None) -> None:
            self._is_clean &= are_clean
            self._ports.observer.decided(LogsClosed(are_clean))
            on_done(error)

        self._ports.runtime.run_aside(close, closed)
