"""Where logs start, for the transcripts: the node's own `LogStartKeeper` over a replica and a disk of the stage."""

from __future__ import annotations

from typing import Any

from kraftbase.types import Offset
from raft.core.events import LogStartAdvanced
from raft.core.types import OffsetAndEpoch
from raft.shell.log_start_keeper import ListenerPosition, LogStartKeeper
from snapshot.log_start_policy import LogStartConfig, StoredSnapshot
from tests.raft.core import wording
from tests.raft.core.stage import Stage

ALWAYS_TOO_LARGE = LogStartConfig(retention_bytes=0, replica_session_timeout_ms=1)


class _Disk:
    """One node's log, snapshots and clock, as far as its keeper reads them."""

    def __init__(self, stage: Stage, node_id: int) -> None:
        self._stage, self._node_id = stage, node_id
        self._disk = stage.servers[node_id].disk

    @property
    def start(self) -> OffsetAndEpoch:
        return self._disk.start

    @property
    def log_start_offset(self) -> Offset:
        return self._disk.start.offset

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.data) for batch in self._disk.log)

    def advance_start(self, start: OffsetAndEpoch) -> None:
        self._disk.start = start

    def stored(self) -> tuple[StoredSnapshot, ...]:
        ids, now_ms = self._disk.snapshots, int(self.now_ms())
        return tuple(StoredSnapshot(one, 1, 0, None if one == ids[-1] else now_ms) for one in ids)

    def delete_surplus(self, start: OffsetAndEpoch) -> None:
        self._disk.snapshots = [one for one in self._disk.snapshots if one >= start]

    def now_ms(self) -> float:
        return self._stage.clock(self._node_id)

    def wall_clock_ms(self) -> int:
        return self._stage.clock(self._node_id)


class LogStarts:
    """The keepers of the stage's replicas."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._keepers: dict[int, LogStartKeeper] = {}
        self._listeners: dict[int, Offset] = {}

    def listen(self, node_id: int, next_offset: int) -> None:
        self._listeners[node_id] = Offset(next_offset)

    def check(self, node_id: int) -> None:
        keeper = self._keepers.setdefault(node_id, self._keeper(node_id))
        before = self._stage.servers[node_id].disk.start
        keeper.check()
        if self._stage.servers[node_id].disk.start == before:
            self._stage.say(node_id, f"log start stays at {before.offset}")
        for holder in keeper.holders():
            name = f"listener {holder.listener}" if holder.replica_id is None else f"replica {holder.replica_id}"
            self._stage.say(node_id, f"held by {name} at {holder.next_offset} for {holder.held_ms} ms")

    def _keeper(self, node_id: int) -> LogStartKeeper:
        disk: Any = _Disk(self._stage, node_id)

        def on_advanced(start: OffsetAndEpoch) -> None:
            self._stage.say(node_id, f"log start {wording.point(start)}")
            self._stage.happen(node_id, LogStartAdvanced(start))

        def fail(error: BaseException) -> None:
            raise error

        return LogStartKeeper(
            ALWAYS_TOO_LARGE,
            replica=self._stage.replica(node_id),
            log=disk,
            snapshots=disk,
            runtime=disk,
            listeners=lambda: (
                [ListenerPosition("metadata", self._listeners[node_id])] if node_id in self._listeners else []
            ),
            on_advanced=on_advanced,
            on_fatal=fail,
        )
