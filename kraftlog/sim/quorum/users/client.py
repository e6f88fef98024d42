"""A client that records its operations and every answer: done, refused, or unknown."""

from __future__ import annotations

from random import Random
from typing import Final

from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS, Timer
from kraftlog.sim.quorum.cluster.cluster import Cluster
from kraftlog.sim.quorum.node.machine import Machine
from kraftlog.sim.quorum.node.register_service import Answer, ClientReply, ClientRequest
from kraftlog.sim.quorum.registers.history import History, Kind, Operation

FIRST_CLIENT_ID: Final = 101
"""The first client's place in the network; the others follow."""


class Client:
    """A client with one operation at a time, on a few keys, sent to the node that it believes to lead."""

    def __init__(self, cluster: Cluster, history: History, client_id: int, random: Random) -> None:
        self._cluster = cluster
        self._history = history
        self._random = random
        self.client_id = client_id
        self._leader_id: int | None = None
        self._operation: Operation | None = None
        self._timer: Timer | None = None
        self._last_seen: dict[str, str | None] = {}
        """By key: the value last found or written, for compare-and-set."""
        self._is_stopped = True
        self._is_probing = False
        self.has_probed = False
        """Whether an operation that began since `start_probing` was acknowledged."""

    def start(self) -> None:
        """Begin operations after a random wait."""
        self._is_stopped = False
        self._think()

    def stop(self) -> None:
        """Begin no more operations."""
        self._is_stopped = True

    def start_probing(self) -> None:
        """Send operations without a pause until one is acknowledged."""
        self._is_probing = True
        if self._operation is None:
            self._begin()

    def _think(self) -> None:
        wait_ms = self._random.expovariate(1 / self._cluster.parameters.think_time_ms)
        self._cluster.event_queue.after(int(wait_ms * MICROSECONDS_PER_MS), self._begin)

    def _begin(self) -> None:
        if self._operation is not None or (self._is_stopped and not self._is_probing):
            return
        begun = len(self._history.operations)
        if begun >= self._cluster.parameters.operations_max and not self._is_probing:
            return
        request = self._draw()
        self._operation = operation = self._history.begin(
            client_id=self.client_id,
            kind=request.kind,
            key=request.key,
            value=request.value,
            expected=request.expected,
            invoked_at=self._cluster.event_queue.now_us,
        )
        request = ClientRequest(operation.operation_id, request.kind, request.key, request.value, request.expected)
        timeout_us = self._cluster.parameters.client_timeout_ms * MICROSECONDS_PER_MS
        self._timer = self._cluster.event_queue.after(timeout_us, self._time_out)
        self._send(request, self._target())

    def _draw(self) -> ClientRequest:
        random = self._random
        key = f"key-{random.randrange(self._cluster.parameters.keys)}"
        kind = random.choice([Kind.WRITE, Kind.WRITE, Kind.READ, Kind.COMPARE_AND_SET])
        number = len(self._history.operations) + 1
        if kind is Kind.READ:
            return ClientRequest(number, kind, key)
        expected = self._last_seen.get(key) if kind is Kind.COMPARE_AND_SET else None
        return ClientRequest(number, kind, key, f"value-{number}", expected)

    def _target(self) -> Machine:
        machines = self._cluster.machines
        if self._leader_id not in machines or self._random.random() < 0.05:
            return machines[self._random.choice(self._cluster.voter_ids)]
        return machines[self._leader_id]

    def _send(self, request: ClientRequest, machine: Machine) -> None:
        network = self._cluster.network

        def respond(reply: ClientReply) -> None:
            process = machine.process
            stalled_us = process.stalled_us if process is not None else 0
            network.send(
                machine.node_id,
                self.client_id,
                lambda: self._receive(request.operation_id, reply),
                sent_after_us=stalled_us,
            )

        is_delivered = False

        def arrive() -> None:
            nonlocal is_delivered
            if is_delivered:
                return  # the transport drops repeated messages, so a call arrives once
            is_delivered = True
            process = machine.process
            if process is None:
                respond(ClientReply(Answer.REFUSED))
            else:
                process.run(
                    f"operation {request.operation_id}", lambda: process.register_service.handle(request, respond)
                )

        network.send(self.client_id, machine.node_id, arrive)

    def _receive(self, operation_id: int, reply: ClientReply) -> None:
        operation = self._operation
        if operation is None or operation.operation_id != operation_id:
            return  # too late, or repeated
        now_us = self._cluster.event_queue.now_us
        history = self._history
        match reply.answer:
            case Answer.DONE:
                history.acknowledge(
                    operation, now_us, offset=reply.end_offset - 1, found=reply.found, swapped=reply.swapped
                )
                self._remember(operation, reply)
                self._cluster.acknowledged_end_offsets.append(reply.end_offset)
                self.has_probed = self.has_probed or self._is_probing
                self._is_probing = self._is_probing and not self.has_probed
            case Answer.REFUSED:
                history.refuse(operation, now_us)
                self._leader_id = reply.leader_id
            case Answer.UNKNOWN:
                history.lose_track(operation, now_us)
                self._leader_id = None
        self._finish()

    def _remember(self, operation: Operation, reply: ClientReply) -> None:
        wrote = operation.kind is Kind.WRITE or reply.swapped
        self._last_seen[operation.key] = operation.value if wrote else reply.found

    def _time_out(self) -> None:
        if self._operation is not None:
            self._history.lose_track(self._operation, self._cluster.event_queue.now_us)
            self._leader_id = None
            self._finish()

    def _finish(self) -> None:
        self._operation = None
        if self._timer is not None:
            self._timer.cancel()
        if self._is_probing:
            self._cluster.event_queue.after(50 * MICROSECONDS_PER_MS, self._begin)
        elif not self._is_stopped:
            self._think()
