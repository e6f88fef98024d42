"""The production controller, in a process that no fault of this world reaches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from typing import Final

from kraftbase.runtime import OnDone
from kraftlog.controller.controller import Controller
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.sim.broker_log.checkers.rules import GOES_ON
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.clock import Clock
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS, EventQueue, Timer
from kraftlog.sim.replication.metadata_log import MetadataLogAndTables
from kraftlog.sim.replication.parameters import ReplicationParameters
from kraftpb.v1.admin_pb2 import FeatureUpdate, Operation, OperationResult, UpdateFeaturesRequest
from statemachine.words.features import ELIGIBLE_LEADER_REPLICAS

BALANCE_SECONDS: Final = 7
UNCLEAN_CHECK_MS: Final = 3_000


class ControllerRuntime:
    """`kraftbase.runtime.Runtime` of a process that is never late."""

    def __init__(self, event_queue: EventQueue) -> None:
        self._queue = event_queue
        self._clock = Clock(offset_ms=0)

    def now_ms(self) -> float:
        """Return the monotonic time."""
        return self._clock.now_ms(self._queue.now_us)

    def wall_clock_ms(self) -> int:
        """Return the correct wall-clock time."""
        return self._clock.wall_clock_ms(self._queue.now_us)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` next."""
        self._queue.after(0, callback)

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` next."""
        self._queue.after(0, callback)

    def call_after_requests(self, callback: Callable[[], None]) -> None:
        """Run `callback` after a short delay."""
        self._queue.after(200, callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_ms`."""
        return self._queue.after(max(1, int(delay_ms * MICROSECONDS_PER_MS)), callback)

    def run_on_disk(self, work: Callable[[], None], on_done: OnDone) -> None:
        """Not called: the controller has no disk."""
        raise NotImplementedError

    def run_aside(self, work: Callable[[], None], on_done: OnDone) -> None:
        """Not called: the controller has no long work."""
        raise NotImplementedError


class SimulatedController:
    """The controller with its log and tables."""

    def __init__(self, parameters: ReplicationParameters, event_queue: EventQueue, random: Random) -> None:
        self.log = MetadataLogAndTables(event_queue, Random(random.getrandbits(64)))
        config = ControllerConfig(
            broker_session_timeout_ms=parameters.session_timeout_ms,
            leader_imbalance_check_interval_seconds=BALANCE_SECONDS,
            unclean_election_check_interval_ms=UNCLEAN_CHECK_MS,
        )
        self._controller = Controller(
            self.log, self.log, self.log, runtime=ControllerRuntime(event_queue),
            random=Random(random.getrandbits(64)), config=config, on_bug=_found_bug,
        )  # fmt: skip
        self.log.begin()
        if not parameters.has_eligible_leaders:
            off = FeatureUpdate(
                name=ELIGIBLE_LEADER_REPLICAS, level=0, upgrade_type=FeatureUpdate.UpgradeType.SAFE_DOWNGRADE
            )
            self.submit(Operation(update_features=UpdateFeaturesRequest(updates=[off])))

    def submit(self, operation: Operation, on_result: Callable[[OperationResult], None] = lambda result: None) -> None:
        """Carry out an operation. `on_result` must not call the controller."""
        self._controller.submit([operation], on_result)


def _found_bug(message: str, **details: object) -> None:
    raise Violation(f"{GOES_ON}: the controller reports a bug: {message} {details or ''}") from sys.exc_info()[1]
