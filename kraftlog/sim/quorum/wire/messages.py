"""Requests and responses in transit between processes, and the faults that change them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.event_queue import EventQueue
from kraftlog.sim.engine.virtual.network import Network
from kraftlog.sim.quorum.node.machine import Machine
from kraftlog.sim.quorum.node.stepped_process import SteppedProcess
from kraftlog.sim.quorum.wire.carriage import carry_request, carry_response
from kraftlog.sim.quorum.wire.forgery import falsified, flip_a_bit, foreign_answer
from raft.core.actions import Send
from raft.core.events import RequestFailed, ResponseReceived
from raft.core.messages import FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse, Request, Response


class Messages:
    """All messages of one cluster."""

    def __init__(
        self,
        machines: Iterable[Machine],
        network: Network,
        event_queue: EventQueue,
        marks: Marks,
        random: Random,
        *,
        through_codec: bool,
        report_violation: Callable[[str], None],
    ) -> None:
        """`report_violation` is called with violations; with `through_codec` messages go through the wire format."""
        self.pieces_to_corrupt = 0
        """How many of the next snapshot pieces arrive with a flipped bit."""
        self.transfer_ambush: Callable[[SteppedProcess, Machine], None] | None = None
        """A fault to trigger when a node next requests more of a snapshot of which it has a part."""
        self.answers_to_falsify: dict[int, float] = {}
        """By node: the next answer to its fetch lacks some of its committed records.

        The value is the share that is left.
        """
        self.corrupt_rate = 0.0
        """The share of fetched batches that arrive with a flipped bit."""
        self._by_endpoint = {endpoint: machine for machine in machines for endpoint in machine.possible_endpoints}
        self._network = network
        self._event_queue = event_queue
        self._marks = marks
        self._random = random
        self._through_codec = through_codec
        self._report_violation = report_violation

    def send_request(self, source: SteppedProcess, send: Send) -> None:
        """Send a replica's request."""
        target = self._by_endpoint.get(send.destination)
        if target is None:
            self._report_violation(
                f"node {source.machine.node_id} sends to {send.destination}, which is in no configuration"
            )
            return
        node_id = source.machine.node_id
        through_codec = self._through_codec
        if isinstance(send.request, FetchSnapshotRequest):
            self._note_transfer(source, target, send.request, send.destination)
        request = carry_request(send.request, through_codec=through_codec)
        label = f"{type(request).__name__.removesuffix('Request')} from {node_id}"

        def arrive() -> None:
            is_there = target.endpoint == send.destination
            if target.process is not None and is_there:
                receiver = target.process
                receiver.run(label, lambda: receiver.receive(request, source, send.correlation_id))
            elif target.process is None and target.foreign_until_us > self._event_queue.now_us:
                self._answer_as_foreign(source, target, request, send.correlation_id)
            else:
                is_refused = target.refuses_while_down or not is_there
                self._fail(source, target, send.correlation_id, is_refused=is_refused)

        if self._network.refuses(node_id, target.node_id):
            if target.process is not None:
                self._marks.hit("network: a connection was refused though a process listens")
            self._fail(source, target, send.correlation_id, is_refused=True)
            return
        self._network.send(node_id, target.node_id, arrive, sent_after_us=source.stalled_us)

    def _note_transfer(
        self, source: SteppedProcess, target: Machine, request: FetchSnapshotRequest, destination: Endpoint
    ) -> None:
        """Record a request for bytes of a snapshot, and trigger the fault that waits for one."""
        before, source.transfer = source.transfer, (request.snapshot_id, destination)
        if request.position == 0:
            return
        if before is not None and before[0] == request.snapshot_id and before[1] != destination:
            self._marks.hit("a transfer of a snapshot resumed with another leader")
        if self.transfer_ambush is not None:
            spring, self.transfer_ambush = self.transfer_ambush, None
            spring(source, target)
        self._note_cut_transfer(source.machine.node_id, target.node_id)

    def _note_cut_transfer(self, source_id: int, target_id: int) -> None:
        if (source_id, target_id) in self._network.cut_since_us:
            self._marks.hit("network: a transfer of a snapshot was cut")

    def _answer_as_foreign(
        self, source: SteppedProcess, target: Machine, request: Request, correlation_id: int
    ) -> None:
        """Answer as a node of another cluster at `target`'s address, with a leader and an epoch of that cluster."""
        self._marks.hit("a node of another cluster answered")
        outcome = ResponseReceived(correlation_id, foreign_answer(request, self._random))
        self._network.send(
            target.node_id,
            source.machine.node_id,
            lambda: source.run("foreign answer", lambda: source.shell.outcome(outcome)),
        )

    def _fail(self, source: SteppedProcess, target: Machine, correlation_id: int, *, is_refused: bool) -> None:
        failure = RequestFailed(correlation_id, connection_refused=is_refused)
        self._network.send(
            target.node_id,
            source.machine.node_id,
            lambda: source.run("refused", lambda: source.shell.outcome(failure)),
        )

    def send_response(
        self, replier: SteppedProcess, source: SteppedProcess, correlation_id: int, response: Response, records: bytes
    ) -> None:
        """Send the response to `source`'s request."""
        if isinstance(response, FetchResponse) and records and self._random.random() < self.corrupt_rate:
            self._marks.hit("network: a batch was corrupted")
            records = flip_a_bit(records, self._random)
        if isinstance(response, FetchSnapshotResponse) and records:
            self._note_cut_transfer(replier.machine.node_id, source.machine.node_id)
            if self.pieces_to_corrupt > 0 or self._random.random() < self.corrupt_rate:
                self.pieces_to_corrupt = max(0, self.pieces_to_corrupt - 1)
                self._marks.hit("network: a piece of a snapshot was corrupted")
                response = replace(response, data=flip_a_bit(records, self._random))
        chance = self.answers_to_falsify.get(source.machine.node_id)
        if isinstance(response, FetchResponse) and response.error is ErrorCode.NONE and chance is not None:
            del self.answers_to_falsify[source.machine.node_id]
            response, records = falsified(response, source.machine.view, chance), b""
        outcome: ResponseReceived | RequestFailed
        try:
            arrived = carry_response(response, records, through_codec=self._through_codec)
            outcome = ResponseReceived(correlation_id, arrived)
        except ApiError:
            outcome = RequestFailed(correlation_id)
        label = f"{type(response).__name__.removesuffix('Response')} answer"
        self._network.send(
            replier.machine.node_id,
            source.machine.node_id,
            lambda: source.run(label, lambda: source.shell.outcome(outcome)),
            sent_after_us=replier.stalled_us,
        )

    def send_foreign(self, machine: Machine, request: Request) -> None:
        """Send a request from a process that is no replica of this cluster."""
        process = machine.process
        if process is not None:
            process.run("foreign request", lambda: process.receive_foreign(request))

    def heal(self) -> None:
        """Stop damaging messages."""
        self.corrupt_rate = 0.0
        self.pieces_to_corrupt = 0
        self.transfer_ambush = None
