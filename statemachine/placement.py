"""Which brokers get the replicas of a new topic: striped over all brokers, blind to racks.

Kafka's idea (StripedReplicaPlacer): the brokers in a random order, the leader of each next partition one further, and
the distance from leader to followers one larger each time around. So leaders are spread evenly, and so is the load that
a broker leaves behind when it fails. Fenced brokers come last and lead nothing (CT-32).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from raft.core.errors import ErrorCode, ProtocolError


def place_replicas(
    active: Sequence[int], fenced: Sequence[int], num_partitions: int, replication_factor: int, random: Random
) -> list[list[int]]:
    """The replicas of each partition, its first choice of leader first.

    Raises ProtocolError(INVALID_REPLICATION_FACTOR) if there are not as many brokers, or none that is active.
    """
    registered = len(active) + len(fenced)
    if replication_factor > registered:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {replication_factor} needs as many brokers, and {registered} are registered;"
            " lower it or register more brokers",
        )
    if not active:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "all brokers are fenced or shutting down; start one and try again"
        )
    order = random.sample(active, len(active))
    reserve = random.sample(fenced, len(fenced))
    start = random.randrange(len(order))
    from_active = min(replication_factor, len(order))
    return [
        _stripe(order, start + partition, from_active) + reserve[: replication_factor - from_active]
        for partition in range(num_partitions)
    ]


def _stripe(order: Sequence[int], turn: int, count: int) -> list[int]:
    """`count` different brokers: the leader whose turn it is, and followers at a distance that grows every round."""
    size = len(order)
    replicas = [order[turn % size]]
    if count > 1:
        distance = turn // size
        replicas += [order[(turn + 1 + (distance + step) % (size - 1)) % size] for step in range(count - 1)]
    return replicas
