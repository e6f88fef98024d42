"""Replicas move without loss of data, whatever operations are sent during the move."""

from __future__ import annotations

from collections.abc import Iterator

from kraftbase.errors import ErrorCode
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.model.keys import Key
from kraftlog.sim.quorum.model.metadata import NO_LEADER, Change, Partition
from kraftlog.sim.quorum.model.reassignments import is_cancelled, is_ended, is_on_the_way
from kraftlog.sim.quorum.observation.call import Call
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from kraftpb.v1.admin_pb2 import PartitionReassignment


def _changed(world: Observed) -> Iterator[tuple[Change, Partition, Partition]]:
    """Yield each change of an existing partition, with its states before and after."""
    for change in world.metadata_changes:
        if change.kind == "partition" and change.before is not None:
            yield change, change.before, change.after


class InSyncLead(Invariant):
    """An elected replica was in sync if any active replica was, else eligible if any active replica was.

    The cause of the election and the record's other changes do not matter. There are two exceptions. The record that
    ends a reassignment may elect the replica that it adds to the ISR. A cancellation, where the topic allows it, may
    drop every replica with the data together with the added ones (CT-54).
    """

    number = 60
    title = "active in-sync replicas are elected first"
    source = "KIP-966; CT-50, CT-51, CT-55"
    looks_at = frozenset({"is_news", "deliveries"})
    is_about_brokers = True

    def after_step(self, step: Step) -> None:
        """Check elections."""
        for change, before, after in _changed(self.world):
            self._check(change, before, after)

    def _check(self, change: Change, before: Partition, after: Partition) -> None:
        leader = after.leader
        if leader in (NO_LEADER, before.leader) or leader in before.isr or is_ended(before, after):
            return
        better = set(before.isr if leader in before.elr else (*before.isr, *before.elr)) & change.active
        if is_cancelled(before, after):
            better -= set(before.adding)
        if better:
            self.violated(
                f"at offset {change.offset} partition {change.key[1]} of topic {change.key[0].hex()} goes from {before}"
                f" to {after}, although {sorted(better)} have its data and are active"
            )


class ReplicasGoWhenDone(Invariant):
    """Replicas are removed only when a reassignment ends or is cancelled.

    Until then all replicas stay, and the ISR stays when another reassignment begins.
    """

    number = 61
    title = "replicas are removed only when the others are in sync"
    source = "CT-54, CT-55"
    looks_at = frozenset({"is_news", "deliveries"})
    is_about_brokers = True

    def after_step(self, step: Step) -> None:
        """Check partitions whose replicas have changed."""
        for change, before, after in _changed(self.world):
            self._check(change, before, after)

    def _check(self, change: Change, before: Partition, after: Partition) -> None:
        if _assignment(before) == _assignment(after) or is_ended(before, after) or is_cancelled(before, after):
            return
        is_ended_without_loss = set(after.replicas) == set(before.replicas) and not after.adding and not after.removing
        begins = set(before.replicas) <= set(after.replicas) and set(before.isr) <= set(after.isr)
        if not begins and not is_ended_without_loss:
            self.violated(
                f"at offset {change.offset} partition {change.key[1]} of topic {change.key[0].hex()} goes from {before}"
                f" to {after}: replicas are removed, or leave the ISR, before the remaining ones are in sync"
            )


def _assignment(partition: Partition) -> tuple[tuple[int, ...], ...]:
    return partition.replicas, partition.adding, partition.removing


class ReassignmentsAreTaken(Invariant):
    """A reassignment to registered brokers is accepted, even during another one; an acknowledged one is in the log.

    Runs in which faults may destroy a majority's data are left out.
    """

    number = 62
    title = "reassignments to registered brokers are accepted"
    source = "CT-54, CT-55"
    looks_at = frozenset({"is_news", "deliveries"})
    is_about_brokers = True

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._states: dict[Key, list[tuple[int, Partition]]] = {}
        """Every state of a partition, with the offset at which it begins."""
        self._topic_ids: dict[str, list[bytes]] = {}
        self._registered: dict[int, int] = {}
        """By broker: the offset of its first registration."""
        self._unregistered: dict[int, int] = {}
        """By broker: the offset of its last unregistration."""

    def after_step(self, step: Step) -> None:
        """Record the changes."""
        for change in self.world.metadata_changes:
            if change.kind == "partition":
                self._states.setdefault(change.key, []).append((change.offset, change.after))
            elif change.kind == "topic" and change.after is not None:
                self._topic_ids.setdefault(change.after, []).append(change.key)
            elif change.kind == "broker" and change.after is None:
                self._unregistered[change.key] = change.offset
            elif change.kind == "broker":
                self._registered.setdefault(change.key, change.offset)

    def at_end(self) -> None:
        """Check every answer."""
        if self.world.faults_may_lose_quorum:
            return
        for call in self.world.calls:
            if call.is_acknowledged and call.operation.WhichOneof("operation") == "alter_partition_reassignments":
                self._check(call)

    def _check(self, call: Call) -> None:
        if call.result is None:
            return
        answers = call.result.alter_partition_reassignments.partitions
        for reassignment, answer in zip(call.operation.alter_partition_reassignments.partitions, answers, strict=True):
            if not reassignment.HasField("replicas"):
                continue
            if answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT and self._are_registered(call, reassignment):
                self.violated(f"a reassignment to registered brokers was refused: {answer.error_message}")
            if answer.error_code == ErrorCode.NONE and not self._is_in_log(call, reassignment):
                self.violated(f"a reassignment was acknowledged, but is not in the log: {reassignment}")

    def _are_registered(self, call: Call, reassignment: PartitionReassignment) -> bool:
        """Whether all named brokers were certainly registered when the controller decided."""
        known_from = min(call.committed_before, call.result.state_end_offset if call.result is not None else 0)
        return all(
            self._registered.get(broker_id, known_from) < known_from and broker_id not in self._unregistered
            for broker_id in reassignment.replicas.ids
        )

    def _is_in_log(self, call: Call, reassignment: PartitionReassignment) -> bool:
        """Whether the partition was moving to the target at some time since the call was made."""
        for topic_id in self._topic_ids.get(reassignment.topic, ()):
            states = self._states.get((topic_id, reassignment.partition_id), [])
            ends = [begins for begins, _ in states[1:]] + [self.world.metadata.end_offset + 1]
            for (_, state), end in zip(states, ends, strict=False):
                # The state that the record at `end` replaced was still current for a caller that had seen everything
                # below `end`.
                if end >= call.committed_before and is_on_the_way(state, reassignment.replicas.ids):
                    return True
        return False
