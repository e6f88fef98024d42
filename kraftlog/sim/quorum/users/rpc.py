"""The calls of brokers and the administrator to the controller, at the node that they believe to be active."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kraftbase.errors import ErrorCode
from kraftbase.types import Offset
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.quorum.cluster.cluster import Cluster
from kraftlog.sim.quorum.node.process import Process
from kraftlog.sim.quorum.observation.call import Call
from kraftpb.v1.admin_pb2 import Operation, OperationResult

OnResult = Callable[[Call, int], None]
"""Called with a call that has its answer, and the applied end offset of the answering node."""


class RpcClient:
    """The RPC client of one caller."""

    def __init__(self, cluster: Cluster, place: int, random: Random, *, may_repeat: bool) -> None:
        """`place`: the caller's place in the network.

        With `may_repeat`, a message that the network repeats arrives twice.
        """
        self._cluster = cluster
        self._place = place
        self._random = random
        self._may_repeat = may_repeat
        self._leader_id: int | None = None
        self._count = 0

    def call(
        self,
        operation: Operation,
        timeout_ms: int,
        on_result: OnResult,
        on_arrival: Callable[[Process], None] = lambda process: None,
    ) -> Call:
        """Send an operation, which gets its answer within `timeout_ms` or never.

        `on_arrival` is called in a step of the process that receives the operation, before the process handles it.
        """
        cluster = self._cluster
        self._count += 1
        operation.correlation_id, operation.timeout_ms = self._count, timeout_ms
        call = Call(self._place, operation, cluster.event_queue.now_us, cluster.committed_end_offset)
        if operation.WhichOneof("operation") != "broker_heartbeat":
            cluster.calls.append(call)
        node_id = self._target()
        machine, label = cluster.machines[node_id], f"{operation.WhichOneof('operation')} of {self._place}"
        has_arrived = False

        def arrive() -> None:
            nonlocal has_arrived
            if machine.process is None:
                self._leader_id = None
            elif self._may_repeat or not has_arrived:
                process = machine.process

                def take() -> None:
                    on_arrival(process)
                    process.controller_host.handle(operation, respond)

                process.run(label, take)
            has_arrived = True

        def respond(result: OperationResult, applied_end_offset: int) -> None:
            process = machine.process
            kept = OperationResult()
            kept.CopyFrom(result)  # the process may change its own copy later
            cluster.network.send(
                node_id,
                self._place,
                lambda: self._answered(call, kept, applied_end_offset, on_result),
                sent_after_us=process.stalled_us if process is not None else 0,
            )

        cluster.network.send(self._place, node_id, arrive)
        cluster.event_queue.after(timeout_ms * MICROSECONDS_PER_MS, lambda: self._time_out(call))
        return call

    def _target(self) -> int:
        if self._leader_id is not None and self._leader_id in self._cluster.machines and self._random.random() > 0.03:
            return self._leader_id
        return self._random.choice(self._cluster.voter_ids)

    def _answered(self, call: Call, result: OperationResult, applied_end_offset: int, on_result: OnResult) -> None:
        if call.result is not None:
            return  # the answer to a repeated message, or a repeated answer
        call.result = result
        cluster = self._cluster
        if result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
            cluster.report_violation(f"the controller answered: {result.error_message}")
        if result.error_code == ErrorCode.NOT_CONTROLLER:
            self._leader_id = result.current_leader.leader_id if result.HasField("current_leader") else None
        elif call.is_acknowledged:
            cluster.acknowledged_end_offsets.append(Offset(result.state_end_offset))
        on_result(call, applied_end_offset)

    def _time_out(self, call: Call) -> None:
        if call.result is None:
            self._leader_id = None
