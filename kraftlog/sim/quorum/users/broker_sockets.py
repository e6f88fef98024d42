"""A broker's sockets as nodes see them: the streams of its heartbeats, and the replies of its listener (CT-65)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from kraftbase.endpoint import Reply
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.quorum.cluster.cluster import Cluster
from kraftlog.sim.quorum.node.process import Process
from kraftpb.v1.admin_pb2 import BrokerHeartbeatRequest

CLOSED_US_MAX: Final = 20 * MICROSECONDS_PER_MS
"""The longest delay with which a node notices that a stream has ended."""

UNANSWERED_US_MAX: Final = 250 * MICROSECONDS_PER_MS
"""The time after which a node stops waiting for a connection. The network may report sooner that there is no route."""

OUT_OF_REACH_SHARE: Final = 0.2
"""The share of brokers whose address belongs to another machine in the nodes' network: nothing listens there."""


class Streams:
    """The streams of one process of a broker to the processes of nodes."""

    def __init__(self, cluster: Cluster, broker_id: int, random: Random) -> None:
        self._cluster = cluster
        self._broker_id = broker_id
        self._random = random
        self._numbers: dict[Process, int] = {}
        self._has_ended = False

    def carry(self, process: Process, heartbeat: BrokerHeartbeatRequest) -> None:
        """Deliver a heartbeat to a node, in a step of its process."""
        if not self._has_ended:
            number = self._numbers.setdefault(process, process.new_number())
            process.controller_host.heartbeat_came(number, heartbeat)

    def end(self) -> None:
        """End the streams for good, as the kernel does when the process ends."""
        self.break_all()
        self._has_ended = True

    def break_all(self) -> list[Process]:
        """End all streams now. Return the processes of nodes that will notice: those whose links are not cut."""
        broken = []
        for process, number in self._numbers.items():
            node_id = process.machine.node_id
            links = ((self._broker_id, node_id), (node_id, self._broker_id))
            if not any(link in self._cluster.network.cut_since_us for link in links):
                broken.append(process)
                process.after(self._random.randrange(CLOSED_US_MAX), "stream ended", _ending(process, number))
        self._numbers.clear()
        return broken


def _ending(process: Process, number: int) -> Callable[[], None]:
    return lambda: process.controller_host.stream_ended(number)


class BrokerListener:
    """The listener of one broker."""

    def __init__(self, cluster: Cluster, broker_id: int, random: Random, is_there: Callable[[], bool]) -> None:
        """`is_there` returns whether a process listens."""
        self._cluster = cluster
        self._broker_id = broker_id
        self._random = random
        self._is_there = is_there
        self.is_out_of_reach = random.random() < OUT_OF_REACH_SHARE
        """Whether nothing listens at the broker's address in the nodes' network, because it belongs to another machine.
        """
        self._refused_until_us = 0

    def refuse(self, duration_us: int) -> None:
        """Refuse connections for `duration_us` although the process listens."""
        self._refused_until_us = max(self._refused_until_us, self._cluster.event_queue.now_us + duration_us)

    @property
    def is_refused(self) -> bool:
        """Whether connections are refused now although the process may listen."""
        return self._refused_until_us > self._cluster.event_queue.now_us

    def reply_to(self, node_id: int) -> tuple[Reply, int]:
        """Return the reply to a connection that a node attempts now, and the delay of the reply in microseconds."""
        cluster, random = self._cluster, self._random
        links = ((self._broker_id, node_id), (node_id, self._broker_id))
        if any(link in cluster.network.cut_since_us for link in links):
            is_told = random.random() < 0.8
            return Reply.UNKNOWN, random.randrange(5 * MICROSECONDS_PER_MS) if is_told else UNANSWERED_US_MAX
        is_refused = self.is_out_of_reach or self.is_refused or not self._is_there()
        reply = Reply.REFUSED if is_refused else Reply.ACCEPTED
        return reply, sum(random.randint(*cluster.network.conditions.delay_us) for _ in links)
