"""The shell of one of three voters on a runtime that the test drives, and its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, cast
from uuid import UUID

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import NodeId, Offset
from raft.core.actions import Action, Send
from raft.core.config import QuorumConfig
from raft.core.events import Event, RequestReceived, ResponseReceived
from raft.core.messages import FetchResponse, Response, VoteRequest, VoteResponse
from raft.core.replica_view import ReplicaView
from raft.core.types import LeaderAndEpoch, ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.shell.observer import ShellObserver
from raft.shell.shell import Shell
from raft.shell.shell_host import Identity
from raft.storage.batch import encode_body
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segmented_log import LogConfig, SegmentedLog
from snapshot.log_start_policy import LogStartConfig
from snapshot.store import SnapshotStore
from tests.raft.by_hand import HandRuntime
from tests.raft.core.builders import fetch

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
VOTERS = VoterSet(
    Voter(ReplicaKey(NodeId(node_id), UUID(int=node_id)), Endpoint(f"node-{node_id}", 9093)) for node_id in (1, 2, 3)
)
OBSERVER = ReplicaKey(NodeId(9), UUID(int=9))


class Heard:
    """An observer: the events of the replica, and its actions, in order."""

    def __init__(self) -> None:
        self.events: list[Event | None] = []
        self.actions: list[Action] = []

    def stepped(self, event: Event | None, actions: Sequence[Action], replica: ReplicaView) -> None:
        self.events.append(event)
        self.actions.extend(actions)


class VoterShell:
    """The shell of node 1, and its outputs and events, in order. Alone, or with nodes 2 and 3."""

    def __init__(self, voter_count: int = 3, observer: ShellObserver | None = None) -> None:
        self.runtime = HandRuntime()
        self.happened: list[str] = []
        self.ready_at_replies: list[int] = []
        """How many callbacks were waiting when each answer to a fetch left."""
        self.sent: list[Send] = []
        self._asked: dict[int, str] = {}
        self._told = Offset(0)
        files = MemoryFileSystem()
        files.make_directories("data")
        self.log = SegmentedLog.open(files, "data/log", config=LogConfig())
        quorum_state = QuorumStateStore(files, "data")
        own = VOTERS.voters()[0]
        self.shell = Shell(
            identity=Identity(
                cluster_id=CLUSTER_ID,
                key=own.key,
                endpoint=own.endpoint,
                voters=VoterSet(VOTERS.voters()[:voter_count]),
            ),
            config=QuorumConfig(),
            log=self.log,
            quorum_state=quorum_state,
            election_state=quorum_state.load(),
            snapshots=SnapshotStore(files, "data/snapshots"),
            log_start=LogStartConfig(),
            random=Random(1),
            runtime=self.runtime,
            host=cast(Any, self),
            observer=observer,
        )
        self.shell.start()

    @property
    def end_offset(self) -> Offset:
        return self.log.log_end_offset

    def ask(self, key: ReplicaKey, end_offset: Offset | None = None, known: Offset | None = None) -> None:
        """A fetch of a replica whose log ends there, and whose high watermark is the leader's, or lower."""
        end_offset = self.end_offset if end_offset is None else end_offset
        known = min(end_offset, self.shell.replica.high_watermark) if known is None else known
        epoch = self.shell.replica.epoch
        request = fetch(None, epoch, end_offset, epoch if end_offset else 0, cluster_id=CLUSTER_ID)
        request_id = self.shell.new_id()
        self._asked[request_id] = f"fetch of {key.node_id}"
        self.shell.step(RequestReceived(request_id, replace(request, replica_key=key, high_watermark=known)))

    def turns(self, count: int) -> None:
        """Run this many iterations of the loop, each with all callbacks that are ready when it begins."""
        for _ in range(count):
            for _ in range(len(self.runtime.soon)):
                self.runtime.soon.popleft()()

    # --- ShellHost ----------------------------------------------------------------------------------------------------

    def send(self, send: Send) -> None:
        self.sent.append(send)
        self.happened.append(f"sends {type(send.request).__name__}")

    def reply(self, request_id: int, response: Response, records: bytes) -> None:
        if isinstance(response, FetchResponse):
            self.happened.append(self._asked[request_id])
            self.ready_at_replies.append(len(self.runtime.soon))

    def append_completed(self, append_id: int, error: ApiError | None) -> None:
        self.happened.append("settled" if error is None else f"failed: {error.code.name}")

    def committed(self, committed_end_offset: Offset) -> None:
        if committed_end_offset > self._told:
            self._told = committed_end_offset
            self.happened.append("listener woken")
            self.runtime.call_soon(lambda: self.happened.append("listener"))

    def leader_changed(self, *leader: object) -> None:
        pass

    def listener_positions(self) -> list[Any]:
        return []

    def snapshots_changed(self) -> None:
        pass

    def snapshot_damaged(self) -> None:
        raise AssertionError("there is none")

    def state_diverged(self, *digests: object) -> None:
        raise AssertionError("no digest is compared")

    def leader_refused(self, *refused: object) -> None:
        self.happened.append("leader refused")

    def may_rebuild_state(self) -> None:
        raise AssertionError("no state machine is fenced")

    def shutdown_complete(self) -> None:
        self.happened.append("shutdown complete")

    def fatal(self, error: BaseException) -> None:
        raise error


class LeadingShell(VoterShell):
    """It leads, and all of its log is committed."""

    def __init__(self, voter_count: int = 3, observer: ShellObserver | None = None) -> None:
        super().__init__(voter_count, observer)
        while not self.shell.replica.is_leader:
            self.runtime.advance(100)
            self._elect()
        if voter_count > 1:
            self.acknowledge(2)
        self.runtime.run()
        assert self.shell.replica.high_watermark == self.end_offset
        self.happened.clear()
        self.ready_at_replies.clear()

    def append(self) -> None:
        """Append one record, which is written with the next iteration of the loop."""
        epoch = self.shell.replica.epoch
        self.shell.prepare_append(self.shell.new_id(), epoch, encode_body([b"x"]), 1)
        self.shell.schedule_appends()

    def acknowledge(self, *node_ids: int) -> None:
        """Voters have all of the log, and do not know yet that it is committed."""
        known = self.shell.replica.high_watermark
        for node_id in node_ids:
            self.ask(VOTERS.voters()[node_id - 1].key, known=known)

    def _elect(self) -> None:
        for send in self.sent:
            if isinstance(send.request, VoteRequest):
                leader = LeaderAndEpoch(None, self.shell.replica.epoch)
                answer = VoteResponse(leader=leader, vote_granted=True)
                self.shell.outcome(ResponseReceived(send.correlation_id, answer))
                self.runtime.run()
        self.sent.clear()
