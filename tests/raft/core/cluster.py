"""A quorum without network, disk or clock: replicas joined by a queue of events in virtual time, all from one seed.

Durability is simulated as `raft.core.actions` promises it: actions take effect in order, the election state at once,
the log when its flush has ended. A crash may lose unflushed data, and may happen between any two actions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from random import Random

from kraftbase.types import Epoch, Offset
from raft.core.actions import (
    Action,
    AdvanceHighWatermark,
    AppendBatches,
    AppendLeaderChange,
    AppendRecords,
    CompleteAppend,
    EndFounding,
    EndRecovering,
    FailAppend,
    FlushLog,
    LogRange,
    PersistElectionState,
    Reply,
    Send,
    TruncateLog,
)
from raft.core.config import QuorumConfig
from raft.core.events import (
    AppendPrepared,
    AppendsScheduled,
    Event,
    LogFlushed,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    ShutdownRequested,
    TimePassed,
)
from raft.core.messages import FetchResponse, Response, VoteRequest, VoteResponse
from raft.core.replica import Replica
from raft.core.types import Batch, RecoveringLog
from tests.raft.core.builders import CLUSTER_ID, CONFIG, configured, endpoint, key, voters
from tests.raft.core.processes import Disk, Server, Waiting
from tests.raft.core.safety import Safety


class Cluster:
    """Voters with the node ids from 1 on, then observers from 11 on; all of them started."""

    def __init__(
        self,
        voter_count: int = 3,
        observer_count: int = 0,
        *,
        seed: int = 0,
        config: QuorumConfig = CONFIG,
        new_directory: RecoveringLog | None = None,
        **settings: int,
    ) -> None:
        """With a `new_directory`, each voter begins in a new directory."""
        self.random = Random(seed)
        self.config = configured(config, settings)
        self.voters = voters(voter_count)
        self.now_ms = 0
        self.drop_rate = 0.0
        self.delay_ms = (1, 4)
        self.flush_ms = (1, 4)
        self.safety = Safety()
        self.sent: list[tuple[int, Send]] = []
        """Everything that was sent, with its sender."""
        self.failed: list[FailAppend] = []
        self._cut: set[tuple[int, int]] = set()
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence, self._ids = count(), count(1)
        self._bodies: dict[int, bytes] = {}
        node_ids = [*range(1, voter_count + 1), *range(11, 11 + observer_count)]
        self.servers = {node_id: Server(node_id) for node_id in node_ids}
        self._by_endpoint = {endpoint(node_id): server for node_id, server in self.servers.items()}
        for node_id in node_ids:
            self.servers[node_id].disk.recovering = new_directory
            self.restart(node_id)

    # --- its state --------------------------------------------------------------------------------------------------

    def replica(self, node_id: int) -> Replica:
        replica = self.servers[node_id].replica
        assert replica is not None, f"{node_id} does not run"
        return replica

    def running(self) -> list[Server]:
        return [server for server in self.servers.values() if server.replica is not None]

    def leader(self) -> int | None:
        """The leader of the highest epoch that has one."""
        leading = [
            (server.replica.leader_and_epoch.epoch, server.node_id)
            for server in self.running()
            if server.replica is not None and server.replica.is_leader
        ]
        return max(leading)[1] if leading else None

    def logs(self) -> list[list[Batch]]:
        return [server.disk.log for server in self.servers.values()]

    # --- random steps -------------------------------------------------------------------------------------------------

    def restart(self, node_id: int) -> None:
        """Start a process from its disk, if it does not run."""
        server = self.servers[node_id]
        disk = server.disk
        if server.replica is not None:
            return
        server.high_watermark, server.wakes_at_ms, server.crash_after = -1, None, None
        server.replica = Replica(
            config=self.config,
            cluster_id=CLUSTER_ID,
            key=key(node_id),
            endpoint=endpoint(node_id),
            voters=self.voters,
            bootstrap_endpoints=(),
            log=disk.log_state(),
            election_state=disk.election_state,
            recovering=disk.recovering,
            applied=disk.applied,
            random=Random(self.random.random()),
            now_ms=self.now_ms,
        )
        self._execute(server, server.replica.start(self.now_ms))

    def wipe(self, node_id: int, mark: RecoveringLog | None) -> None:
        """The process ends, and its disk is replaced by an empty one; it does not run."""
        self.crash(node_id)
        self.servers[node_id].disk = Disk()
        self.servers[node_id].disk.recovering = mark

    def crash(self, node_id: int) -> None:
        """End the process at once; its peers see a broken connection."""
        server = self.servers[node_id]
        if server.replica is not None:
            server.replica = None
            server.incarnation += 1
            for waiting in server.waiting.values():
                waiting.fail()
            server.waiting.clear()
            server.disk.lose(self.random)

    def cut(self, one: int, other: int) -> None:
        """Nothing passes between the two from now on, both ways."""
        self._cut |= {(one, other), (other, one)}

    def isolate(self, node_id: int) -> None:
        for other in self.servers:
            self.cut(node_id, other)

    def heal(self) -> None:
        self._cut.clear()

    def append(self, node_id: int, body: bytes | None = None) -> int:
        """A client of that replica appends one record; return the append's id."""
        append_id = next(self._ids)
        self._bodies[append_id] = body or f"<append {append_id}>".encode()
        epoch = self.replica(node_id).leader_and_epoch.epoch
        self._step(node_id, AppendPrepared(append_id, epoch, self._bodies[append_id], 1))
        if self.servers[node_id].replica is not None:
            self._step(node_id, AppendsScheduled())
        return append_id

    def shut_down(self, node_id: int) -> None:
        self._step(node_id, ShutdownRequested())

    # --- time -------------------------------------------------------------------------------------------------------

    def run(self, duration_ms: int) -> None:
        self.run_until(lambda: False, duration_ms, must=False)

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 30_000, *, must: bool = True) -> None:
        """Advance the time until `condition` holds, at most by `limit_ms`."""
        end_ms = self.now_ms + limit_ms
        while not condition():
            if not self._queue or self._queue[0][0] > end_ms:
                assert not must, "it did not come about in time"
                self.now_ms = end_ms
                break
            self.now_ms, _, happen = heapq.heappop(self._queue)
            happen()
        self.safety.match(self.logs())

    def elect(self) -> int:
        """Advance the time until a leader has committed in its epoch; returns that leader."""
        self.run_until(self._is_settled)
        leader = self.leader()
        assert leader is not None
        return leader

    def _is_settled(self) -> bool:
        leader = self.leader()
        if leader is None:
            return False
        replica = self.replica(leader)
        return bool(self.safety.committed) and self.safety.committed[-1].epoch == replica.leader_and_epoch.epoch

    def _later(self, delay_ms: int, happen: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._sequence), happen))

    # --- replicas ---------------------------------------------------------------------------------------------------

    def _step(self, node_id: int, event: Event) -> None:
        server = self.servers[node_id]
        if server.replica is not None:
            self._execute(server, server.replica.step(event, self.now_ms))

    def _execute(self, server: Server, actions: Sequence[Action]) -> None:
        for action in actions:
            self._do(server, action)
            if server.crash_after is not None and server.crash_after(action):
                self.crash(server.node_id)
                self._later(self.random.randint(1, 100), lambda: self.restart(server.node_id))
                return
        replica = server.replica
        assert replica is not None
        if replica.is_leader:
            self.safety.leads(server.node_id, replica.leader_and_epoch.epoch, server.disk.log)
        self._wake_at_deadline(server, replica)

    def _wake_at_deadline(self, server: Server, replica: Replica) -> None:
        deadline_ms = replica.next_deadline_ms
        if deadline_ms is None or deadline_ms == server.wakes_at_ms:
            return
        server.wakes_at_ms = deadline_ms
        incarnation = server.incarnation

        def wake() -> None:
            if server.incarnation == incarnation and server.wakes_at_ms == deadline_ms:
                server.wakes_at_ms = None
                self._step(server.node_id, TimePassed())

        self._later(max(0, deadline_ms - self.now_ms), wake)

    def _do(self, server: Server, action: Action) -> None:
        disk = server.disk
        match action:
            case PersistElectionState(state):
                disk.election_state = state
            case EndFounding():
                disk.recovering = None if disk.recovering is None else disk.recovering._replace(may_found=False)
            case EndRecovering():
                disk.recovering = None
            case AppendLeaderChange(base_offset, epoch, record):
                disk.append(_batch(base_offset, epoch, 1, repr(record).encode(), is_control=True))
            case AppendRecords(base_offset, epoch, body, record_count):
                disk.append(_batch(base_offset, epoch, record_count, body))
            case AppendBatches(batches):
                disk.append(*batches)
            case TruncateLog(end_offset):
                disk.truncate(end_offset)
            case FlushLog(end_offset):
                self._flush(server, end_offset)
            case Send():
                self._send(server, action)
            case Reply():
                self._reply(server, action)
            case AdvanceHighWatermark(high_watermark):
                assert high_watermark > server.high_watermark, "a high watermark only grows"
                server.high_watermark = high_watermark
                self.safety.commits(server.node_id, high_watermark, disk.log)
            case CompleteAppend(append_id):
                leader_end = server.replica.high_watermark if server.replica is not None else 0
                self.safety.commits(server.node_id, leader_end, disk.log)
                self.safety.completes(append_id, self._bodies[append_id])
            case FailAppend():
                self.failed.append(action)
            case _:
                pass

    def _flush(self, server: Server, end_offset: Offset) -> None:
        incarnation = server.incarnation

        def flushed() -> None:
            if server.incarnation == incarnation:
                durable = min(end_offset, server.disk.end_offset)
                server.disk.flushed_end_offset = max(server.disk.flushed_end_offset, durable)
                self._step(server.node_id, LogFlushed(end_offset))

        self._later(self.random.randint(*self.flush_ms), flushed)

    # --- the network ------------------------------------------------------------------------------------------------

    def _passes(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) not in self._cut and self.random.random() >= self.drop_rate

    def _send(self, sender: Server, send: Send) -> None:
        self.sent.append((sender.node_id, send))
        receiver = self._by_endpoint[send.destination]
        incarnation = sender.incarnation

        def answer(event: Event) -> None:
            if sender.incarnation == incarnation:
                self._step(sender.node_id, event)

        def respond(response: Response) -> None:
            if self._passes(receiver.node_id, sender.node_id):
                self._later(self._delay(), lambda: answer(ResponseReceived(send.correlation_id, response)))

        def fail() -> None:
            if self._passes(receiver.node_id, sender.node_id):
                self._later(self._delay(), lambda: answer(RequestFailed(send.correlation_id)))

        def arrive() -> None:
            if receiver.replica is None:
                fail()
                return
            request_id = next(self._ids)
            receiver.waiting[request_id] = Waiting(send.request, respond, fail)
            self._step(receiver.node_id, RequestReceived(request_id, send.request))

        if self._passes(sender.node_id, receiver.node_id):
            self._later(self._delay(), arrive)

    def _reply(self, server: Server, reply: Reply) -> None:
        waiting, response = server.waiting.pop(reply.request_id), reply.response
        match waiting.request, response:
            case VoteRequest(pre_vote=False) as request, VoteResponse(vote_granted=True):
                self.safety.votes(server.node_id, request.replica_epoch, request.replica_key)
            case _, FetchResponse() if isinstance(reply.reads, LogRange):
                response = replace(response, records=server.disk.read(reply.reads))
        waiting.respond(response)

    def _delay(self) -> int:
        return self.random.randint(*self.delay_ms)


def _batch(base_offset: Offset, epoch: Epoch, record_count: int, data: bytes, *, is_control: bool = False) -> Batch:
    return Batch(base_offset, Offset(base_offset + record_count - 1), epoch, is_control, data)
