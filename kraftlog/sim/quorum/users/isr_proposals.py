"""The ISR that a leader proposes for a partition: mostly the active replicas, sometimes a random set."""

from __future__ import annotations

from random import Random

from kraftlog.sim.quorum.model.keys import Key
from kraftlog.sim.quorum.model.metadata import MetadataModel
from kraftlog.sim.quorum.observation.broker_view import Led
from kraftpb.v1.admin_pb2 import AlteredPartition, IsrMember


def propose_isr(
    broker_id: int, broker_epoch: int, metadata: MetadataModel, key: Key, led: Led, random: Random
) -> AlteredPartition:
    """Return a new ISR of the partition `key`, which the broker `broker_id` leads; `led` is what it knows of it.

    Some proposals name an old partition epoch and must be refused; the others are added to `led`.
    """
    others = [other for other in metadata.partitions[key].replicas if other != broker_id]
    if random.random() < 0.6:  # all replicas that are active have caught up
        in_sync = [other for other in others if other in metadata.brokers and metadata.brokers[other].is_active]
    else:
        in_sync = [other for other in others if random.random() < 0.5]
    isr = [broker_id, *in_sync]
    is_stale = random.random() < 0.1 and led.partition_epoch > 0
    partition_epoch = led.partition_epoch - is_stale
    if not is_stale:
        led.asked.append((partition_epoch, frozenset(isr)))
    members = [IsrMember(broker_id=broker_id, broker_epoch=broker_epoch)]
    members += [IsrMember(broker_id=other, broker_epoch=_epoch_of(metadata, other, random)) for other in in_sync]
    return AlteredPartition(
        topic_id=key[0],
        partition_id=key[1],
        leader_epoch=led.leader_epoch,
        partition_epoch=partition_epoch,
        leader_recovery_state=0,
        new_isr=members,
    )


def _epoch_of(metadata: MetadataModel, broker_id: int, random: Random) -> int:
    """Return the broker epoch of another broker; -1 if it is unknown, and sometimes although it is known."""
    known = metadata.brokers.get(broker_id)
    return -1 if known is None or random.random() < 0.2 else known.epoch
