"""The controller's answers to brokers and the administrator match the log."""

from __future__ import annotations

from typing import Any, Final

from kraftbase.errors import ErrorCode
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.model.keys import Key
from kraftlog.sim.quorum.model.metadata import TOPIC, Partition
from kraftlog.sim.quorum.observation.call import CREATED_BY, Call
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step

_Found = dict[Any, list[int]]
"""The offsets of records, by their content."""


class AcknowledgedMetadata(Invariant):
    """An acknowledged operation is in the committed log between the end at its call and the offset in its answer.

    A topic whose creation was refused was never created, and no creation took effect twice. An acknowledged ISR is the
    partition's ISR at the epoch in the answer. Runs in which faults may destroy a majority's data are left out.
    """

    number = 58
    title = "the log has what the controller acknowledged"
    source = "(own); CT-10"
    looks_at = frozenset({"is_news", "deliveries"})
    is_about_brokers = True

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._states: dict[tuple[Key, int], Partition] = {}

    def after_step(self, step: Step) -> None:
        """Record the states of partitions by their epochs."""
        for change in self.world.metadata_changes:
            if change.kind == "partition":
                self._states[change.key, change.after.partition_epoch] = change.after

    def at_end(self) -> None:
        """Check every answer."""
        world = self.world
        if world.faults_may_lose_quorum:
            return
        found = _found_in(world)
        for number, offsets in found["created by"].items():
            if len(offsets) > 1:
                self.violated(f"operation {number} created a topic twice, at {offsets}")
        for call in world.calls:
            self._check(call, found)

    def _check(self, call: Call, found: dict[str, _Found]) -> None:
        result, operation = call.result, call.operation
        kind = operation.WhichOneof("operation")
        if result is None:
            return
        if kind == "create_topics":
            requested = operation.create_topics.topics[0]
            number = requested.configs[0].value
            if call.is_refused or any(topic.error_code for topic in result.create_topics.topics):
                if found["created by"].get(number):
                    self.violated(f"a topic was refused, but created at {found['created by'][number]}: {result}")
            elif call.is_acknowledged:
                self._expect(call, "created", (requested.name, result.create_topics.topics[0].topic_id), found)
        elif not call.is_acknowledged:
            return
        elif kind == "delete_topics":
            for topic in result.delete_topics.topics:
                if topic.error_code == ErrorCode.NONE:
                    self._expect(call, "removed", topic.topic_id, found)
        elif kind == "register_broker":
            epoch = result.register_broker.broker_epoch
            registered = (operation.register_broker.broker_id, operation.register_broker.incarnation_id, epoch)
            self._expect(call, "registered", registered, found, is_new=False)
        elif kind == "unregister_broker":
            self._expect(call, "unregistered", operation.unregister_broker.broker_id, found)
        elif kind == "alter_partition":
            self._check_altered(call)

    def _expect(self, call: Call, what: str, key: Any, found: dict[str, _Found], *, is_new: bool = True) -> None:
        result = call.result
        end_offset = (
            result.end_offset if result is not None and result.end_offset > 0 else self.world.metadata.end_offset
        )
        first = call.committed_before if is_new else 0
        if not any(first <= offset < end_offset for offset in found[what].get(key, ())):
            self.violated(
                f"{what} {key}: acknowledged below offset {end_offset}, requested when {call.committed_before}"
                f" was committed, but the log has it at {found[what].get(key, [])}"
            )

    def _check_altered(self, call: Call) -> None:
        if call.result is None:
            return
        for altered in call.result.alter_partition.partitions:
            if altered.error_code != ErrorCode.NONE:
                continue
            key = (altered.topic_id, altered.partition_id)
            state = self._states.get((key, altered.partition_epoch))
            seen = (altered.leader, altered.leader_epoch, tuple(altered.isr), altered.leader_recovery_state)
            if state is None or (state.leader, state.leader_epoch, state.isr, state.recovery_state) != seen:
                self.violated(
                    f"the answer to broker {call.caller_id} has partition {key[1]} of topic {key[0].hex()} as {seen} at"
                    f" partition epoch {altered.partition_epoch}, but the log has {state}"
                )


def _found_in(world: Observed) -> dict[str, _Found]:
    found: dict[str, _Found] = {name: {} for name in _KINDS}
    for batch in world.metadata_log:
        is_creating = False
        for offset, record in enumerate(batch.records, batch.base_offset):
            kind = record.WhichOneof("record")
            if kind == "topic":
                is_creating = True
                found["created"].setdefault((record.topic.name, record.topic.topic_id), []).append(offset)
            elif (
                kind == "config"
                and is_creating
                and (record.config.resource_type, record.config.name) == (TOPIC, CREATED_BY)
            ):
                found["created by"].setdefault(record.config.value, []).append(offset)
            elif kind == "remove_topic":
                found["removed"].setdefault(record.remove_topic.topic_id, []).append(offset)
            elif kind == "register_broker":
                registration = record.register_broker
                found["registered"].setdefault(
                    (registration.broker_id, registration.incarnation_id, registration.broker_epoch), []
                ).append(offset)
            elif kind == "unregister_broker":
                found["unregistered"].setdefault(record.unregister_broker.broker_id, []).append(offset)
    return found


_KINDS: Final = ("created", "created by", "removed", "registered", "unregistered")
