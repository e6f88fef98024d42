"""Advances a node's log start when retention requires it and no reader needs the records below (KIP-630, KAFKA-14932).

The rules are in `snapshot.log_start_policy`; this module collects the node's state, carries out the decisions, and
remembers which readers hold the log start back, and for how long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from kraftbase.errors import OutOfSpace
from kraftbase.runtime import Runtime, Timer
from kraftbase.said_once import SaidOnce
from kraftbase.types import NodeId, Offset
from raft.core.messages import LogStartHolder
from raft.core.replica_view import ReplicaView
from raft.core.types import OffsetAndEpoch
from raft.shell.node_snapshots import NodeSnapshots
from raft.storage.segmented_log import SegmentedLog
from snapshot.log_start_policy import LogStartConfig, LogStartPolicy, LogStartView, ReaderKind, ReaderPosition, decide

CHECK_INTERVAL_MS: Final = 1_000
"""How often it checks, as long as there are snapshots."""

HELD_REPORTED_MS: Final = 60_000
"""How long a reader holds back the log start before this is logged, once."""

logger = structlog.get_logger(__name__)


class ListenerPosition(NamedTuple):
    """How far one of the node's own listeners has read."""

    name: str
    next_offset: Offset
    """-1: it has not started."""


class LogStartKeeper:
    """The log start of one node. `on_advanced` is called with the new log start, once it is on disk."""

    def __init__(
        self,
        config: LogStartConfig,
        *,
        replica: ReplicaView,
        log: SegmentedLog,
        snapshots: NodeSnapshots,
        runtime: Runtime,
        listeners: Callable[[], Sequence[ListenerPosition]],
        on_advanced: Callable[[OffsetAndEpoch], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._replica = replica
        self._log = log
        self._snapshots = snapshots
        self._runtime = runtime
        self._listeners = listeners
        self._on_advanced = on_advanced
        self._on_fatal = on_fatal
        self._held_since_ms: dict[tuple[ReaderKind, str], int] = {}
        self._next_offsets: dict[tuple[ReaderKind, str], Offset] = {}
        self._reported: set[tuple[ReaderKind, str]] = set()
        self._timer: Timer | None = None
        self._no_room = SaidOnce()

    def start(self) -> None:
        """Start to check at intervals."""
        self._timer = self._runtime.call_later(CHECK_INTERVAL_MS, self._look)

    def close(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()

    def holders(self) -> tuple[LogStartHolder, ...]:
        """The readers that hold the log start back."""
        now_ms = int(self._runtime.now_ms())
        return tuple(
            LogStartHolder(
                replica_id=NodeId(int(name)) if kind is ReaderKind.REPLICA else None,
                listener=name if kind is ReaderKind.LISTENER else "",
                next_offset=self._next_offsets[kind, name],
                held_ms=now_ms - since_ms,
            )
            for (kind, name), since_ms in self._held_since_ms.items()
        )

    def check(self) -> None:
        """Advance the log start as far as possible now; without room on the disk it stays, and is tried again."""
        view = self._view()
        decision = decide(self._config, view)
        while decision.start is not None:
            before = self._log.log_start_offset
            try:
                self._log.advance_start(decision.start)
            except OutOfSpace as error:
                if self._no_room.begins():
                    logger.error("log start not advanced: no room on the disk to record it", reason=str(error))
                return
            self._no_room.ends()
            logger.info("log start", offset=decision.start.offset, before=before)
            if self._config.policy is LogStartPolicy.REPLICATED:
                self._report_passed(view, decision.start.offset)
            self._on_advanced(decision.start)
            self._snapshots.delete_surplus(decision.start)
            view = self._view()
            decision = decide(self._config, view)
        self._snapshots.delete_surplus(self._log.start)
        since = self._held_since_ms
        holders = {(holder.kind, holder.name): holder.next_offset for holder in decision.holders}
        self._next_offsets = holders
        self._held_since_ms = {reader: since.get(reader, view.now_ms) for reader in holders}
        self._report_held(view.now_ms)

    def _report_held(self, now_ms: int) -> None:
        self._reported &= self._held_since_ms.keys()
        for (kind, name), since_ms in self._held_since_ms.items():
            if now_ms - since_ms >= HELD_REPORTED_MS and (kind, name) not in self._reported:
                self._reported.add((kind, name))
                next_offset = self._next_offsets[kind, name]
                logger.warning("log start waits for a reader", kind=kind.value, name=name, next_offset=next_offset)

    def _report_passed(self, view: LogStartView, start_offset: Offset) -> None:
        for reader in view.readers:
            if reader.kind is ReaderKind.LISTENER and reader.next_offset < start_offset:
                logger.warning(
                    "log start no longer waits for a listener, which must load a snapshot",
                    name=reader.name,
                    next_offset=reader.next_offset,
                    log_start_offset=start_offset,
                )

    def _look(self) -> None:
        self._timer = self._runtime.call_later(CHECK_INTERVAL_MS, self._look)
        try:
            if self._snapshots.latest is not None:
                self.check()
        except BaseException as error:
            self._on_fatal(error)

    def _view(self) -> LogStartView:
        replica = self._replica
        readers = [
            ReaderPosition(ReaderKind.REPLICA, str(follower.key.node_id), follower.next_offset, follower.last_fetch_ms)
            for follower in replica.followers
        ]
        readers += [
            ReaderPosition(ReaderKind.LISTENER, listener.name, listener.next_offset, None)
            for listener in self._listeners()
        ]
        return LogStartView(
            now_ms=int(self._runtime.now_ms()),
            wall_clock_ms=self._runtime.wall_clock_ms(),
            start=self._log.start,
            log_size_bytes=self._log.size_bytes,
            high_watermark=replica.high_watermark,
            snapshots=self._snapshots.stored(),
            leading_since_ms=replica.leading_since_ms,
            leader_log_start_offset=replica.leader_log_start_offset,
            readers=tuple(readers),
        )
