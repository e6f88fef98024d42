"""The shell of a sole voter on files in memory, without a loop: it runs until nothing is left to do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from uuid import UUID

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import NodeId, Offset
from raft.core.actions import Send
from raft.core.config import QuorumConfig
from raft.core.messages import Response
from raft.core.types import LeaderAndEpoch, ReplicaKey, StateDigest
from raft.core.voters import Voter, VoterSet
from raft.delivery import ListenerCursor
from raft.listener import CommittedBatch
from raft.shell.log_start_keeper import ListenerPosition
from raft.shell.shell import Shell
from raft.shell.shell_host import Identity
from raft.storage.batch import encode_body
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segmented_log import LogConfig, SegmentedLog
from snapshot.log_start_policy import LogStartConfig
from snapshot.store import SnapshotStore

KEY = ReplicaKey(NodeId(1), UUID(int=7))
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


class _NeverTimer:
    def cancel(self) -> None:
        """It does not fire anyway."""


class LoneNode:
    """Runtime and host in one; time stands still, so timers never fire. Committed batches go to `apply`."""

    def __init__(
        self,
        files: MemoryFileSystem,
        log_config: LogConfig,
        applied_end_offset: Offset,
        apply: Callable[[list[CommittedBatch]], None],
    ) -> None:
        self._apply = apply
        self._ready: deque[Callable[[], None]] = deque()
        self._committed = Offset(0)
        self.settled: dict[int, ApiError | None] = {}
        files.make_directories("data")
        quorum_state = QuorumStateStore(files, "data")
        election_state = quorum_state.load()
        self.log = SegmentedLog.open(files, "data/log", config=log_config, minimum_durable_offset=applied_end_offset)
        self._cursor = ListenerCursor(self.log, applied_end_offset)
        endpoint = Endpoint("localhost", 9093)
        self.shell = Shell(
            identity=Identity(
                cluster_id=CLUSTER_ID, key=KEY, endpoint=endpoint, voters=VoterSet([Voter(KEY, endpoint)])
            ),
            config=QuorumConfig(),
            log=self.log,
            quorum_state=quorum_state,
            election_state=election_state,
            snapshots=SnapshotStore(files, "data/snapshots"),
            log_start=LogStartConfig(),
            random=Random(1),
            runtime=self,
            host=self,
        )
        self.shell.start()
        self.run()

    def run(self) -> None:
        """Run until nothing is left to do. Raises a fatal error."""
        while self._ready:
            self.run_one()

    def run_one(self) -> None:
        """Run the next callback. Raises a fatal error."""
        self._ready.popleft()()

    def append(self, *records: bytes) -> int:
        """Append one batch; the id under which `settled` will have its outcome."""
        append_id = self.shell.new_id()
        epoch = self.shell.replica.leader_and_epoch.epoch
        self.shell.prepare_append(append_id, epoch, encode_body(records), len(records))
        self.shell.schedule_appends()
        return append_id

    # --- Runtime ------------------------------------------------------------------------------------------------------

    def now_ms(self) -> float:
        return 1_000

    def wall_clock_ms(self) -> int:
        return 1_700_000_000_000

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._ready.append(callback)

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        self.call_soon(callback)

    def call_after_requests(self, callback: Callable[[], None]) -> None:
        self.call_after_answers(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> _NeverTimer:
        return _NeverTimer()

    def run_on_disk(self, work: Callable[[], None], on_done: Callable[[BaseException | None], None]) -> None:
        def run() -> None:
            work()
            on_done(None)

        self._ready.append(run)

    def run_aside(self, work: Callable[[], None], on_done: Callable[[BaseException | None], None]) -> None:
        self.run_on_disk(work, on_done)

    # --- ShellHost ----------------------------------------------------------------------------------------------------

    def send(self, send: Send) -> None:
        raise AssertionError(f"a sole voter has no peer to send to: {send}")

    def reply(self, request_id: int, response: Response, records: bytes) -> None:
        raise AssertionError(f"there was no such request: {response}")

    def append_completed(self, append_id: int, error: ApiError | None) -> None:
        self.settled[append_id] = error

    def committed(self, committed_end_offset: Offset) -> None:
        self._committed = max(self._committed, committed_end_offset)
        self._ready.append(self._deliver)

    def leader_changed(
        self, leader: LeaderAndEpoch, leader_endpoint: Endpoint | None, epoch_start_offset: Offset | None
    ) -> None:
        pass

    def listener_positions(self) -> Sequence[ListenerPosition]:
        return [ListenerPosition("cursor", self._cursor.next_offset)]

    def snapshots_changed(self) -> None:
        self._ready.append(self._deliver)

    def snapshot_damaged(self) -> None:
        raise AssertionError("nothing is damaged")

    def state_diverged(self, expected: StateDigest, own: StateDigest) -> None:
        raise AssertionError("a sole voter cannot differ from the quorum")

    def may_rebuild_state(self) -> None:
        raise AssertionError("no state machine is fenced")

    def shutdown_complete(self) -> None:
        pass

    def fatal(self, error: BaseException) -> None:
        raise error

    def _deliver(self) -> None:
        while batches := self._cursor.next_batches(self._committed):
            self._apply([CommittedBatch(batch) for batch in batches])
            self._cursor.next_offset = batches[-1].end_offset
