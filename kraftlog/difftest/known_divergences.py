"""Steps after which the metadata of the two systems are known to diverge, each with its rule in docs/rules.

A sequence ends at such a step. So most of these steps are left out. The content of a step decides, so that a shorter
sequence leaves out the same steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from zlib import crc32

from kraftlog.difftest import steps
from kraftlog.difftest.image import Image
from kraftlog.difftest.records import directory_id, directory_name
from kraftlog.difftest.steps import Step
from statemachine.words.features import METADATA_VERSION

EXECUTED_ONE_IN: Final = 8
"""One of this many such steps is carried out."""

NOT_KNOWN: Final = ("migrating", "unassigned")
"""Reserved directories whose replicas may still be in any directory."""
MIN_ISR: Final = "min.insync.replicas"
UNSAFE_DOWNGRADE: Final = 3


def divergence_rule(step: Step, image: Image) -> str:
    """Return the rule by which the systems diverge at this step, or "". `image` is Kafka's, before the step."""
    return next((rule for rule, parts in _RULES if parts(step, image)), "")


def is_executed(step: Step) -> bool:
    """Whether a step at which the systems diverge is one of the few that are carried out."""
    return crc32(repr(step).encode()) % EXECUTED_ONE_IN == 0


def _is_uneven(step: Step, image: Image) -> bool:
    """CT-23: the replication factor is the one that the first partition will have; in Kafka any partition's."""
    if not isinstance(step, steps.CreatePartitions):
        return False
    found = [image.partitions[step.topic, number] for number in image.partition_ids(step.topic)]
    return len({len(one.replicas) for one in found}) > 1 or any(one.adding or one.removing for one in found)


def _names_failed_directory(step: Step, image: Image) -> bool:
    """CT-27: the assignment to a failed directory and its consequences are one change."""
    if not isinstance(step, steps.AssignDirectories) or step.broker_id not in image.brokers:
        return False
    online = image.brokers[step.broker_id].log_dirs
    found = [image.partitions[key] for key in step.partitions if key in image.partitions]
    is_online = directory_name(directory_id(step.broker_id, step.log_dir)) in online
    return not is_online and any(step.broker_id in partition.replicas for partition in found)


def _leaves_failed_directory(step: Step, image: Image) -> bool:
    """CT-27: a replica that appears in another directory than its failed one starts empty, and cannot lead."""
    if not isinstance(step, steps.AssignDirectories) or step.broker_id not in image.brokers:
        return False
    known = (*image.brokers[step.broker_id].log_dirs, *NOT_KNOWN)
    found = [image.partitions[key] for key in step.partitions if key in image.partitions]
    return any(
        step.broker_id in (*partition.elr, *partition.last_known_elr)
        and dict(zip(partition.replicas, partition.directories, strict=False)).get(step.broker_id, NOT_KNOWN[0])
        not in known
        for partition in found
    )


def _is_kept_out(step: Step, image: Image) -> bool:
    """CT-33: in Kafka, heartbeats of a fenced broker prevent the registration of another incarnation. And kraftlog
    refuses negative broker ids.
    """
    if not isinstance(step, steps.RegisterBroker) or step.is_late:
        return False
    if step.broker_id < 0:
        return True
    broker = image.brokers.get(step.broker_id)
    return broker is not None and broker.fenced and broker.incarnation != f"{step.broker_id}:{step.incarnation}"


def _is_unregistered(step: Step, image: Image) -> bool:
    """CT-36: Kafka keeps an unregistered broker among the eligible replicas until it registers again."""
    return isinstance(step, steps.UnregisterBroker) and any(
        step.broker_id in (*partition.isr, *partition.elr) for partition in image.partitions.values()
    )


def _cancels_all_in_sync(step: Step, image: Image) -> bool:
    """CT-54: on a cancelled reassignment kraftlog elects a remaining eligible replica, which has the data; and the
    systems choose differently if there is none.
    """
    if not isinstance(step, steps.Reassign):
        return False
    cancelled = [image.partitions.get((topic, number)) for topic, number, target in step.partitions if target is None]
    return any(one is not None and bool(one.adding) and set(one.isr) <= set(one.adding) for one in cancelled)


def _keeps_list(step: Step, image: Image) -> bool:
    """CT-55: Kafka keeps the earlier list of added or removed replicas if the new list is empty."""
    for topic, number, target in step.partitions if isinstance(step, steps.Reassign) else ():
        partition = image.partitions.get((topic, number))
        if target and partition is not None:
            is_added, is_removed = set(target) - {*partition.replicas}, {*partition.replicas} - set(target)
            if (partition.adding and not is_added) or (partition.removing and not is_removed):
                return True
    return False


def _brings_back(step: Step, image: Image) -> bool:
    """CT-56: in Kafka an eligible replica that is removed and added again is eligible at once, although it is empty."""
    return isinstance(step, steps.Reassign) and any(
        not image.former_eligible.get((topic, number), frozenset()).isdisjoint(target or ())
        for topic, number, target in step.partitions
    )


def _forgets_eligible(step: Step, image: Image) -> bool:
    """CT-56: Kafka removes all eligible replicas at each change of min.insync.replicas."""
    if not isinstance(step, steps.AlterConfigs) or all(name != MIN_ISR for name, _, _ in step.changes):
        return False
    return any(
        partition.elr or partition.last_known_elr or image.former_eligible.get(key)
        for key, partition in image.partitions.items()
        if step.resource_type == steps.BROKER or key[0] == step.resource_name
    )


def _configures_brokers(step: Step, image: Image) -> bool:
    """CT-60: the default of min.insync.replicas can be deleted."""
    if not isinstance(step, steps.AlterConfigs) or step.resource_type != steps.BROKER:
        return False
    return any(name == MIN_ISR and operation == steps.DELETE for name, operation, _ in step.changes)


def _downgrades(step: Step, image: Image) -> bool:
    """CT-61: no unsafe downgrade, and none that would lose eligible replicas."""
    if not isinstance(step, steps.UpdateFeature):
        return False
    present = image.features.get(step.name, 0)
    loses = step.name != METADATA_VERSION and any(partition.elr for partition in image.partitions.values())
    return step.level < present and (loses or step.upgrade_type == UNSAFE_DOWNGRADE)


_RULES: Final[tuple[tuple[str, Callable[[Step, Image], bool]], ...]] = (
    ("CT-23", _is_uneven),
    ("CT-27", _names_failed_directory),
    ("CT-27", _leaves_failed_directory),
    ("CT-33", _is_kept_out),
    ("CT-36", _is_unregistered),
    ("CT-54", _cancels_all_in_sync),
    ("CT-55", _keeps_list),
    ("CT-56", _brings_back),
    ("CT-56", _forgets_eligible),
    ("CT-60", _configures_brokers),
    ("CT-61", _downgrades),
)
