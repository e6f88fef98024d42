"""A quorum that acts only on commands, and records its steps. It runs the transcripts of the core.

It is the `Cluster` of the other tests, with its disks and its checks of safety, with two differences. Messages and
flushes wait until they are delivered. And each replica has a clock of its own, so one timer can expire alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kraftbase.types import Offset
from raft.core import actions
from raft.core.actions import Action, Reply, Send, SnapshotRange
from raft.core.events import (
    AppendPrepared,
    AppendsScheduled,
    Event,
    LogFlushed,
    RequestCancelled,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotAppended,
    SnapshotReceived,
    TimePassed,
)
from raft.core.messages import FetchSnapshotResponse, Response
from raft.core.types import Batch, OffsetAndEpoch, RecoveringLog
from tests.raft.core import wording
from tests.raft.core.cluster import Cluster
from tests.raft.core.processes import Server, Waiting
from tests.raft.core.safety import Safety

STEPS_MAX = 2_000
STEP_MS = 50


@dataclass(frozen=True)
class Pending:
    """A message in transit, or, from a replica to itself, the work of its disk."""

    sender: int
    receiver: int
    text: str
    happen: Callable[[], None]

    @property
    def is_message(self) -> bool:
        return self.sender != self.receiver


class Broken(Safety):
    """In a quorum in which a disk has lost acknowledged records Raft's promises may not hold."""

    def leads(self, node_id: int, epoch: int, log: Sequence[Batch]) -> None: ...

    def commits(self, node_id: int, high_watermark: int, log: Sequence[Batch]) -> None: ...

    def completes(self, append_id: int, body: bytes) -> None: ...


class Stage(Cluster):
    """Carries out the commands. `lines` are the steps since the last `take_lines`."""

    def __init__(
        self,
        voter_count: int = 3,
        observer_count: int = 0,
        *,
        new_directory: RecoveringLog | None = None,
        **settings: int,
    ) -> None:
        self.lines: list[str] = []
        self.pending: list[Pending] = []
        self._clocks: dict[int, int] = {}
        self._seen: dict[int, str] = {}
        self._request_id: int | None = None
        self._partial: dict[int, bytes] = {}
        self._done: set[int] = set()
        self._senders: dict[int, int] = {}
        self.closed: set[int] = set()
        """The replicas whose ports are closed: their machines refuse connections."""
        super().__init__(voter_count, observer_count, new_directory=new_directory, **settings)

    def take_lines(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    def say(self, node_id: int, text: str) -> None:
        self.lines.append(f"{node_id} {text}")

    # --- steps of commands --------------------------------------------------------------------------------------------

    def restart(self, node_id: int) -> None:
        self.now_ms = self._clocks.setdefault(node_id, 0)
        self._seen[node_id] = "starts"
        self._done.discard(node_id)
        self.closed.discard(node_id)
        super().restart(node_id)

    def crash(self, node_id: int) -> None:
        """Crash: everything unflushed is lost."""
        disk = self.servers[node_id].disk
        disk.log = [batch for batch in disk.log if batch.end_offset <= disk.flushed_end_offset]
        self.pending = [one for one in self.pending if one.is_message or one.sender != node_id]
        super().crash(node_id)
        for server in self.running():
            for request_id in [one for one in server.waiting if self._senders[one] == node_id]:
                del server.waiting[request_id]
                self._step(server.node_id, RequestCancelled(request_id))

    def advance(self, node_id: int, until_ms: int) -> None:
        """Advance that replica's clock, and wake it at each of its deadlines."""
        for _ in range(STEPS_MAX):
            deadline_ms = self.replica(node_id).next_deadline_ms
            if deadline_ms is None or deadline_ms > until_ms:
                break
            self._clocks[node_id] = max(deadline_ms, self._clocks[node_id])
            self._step(node_id, TimePassed())
        self._clocks[node_id] = max(until_ms, self._clocks[node_id])

    def pass_time(self, duration_ms: int) -> None:
        """Advance all clocks together, and deliver the resulting messages."""
        for _ in range(0, duration_ms, STEP_MS):
            for server in self.running():
                self.advance(server.node_id, self._clocks[server.node_id] + STEP_MS)
            self.deliver()

    def clock(self, node_id: int) -> int:
        return self._clocks[node_id]

    def deliver(self, chosen: Callable[[Pending], bool] = lambda one: True, *, until_quiet: bool = True) -> None:
        """Deliver everything in transit, in order; with `until_quiet` also everything that results."""
        present = [one for one in self.pending if chosen(one)]
        for _ in range(STEPS_MAX):
            found = next((one for one in self.pending if chosen(one) and (until_quiet or one in present)), None)
            if found is None:
                return
            self.pending.remove(found)
            found.happen()
            self.safety.match(self.logs())
        raise AssertionError("it does not become quiet")

    def drop(self, chosen: Callable[[Pending], bool]) -> None:
        """Lose messages that are in transit."""
        lost = [one for one in self.pending if one.is_message and chosen(one)]
        self.pending = [one for one in self.pending if one not in lost]
        self.lines += [f"{one.text} (lost)" for one in lost]

    def append_records(self, node_id: int, body: str, record_count: int) -> None:
        append_id = next(self._ids)
        self._bodies[append_id] = f"{body} ".encode()
        epoch = self.replica(node_id).epoch
        self._step(node_id, AppendPrepared(append_id, epoch, self._bodies[append_id], record_count))
        self._step(node_id, AppendsScheduled())

    def happen(self, node_id: int, event: Event) -> None:
        self._step(node_id, event)

    def snapshot_id(self, node_id: int, end_offset: int) -> OffsetAndEpoch:
        """The snapshot of a log at the end of a batch."""
        (last,) = [batch for batch in self.servers[node_id].disk.log if batch.end_offset == end_offset]
        return OffsetAndEpoch(epoch=last.epoch, offset=last.end_offset)

    # --- replicas ---------------------------------------------------------------------------------------------------

    def _step(self, node_id: int, event: Event) -> None:
        self.now_ms = self._clocks[node_id]
        super()._step(node_id, event)

    def _execute(self, server: Server, ordered: Sequence[Action]) -> None:
        # A change of state orders its durable part, and announces the leader. A change that does neither is shown
        # before all ordered actions.
        if not any(isinstance(action, actions.PersistElectionState | actions.AnnounceLeader) for action in ordered):
            self._say_role(server)
        super()._execute(server, ordered)
        if self.replica(server.node_id).is_shutdown_complete and server.node_id not in self._done:
            self._done.add(server.node_id)
            self.say(server.node_id, "may stop: its shutdown is complete")

    def _say_role(self, server: Server) -> None:
        before, after = self._seen[server.node_id], wording.role(self.replica(server.node_id))
        if before != after:
            self.say(server.node_id, f"starts: {after}" if before == "starts" else f"{before} -> {after}")
        self._seen[server.node_id] = after

    def _wake_at_deadline(self, server: Server, replica: object) -> None:
        """Nothing: `advance` does it."""

    def _do(self, server: Server, action: Action) -> None:
        if isinstance(action, actions.PersistElectionState | actions.AnnounceLeader):
            self._say_role(server)
        text = wording.action(action)
        if text is not None:
            self.say(server.node_id, text)
        match action:
            case actions.AppendLeaderChange(record=record):
                super()._do(server, action)
                last = server.disk.log[-1]
                server.disk.log[-1] = replace(last, data=wording.leader_change(record).encode())
            case actions.CompleteAppend(append_id):
                self.say(server.node_id, f"completes {self._bodies[append_id].decode().strip()}")
                super()._do(server, action)
            case actions.FailAppend(append_id, error):
                self.say(server.node_id, f"fails {self._bodies[append_id].decode().strip()}: {error.name}")
                super()._do(server, action)
            case actions.AdvanceHighWatermark(high_watermark):
                super()._do(server, action)
                if high_watermark > 0:
                    server.disk.applied = self.snapshot_id(server.node_id, high_watermark)
            case (
                actions.TruncateFullyAndStartAt()
                | actions.AppendSnapshot()
                | actions.FreezeSnapshot()
                | actions.DropSnapshot()
            ):
                self._do_snapshot(server, action)
            case _:
                super()._do(server, action)

    # --- the disk ---------------------------------------------------------------------------------------------------

    def _on_disk(self, server: Server, text: str, done: Callable[[], None]) -> None:
        self.pending.append(Pending(server.node_id, server.node_id, text, done))

    def _flush(self, server: Server, end_offset: Offset) -> None:
        def flushed() -> None:
            durable = min(end_offset, server.disk.end_offset)
            server.disk.flushed_end_offset = max(server.disk.flushed_end_offset, durable)
            self.say(server.node_id, f"has flushed up to {durable}")
            self._step(server.node_id, LogFlushed(end_offset))

        self._on_disk(server, "flush", flushed)

    def _do_snapshot(self, server: Server, action: Action) -> None:
        node_id = server.node_id
        match action:
            case actions.AppendSnapshot(fetch_id, _, data):
                self._partial[fetch_id] = self._partial.get(fetch_id, b"") + data
                position = len(self._partial[fetch_id])
                self._on_disk(server, "write", lambda: self._step(node_id, SnapshotAppended(fetch_id, position)))
            case actions.FreezeSnapshot(fetch_id, snapshot_id):
                assert self._partial.pop(fetch_id) == content(snapshot_id), "every byte is there, in its place"
                server.disk.snapshots.append(snapshot_id)
                self._on_disk(server, "freeze", lambda: self._step(node_id, SnapshotReceived(fetch_id)))
            case actions.DropSnapshot(fetch_id):
                self._partial.pop(fetch_id, None)
            case actions.TruncateFullyAndStartAt(snapshot_id):
                # The batches stand for the snapshot's content: the safety checks read whole logs.
                below = [batch for batch in self.safety.committed if batch.end_offset <= snapshot_id.offset]
                server.disk.log, server.disk.start = below, snapshot_id
                server.disk.flushed_end_offset = snapshot_id.offset

    # --- the network ------------------------------------------------------------------------------------------------

    def _put(self, sender: int, receiver: int, text: str, happen: Callable[[], None]) -> None:
        line = f"{sender}->{receiver} {text}"
        if (sender, receiver) in self._cut:
            self.lines.append(f"{line} (lost)")
        else:
            self.lines.append(line)
            self.pending.append(Pending(sender, receiver, line, happen))

    def _send(self, sender: Server, send: Send) -> None:
        self.sent.append((sender.node_id, send))
        receiver = self._by_endpoint[send.destination]
        incarnation = sender.incarnation
        request_id = next(self._ids)

        def give_back(text: str, event: Event) -> None:
            def arrive() -> None:
                if sender.incarnation == incarnation:
                    self._step(sender.node_id, event)

            self._put(receiver.node_id, sender.node_id, text, arrive)

        def respond(response: Response) -> None:
            parked = "" if request_id == self._request_id else " (was parked)"
            text = wording.response(response, send.request) + parked
            give_back(text, ResponseReceived(send.correlation_id, response))

        def fail() -> None:
            if receiver.node_id in self.closed:
                give_back("connection refused", RequestFailed(send.correlation_id, connection_refused=True))
            else:
                give_back("connection lost", RequestFailed(send.correlation_id))

        def arrive() -> None:
            if receiver.replica is None:
                fail()
                return
            self._senders[request_id] = sender.node_id
            receiver.waiting[request_id] = Waiting(send.request, respond, fail)
            self._request_id = request_id
            self._step(receiver.node_id, RequestReceived(request_id, send.request))
            self._request_id = None
            if request_id in receiver.waiting:
                self.say(receiver.node_id, f"parks the fetch of {sender.node_id}")

        self._put(sender.node_id, receiver.node_id, wording.request(send.request), arrive)

    def _reply(self, server: Server, reply: Reply) -> None:
        match reply:
            case Reply(_, FetchSnapshotResponse(snapshot_id=snapshot_id) as response, SnapshotRange() as wanted):
                data = content(snapshot_id)
                part = data[wanted.position :][: wanted.max_bytes]
                reply = Reply(reply.request_id, replace(response, size=len(data), data=part))
        super()._reply(server, reply)


def content(snapshot_id: OffsetAndEpoch) -> bytes:
    """The bytes of a snapshot, which are the same wherever it is taken."""
    return f"<snapshot at {snapshot_id.offset}>".encode()


def link(sender: int, receiver: int) -> Callable[[Pending], bool]:
    """A message from one replica to another."""
    return lambda one: (one.sender, one.receiver) == (sender, receiver)
