"""The parts of a simulated process: a disk that loses unflushed data, and a replica while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kraftbase.types import Offset
from raft.core.actions import Action, LogRange
from raft.core.election_state import ElectionState
from raft.core.epochs import EpochCache
from raft.core.log import LogState
from raft.core.messages import Request, Response
from raft.core.replica import Replica
from raft.core.types import Batch, OffsetAndEpoch, RecoveringLog


class Disk:
    """The state that survives a crash: the election state, and the log as far as it was flushed."""

    def __init__(self) -> None:
        self.election_state: ElectionState | None = None
        self.log: list[Batch] = []
        self.flushed_end_offset = 0
        self.recovering: RecoveringLog | None = None
        self.start = EpochCache().start
        """Where the log starts for the replica. `log` keeps the records below: they stand for the snapshot there."""
        self.snapshots: list[OffsetAndEpoch] = []
        self.applied = self.start
        """The state machine's applied end, for tests in which a log loses applied records."""

    @property
    def end_offset(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    def append(self, *batches: Batch) -> None:
        for batch in batches:
            assert batch.base_offset == self.end_offset, "a log has no gaps"
            self.log.append(batch)

    def truncate(self, end_offset: int) -> None:
        self.log = [batch for batch in self.log if batch.end_offset <= end_offset]
        assert self.end_offset == end_offset, "a log is cut between batches"
        self.flushed_end_offset = end_offset

    def read(self, wanted: LogRange) -> tuple[Batch, ...]:
        """At least one batch from the offset on, then as many as fit."""
        found: list[Batch] = []
        size = 0
        for batch in self.log:
            if batch.base_offset < wanted.start_offset:
                continue
            size += len(batch.data)
            if found and size > wanted.max_bytes:
                break
            found.append(batch)
        assert found and found[0].base_offset == wanted.start_offset
        return tuple(found)

    def lose(self, random: Random) -> None:
        """A crash: any number of the unflushed batches may be lost."""
        unflushed = [batch.end_offset for batch in self.log if batch.end_offset > self.flushed_end_offset]
        kept_end_offset = random.choice([self.flushed_end_offset, *unflushed])
        self.log = [batch for batch in self.log if batch.end_offset <= kept_end_offset]
        self.flushed_end_offset = self.end_offset

    def log_state(self) -> LogState:
        epochs = EpochCache(start=self.start)
        for batch in self.log:
            if batch.base_offset >= self.start.offset:
                epochs.assign(batch.epoch, batch.base_offset)
        end_offset = Offset(self.end_offset)
        return LogState(end_offset, end_offset, epochs, self.snapshots[-1] if self.snapshots else None)


@dataclass(frozen=True)
class Waiting:
    """A request that was not answered yet, and what to do when it is answered, or never will be."""

    request: Request
    respond: Callable[[Response], None]
    fail: Callable[[], None]


class Server:
    """One process: its disk, and its replica while it runs."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.disk = Disk()
        self.replica: Replica | None = None
        self.incarnation = 0
        self.high_watermark = -1
        self.crash_after: Callable[[Action], bool] | None = None
        """Crash when an action for which this holds was carried out, before the next action."""
        self.waiting: dict[int, Waiting] = {}
        """The callers that wait for an answer, by the id of the request."""
        self.wakes_at_ms: int | None = None
