"""The ways in which a partition's replicas may change, written from the rules (CT-54, CT-55) and not from the code.

During a reassignment the partition has its new replicas and all its previous ones. Replicas are removed in two ways
only. Either the reassignment ends: all remaining replicas are in sync, or at least the added ones if they are as many
as the removed ones. Or it is cancelled, and the added replicas are removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftlog.sim.quorum.model.metadata import Partition


def is_ended(before: Partition, after: Partition) -> bool:
    """Whether the reassignment ended: replicas were removed when enough of the remaining ones were in sync.

    All remaining ones are enough, and so are all added ones if they are at least as many as the removed ones.
    """
    gone = set(before.replicas) - set(after.replicas)
    is_replaced = gone == set(before.removing) and len(before.adding) >= len(gone)
    return (
        set(after.isr) <= set(after.replicas) < set(before.replicas)
        and (set(after.replicas) == set(after.isr) or (is_replaced and set(before.adding) <= set(after.isr)))
        and not after.adding
        and not after.removing
    )


def is_cancelled(before: Partition, after: Partition) -> bool:
    """Whether the reassignment was cancelled: the replicas that it was adding are removed."""
    return (
        bool(before.adding)
        and set(after.replicas) == set(before.replicas) - set(before.adding)
        and not after.adding
        and not after.removing
    )


def is_on_the_way(partition: Partition, target: Sequence[int]) -> bool:
    """Whether the partition's replicas start with `target`, in order, and all its other replicas are being removed."""
    count = len(target)
    return partition.replicas[:count] == tuple(target) and set(partition.replicas[count:]) == set(partition.removing)
