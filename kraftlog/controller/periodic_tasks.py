"""What the active controller does by itself (CT-19): silent brokers are fenced, one at a time; leadership returns to
the preferred replicas, and leaves those whose disk is full (CT-66); partitions without a leader whose topic allows it
get an unclean one; an idle log gets a NoOp.

If nothing can be written for some seconds the leader resigns in favor of another voter (CT-29).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import structlog

from kraftbase.runtime import Timer
from kraftbase.sentinels import NO_LEADER
from kraftbase.types import Offset
from kraftlog.controller.broker_control import fence_silent, resume_unfinished
from kraftlog.controller.decisions import Decision, DecisionContext
from kraftlog.controller.full_disks import leaderships_to_room
from kraftlog.controller.operations.elections import elect_preferred_where_needed, elect_unclean_where_allowed
from kraftlog.controller.paged_writes import REFUSED_PAUSE_MS
from kraftlog.controller.rules.hand_over import HandOver
from kraftlog.controller.rules.pages import PAGE_PARTITIONS, Pages, PartitionPages, led_by, where
from kraftpb.v1.metadata_pb2 import MetadataRecord, NoOpRecord
from statemachine.metadata.state import MetadataState
from statemachine.tables.topic_tables import NOT_LED_BY_PREFERRED

ROOM_CHECK_INTERVAL_MS: Final = 1_000.0

FULL_DISKS_CHECK_INTERVAL_MS: Final = 10_000.0
"""A broker that reports a full disk loses leaderships at once. This task is for replicas that could not lead then."""

FENCED_BY_SESSION: Final = "fenced broker whose session expired"
"""The log line of such a fence."""

logger = structlog.get_logger(__name__)


class ActiveController(Protocol):
    """The part of the controller that periodic tasks use."""

    @property
    def state(self) -> MetadataState:
        """The latest metadata."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether the controller is active."""
        ...

    @property
    def unavailable_reason(self) -> str | None:
        """Why committed records cannot be applied here, None while they can."""
        ...

    @property
    def no_room_reason(self) -> str | None:
        """Why the log has refused the last append for lack of room, None if it did not."""
        ...

    def execute(self, decision: Decision) -> bool:
        """Append the records of a decision; return False if it has to wait."""
        ...

    def resign(self) -> None:
        """Resign, so that another node can lead."""
        ...


class PeriodicTasks:
    """The tasks of one controller. None runs while it is not active."""

    def __init__(self, controller: ActiveController, context: DecisionContext) -> None:
        self._controller = controller
        self._context = context
        self._timers: dict[str, Timer] = {}
        self._under_way: set[str] = set()
        """The tasks whose pages are not all appended."""
        self._last_append_ms = 0.0
        self._hand_over = HandOver()

    def start(self) -> None:
        """The controller is active."""
        self.stop()
        state, context = self._controller.state, self._context
        context.heartbeats.take_over(state.brokers().values(), context.runtime.now_ms())
        context.departing.clear()
        context.failed_directories.clear()
        context.disk_space.clear()
        context.mutation_quotas.look_up_again()
        for decision in resume_unfinished(state, context):
            self._controller.execute(decision)
        self.watch_sessions()
        self._hand_over.begin()
        self._repeat("room", ROOM_CHECK_INTERVAL_MS, self._look_for_room)
        config = context.config
        if config.auto_leader_rebalance_enable:
            self._repeat("balance", config.leader_imbalance_check_interval_seconds * 1_000, self._balance)
        self._repeat("full disks", FULL_DISKS_CHECK_INTERVAL_MS, self._look_for_full_disks)
        self._repeat("unclean", config.unclean_election_check_interval_ms, self._elect_unclean)
        if config.metadata_max_idle_interval_ms:
            self._repeat("idle", config.metadata_max_idle_interval_ms, self._append_if_idle)

    def stop(self) -> None:
        """The controller is no longer active."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._under_way.clear()

    def appended(self) -> None:
        """Records were appended."""
        self._last_append_ms = self._context.runtime.now_ms()

    # --- silent brokers -----------------------------------------------------------------------------------------------

    def watch_sessions(self, least_ms: float = 0.0) -> None:
        """Check again when the next session may expire, not before `least_ms`; to be called when a session begins."""
        deadline_ms = self._context.heartbeats.next_deadline_ms
        if deadline_ms is None or "sessions" in self._timers or not self._controller.is_active:
            return  # a timer that is set fires early, if anything
        delay_ms = max(least_ms, deadline_ms - self._context.runtime.now_ms())
        self._timers["sessions"] = self._context.runtime.call_later(delay_ms, self._fence_stale)

    def _fence_stale(self) -> None:
        self._timers.pop("sessions", None)
        context = self._context
        broker_id = context.heartbeats.stale_broker(context.runtime.now_ms())
        is_done = True
        if broker_id is not None:
            broker = self._controller.state.broker(broker_id)
            is_done = self._controller.execute(fence_silent(self._controller.state, broker_id, context))
            if is_done:
                timeouts = context.heartbeats.timeouts  # CT-30
                epoch = None if broker is None else broker.broker_epoch
                logger.warning(FENCED_BY_SESSION, broker_id=broker_id, epoch=epoch, timeouts=timeouts)
        self.watch_sessions(0.0 if is_done else REFUSED_PAUSE_MS)

    # --- from time to time --------------------------------------------------------------------------------------------

    def _repeat(self, name: str, interval_ms: float, task: Callable[[], None]) -> None:
        if not self._controller.is_active:
            return  # leadership has just been lost

        def run() -> None:
            self._timers[name] = self._context.runtime.call_later(interval_ms, run)
            task()

        self._timers[name] = self._context.runtime.call_later(interval_ms, run)

    def _balance(self) -> None:
        # Kafka holds 1,000 elections at a time, the next ones right after those (CT-19); pages are smaller, and yield,
        # too.
        state = self._controller.state
        pages = PartitionPages(
            [where(state, NOT_LED_BY_PREFERRED)],
            lambda page: elect_preferred_where_needed(state, page, PAGE_PARTITIONS),
        )
        self._look_through("balance", pages)

    def _look_for_full_disks(self) -> None:
        state, context = self._controller.state, self._context
        full = [of.broker_id for of in state.brokers().values() if of.full_log_dirs and not of.fenced]
        if full and context.disk_space.is_there_any:
            self._look_through("full disks", leaderships_to_room(state, full, context))

    def _elect_unclean(self) -> None:
        state = self._controller.state
        pages = PartitionPages(
            [led_by(state, NO_LEADER)], lambda page: elect_unclean_where_allowed(state, page, PAGE_PARTITIONS)
        )
        self._look_through("unclean", pages)

    def _look_through(self, name: str, pages: Pages) -> None:
        """Start `pages` in the background, unless those of the previous time are still in progress."""
        if name in self._under_way:
            return

        def on_done(end_offset: Offset) -> None:
            self._under_way.discard(name)

        self._under_way.add(name)
        if not self._controller.execute(Decision([], pages=pages, on_done=on_done, in_background=True)):
            self._under_way.discard(name)

    def _look_for_room(self) -> None:
        """Resign if nothing can be written here."""
        controller = self._controller
        if controller.no_room_reason is not None:
            controller.execute(Decision([MetadataRecord(no_op=NoOpRecord())]))  # there may be room again
        reason = controller.unavailable_reason or controller.no_room_reason
        has_others = bool(self._context.other_voter_ids())
        if self._hand_over.is_due(reason is not None and has_others, self._context.runtime.now_ms()):
            logger.warning("resigned so that another voter leads: nothing can be written here", reason=reason)
            controller.resign()

    def _append_if_idle(self) -> None:
        idle_ms = self._context.runtime.now_ms() - self._last_append_ms
        if idle_ms >= self._context.config.metadata_max_idle_interval_ms:
            self._controller.execute(Decision([MetadataRecord(no_op=NoOpRecord())]))
