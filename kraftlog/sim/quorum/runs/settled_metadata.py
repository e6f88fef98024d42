"""Whether the controller has settled the metadata, as it must soon after the last fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kraftlog.sim.quorum.model.keys import Key
from kraftlog.sim.quorum.model.metadata import NO_LEADER, MetadataModel, Partition
from kraftlog.sim.quorum.observation.broker_view import BrokerView


def why_not_settled(metadata: MetadataModel, brokers: Sequence[BrokerView]) -> str | None:
    """Return what the controller has yet to do; None if it has settled everything.

    Brokers that are up are unfenced, all others are fenced. Each partition has a leader if a replica is active that may
    lead. The ISR of a partition with a leader contains only active brokers.
    """
    return next(_brokers(metadata, brokers), None) or next(_partitions(metadata), None)


def _brokers(metadata: MetadataModel, brokers: Iterable[BrokerView]) -> Iterator[str]:
    for broker in brokers:
        known = metadata.brokers.get(broker.broker_id)
        if broker.is_up and (known is None or not known.is_active or known.epoch != broker.epoch):
            yield f"broker {broker.broker_id} is up with epoch {broker.epoch}, but registered as {known}"
        if not broker.is_up and known is not None and not known.fenced:
            yield f"broker {broker.broker_id} is down, but registered as {known}"


def _partitions(metadata: MetadataModel) -> Iterator[str]:
    active = {broker_id for broker_id, broker in metadata.brokers.items() if broker.is_active}
    for key, partition in metadata.partitions.items():
        what = f"partition {key[1]} of topic {key[0].hex()} is {partition}; active brokers: {sorted(active)}"
        if partition.leader == NO_LEADER:
            candidates = active.intersection(_may_lead(metadata, key, partition))
            if candidates:
                yield f"{what}; it has no leader, but {sorted(candidates)} could lead"
        elif not active.issuperset(partition.isr):
            yield f"{what}; another broker is in its ISR"


def _may_lead(metadata: MetadataModel, key: Key, partition: Partition) -> Sequence[int]:
    """Return the replicas that may lead if they are active (CT-50, CT-51, KIP-966)."""
    if metadata.allows_unclean(key[0]):
        return partition.replicas
    if partition.isr:
        return partition.isr
    if partition.elr:
        return partition.elr if metadata.has_elr else ()
    return partition.last_known_elr if len(partition.last_known_elr) == 1 else ()
