"""How the replicas of a partition may change: written from the rules (CT-54, CT-55), not from the controller's code.

While a reassignment is under way its partition has the new replicas and all that it had before. Replicas go in two ways
only: the reassignment ends, with all remaining replicas in sync, or at least those that it added if they are as many as
go; or it is cancelled, and the added ones go.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftlog.sim.quorum.model.metadata import Partition


def is_ended(before: Partition, after: Partition) -> bool:
    """Whether replicas go because all that stay are in sync; or at least as many as go, which came for them."""
    gone = set(before.replicas) - set(after.replicas)
    is_replaced = gone == set(before.removing) and len(before.adding) >= len(gone)
    return (
        set(after.isr) <= set(after.replicas) < set(before.replicas)
        and (set(after.replicas) == set(after.isr) or (is_replaced and set(before.adding) <= set(after.isr)))
        and not after.adding
        and not after.removing
    )


def is_cancelled(before: Partition, after: Partition) -> bool:
    """Whether those go that were being added, and the reassignment with them."""
    return (
        bool(before.adding)
        and set(after.replicas) == set(before.replicas) - set(before.adding)
        and not after.adding
        and not after.removing
    )


def is_on_the_way(partition: Partition, target: Sequence[int]) -> bool:
    """Whether the partition has the target, in its order, and all its other replicas are to go."""
    count = len(target)
    return partition.replicas[:count] == tuple(target) and set(partition.replicas[count:]) == set(partition.removing)
