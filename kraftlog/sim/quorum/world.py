"""The world of clusters: a cluster and its users in virtual time, from one seed, checked after every step."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kraftbase.endpoint import Endpoint, Reply
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.quorum.cluster.cluster import Cluster
from kraftlog.sim.quorum.invariants.catalogue import Checker
from kraftlog.sim.quorum.observation.step import Step
from kraftlog.sim.quorum.observation.trace import StepTrace, describe
from kraftlog.sim.quorum.parameters import QuorumParameters
from kraftlog.sim.quorum.registers.history import History
from kraftlog.sim.quorum.registers.oracle import OffsetOracle
from kraftlog.sim.quorum.registers.records import committed_writes
from kraftlog.sim.quorum.users.administrator import Administrator
from kraftlog.sim.quorum.users.broker import FIRST_BROKER_ID, Broker
from kraftlog.sim.quorum.users.client import FIRST_CLIENT_ID, Client
from kraftlog.sim.quorum.users.reader import Reader


class World(Cluster):
    """A cluster, its users and the invariants.

    `run_for` lets time pass; faults and users schedule events in its queue.
    """

    brokers: list[Broker]

    def __init__(self, parameters: QuorumParameters, *, echo: bool = False, marks: Marks) -> None:
        random = Random(f"world {parameters.seed}")
        super().__init__(parameters, random, marks)
        self.trace = StepTrace(echo=echo)
        self.history = History()
        self.oracle = OffsetOracle(self.history)
        self._oracle_position = 0
        self.undecided_keys = 0
        """The number of keys with too many operations to search for an order that explains them."""
        self.checker = Checker(self)
        self.clients = [
            Client(self, self.history, FIRST_CLIENT_ID + number, Random(random.random()))
            for number in range(parameters.clients)
        ]
        self.brokers = []
        self.administrator: Administrator | None = None
        self.reader: Reader | None = None
        if parameters.brokers is not None:
            self.append_kill_rate = parameters.brokers.append_kill_rate
            others = Random(f"brokers {parameters.seed}")
            self.brokers = [
                Broker(self, FIRST_BROKER_ID + number, Random(others.random()))
                for number in range(parameters.brokers.count)
            ]
            self.administrator = Administrator(self, Random(others.random()))
            self.reader = Reader(self, Random(others.random()))

    @property
    def checks(self) -> int:
        """How often an invariant was checked."""
        return self.checker.checks

    @property
    def figures(self) -> Mapping[str, int]:
        """The number of operations of clients, of acknowledged ones, and of keys that could not be decided."""
        return {
            "operations": len(self.history.operations),
            "acknowledged": self.history.acknowledged_count,
            "undecided_keys": self.undecided_keys,
        }

    def describe_nodes(self) -> list[str]:
        """Return the state of each node, one line for each."""
        return [f"{node_id:>3} {describe(view)}" for node_id, view in self.nodes.items()]

    def after_step(self, step: Step) -> None:
        """Check all invariants after a step of a node. Raises Violation."""
        self.trace.step(step)
        super().after_step(step)
        self.checker.after_step(step)
        self._update_oracle()

    def _update_oracle(self) -> None:
        """Pass new committed writes to the oracle, in the order of the log."""
        for batch in self.committed[self._oracle_position :]:
            self.oracle.committed(committed_writes(batch), batch.end_offset)
        self._oracle_position = len(self.committed)

    def reply_to_connection(self, node_id: int, endpoint: Endpoint) -> tuple[Reply, int]:
        """Return the reply of the broker's listener at `endpoint`, and its delay in microseconds."""
        broker = next(broker for broker in self.brokers if broker.host == endpoint.host)
        return broker.listener.reply_to(node_id)

    def start_users(self) -> None:
        """Start the clients, the brokers, the administrator and the reader."""
        for client in self.clients:
            client.start()
        for broker in self.brokers:
            broker.start()
        if self.administrator is not None:
            self.administrator.start()
        if self.reader is not None:
            self.reader.start()

    def quiesce_users(self) -> None:
        """Begin no more operations. Brokers and controllers keep running."""
        self.append_kill_rate = 0.0
        for client in self.clients:
            client.stop()
        for broker in self.brokers:
            broker.quiesce()
        if self.administrator is not None:
            self.administrator.stop()
        if self.reader is not None:
            self.reader.stop()
