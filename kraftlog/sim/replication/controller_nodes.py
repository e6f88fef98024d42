"""The nodes through which brokers reach the controller. One may be cut off: it is reachable but knows no leader.

Such a node refuses operations or does not answer, and delivers no metadata. The broker continues with another node
(`kraftlog.admin.client.leader_finder`) and sends the operation again if it still needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from kraftbase.errors import ErrorCode
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.replication.controller import SimulatedController
from kraftpb.v1.admin_pb2 import Operation, OperationResult

NODES: Final = 3
_REFUSALS: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE)


class ControllerNodes:
    """All controller nodes."""

    def __init__(self, controller: SimulatedController, marks: Marks) -> None:
        self._controller = controller
        self._marks = marks
        self._nodes: dict[int, int] = {}
        """By broker: the node that it uses, if that is not its first one."""
        self._cut_off: int | None = None
        self._refusal: ErrorCode | None = None
        """The answer of the node that is cut off; None: no answer."""

    def cut_off(self, broker_id: int, random: Random) -> None:
        """Cut off the node that a broker uses."""
        self._cut_off = self._node_of(broker_id)
        self._refusal = random.choice([*_REFUSALS, None])

    def heal(self) -> None:
        """Let all nodes know the leader again."""
        self._cut_off = None

    def is_cut_off(self, broker_id: int) -> bool:
        """Whether the node to which a broker sends operations, and which delivers its metadata, is cut off."""
        return self._node_of(broker_id) == self._cut_off

    def asked_by(self, broker_id: int) -> AskedNode:
        """Return the node that the broker uses when its operation arrives."""
        return AskedNode(self, broker_id)

    def _node_of(self, broker_id: int) -> int:
        return self._nodes.get(broker_id, broker_id % NODES)

    def submit(self, broker_id: int, operation: Operation, on_result: Callable[[OperationResult], None]) -> None:
        """Handle an operation of a broker."""
        if not self.is_cut_off(broker_id):
            self._controller.submit(operation, on_result)
            return
        self._marks.hit(f"a node without a leader was asked: {operation.WhichOneof('operation')}")
        self._nodes[broker_id] = (self._node_of(broker_id) + 1) % NODES
        if self._refusal is not None:
            on_result(OperationResult(error_code=self._refusal, error_message="no leader is known here"))


class AskedNode:
    """The node for the operations of one broker."""

    def __init__(self, nodes: ControllerNodes, broker_id: int) -> None:
        self._nodes = nodes
        self._broker_id = broker_id

    def submit(self, operation: Operation, on_result: Callable[[OperationResult], None]) -> None:
        """Carry the operation out, or refuse it."""
        self._nodes.submit(self._broker_id, operation, on_result)
