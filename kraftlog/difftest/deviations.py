"""The differences that docs/rules has as deviations, each with its rule, and that leave the metadata the same.

For those that do not, see `kraftlog.difftest.parting`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from kraftlog.difftest import steps
from kraftlog.difftest.comparison import NOTHING, Difference
from kraftlog.difftest.image import NO_BROKER, Partition
from kraftlog.difftest.steps import Step

Key: TypeAlias = tuple[str, int]
Partitions: TypeAlias = Mapping[Key, Partition]
Explains = Callable[[Difference, Step, Partitions], bool]

STALE_INDEX: Final = "existed in isrMembers, but not in the topics map"
"""What Kafka's exception says."""
_FENCED: Final = re.compile(r"^BrokerRegistrationChange\(epoch=registration \d+, fenced=True\)(; )?")
_ELECTED: Final = re.compile(r"isr=\((\d+),\), leader=\1\b")
_LAST_KNOWN_LEADS: Final = re.compile(r"isr=\((\d+),\), leader=\1, recovery_state=1(, )?")
_ELR: Final = re.compile(r"(, )?(last_known_)?elr=\([\d, ]*\)")
_LAST_KNOWN: Final = re.compile(r", last_known_elr=\(\d+,\)")
_EPOCH: Final = re.compile(r"partition_epoch=\d+")
_LEADER: Final = re.compile(r"leader=(\d+)")


def explained(
    differences: list[Difference], step: Step, before: Partitions, with_former: Collection[Key] = ()
) -> list[Difference]:
    """The same differences, with the rule of those that are meant.

    `before` are the partitions before the step, `with_former` those for which Kafka's list of eligible replicas has
    brokers that are no longer replicas.
    """
    found = []
    for difference in differences:
        rule = next((rule for rule, explains in _RULES if explains(difference, step, before)), "")
        if not rule and _waits_for_former(difference, with_former):
            rule = "CT-56"
        found.append(replace(difference, rule=rule))
    return found


def _waits_for_former(difference: Difference, with_former: Collection[Key]) -> bool:
    """CT-56: while its list names any replica, be it a former one, Kafka does not elect the last known leader."""
    others, elections = _LAST_KNOWN_LEADS.subn("", difference.own)
    if difference.of != "records" or not elections or "last_known_elr=()" not in others:
        return False
    is_all_else = _ELR.sub("", others) == difference.kafka.replace(NOTHING, "PartitionChange()")
    return is_all_else and _key_of(difference) in with_former


def _is_answer(difference: Difference, kafka: str, own: str) -> bool:
    return difference.of == "answer" and difference.kafka.startswith(kafka) and difference.own.startswith(own)


def _is_unneeded(difference: Difference, kind: str) -> bool:
    """Whether only Kafka has written one record of that kind."""
    is_one = difference.kafka.startswith(f"{kind}(") and ";" not in difference.kafka
    return difference.of == "records" and is_one and difference.own == NOTHING


def _has_no_name(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-22: an empty name is none."""
    is_empty = isinstance(step, steps.DeleteTopics) and difference.where == ""
    return is_empty and _is_answer(difference, "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST")


def _fenced_twice(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-30: a fenced broker has no session that could end, and have it fenced once more."""
    others = _FENCED.sub("", difference.kafka)
    return difference.of == "records" and others != difference.kafka and (others or NOTHING) == difference.own


def _reaches_rack(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-32: a fenced broker is taken only if no active one is left, not to reach one more rack."""
    return (difference.of, difference.where) in (
        ("placement", "active brokers first"),
        ("placement", "replicas are on many"),
    ) and difference.own != "False"


def _registered_again(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-33: a registration that says nothing new makes no record."""
    return _is_unneeded(difference, "RegisterBroker")


def _not_registered(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-34: a broker that is not registered gets an error that says so."""
    return _is_answer(difference, "STALE_BROKER_EPOCH", "BROKER_ID_NOT_REGISTERED")


def _without_directories(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-35: a broker whose directories have failed is not unfenced at once, and is fenced if none is left."""
    return isinstance(step, steps.Heartbeat) and bool(step.offline_log_dirs) and difference.of in ("answer", "records")


def _fenced_first(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-36: before a broker is unregistered it is fenced, if it is not."""
    return (
        isinstance(step, steps.UnregisterBroker)
        and difference.of == "records"
        and difference.own.startswith("BrokerRegistrationChange(")
        and difference.own.endswith("; " + difference.kafka)
    )


def _elects_other(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-51: an unclean election takes replicas that a reassignment adds last."""
    partition, _ = _partitions_of(difference, before)
    kafka, own = _LEADER.search(difference.kafka), _LEADER.search(difference.own)
    if partition is None or kafka is None or own is None:
        return False
    texts = [_ELECTED.sub("", text) for text in (difference.kafka, difference.own)]
    return texts[0] == texts[1] and int(kafka[1]) in partition.adding and int(own[1]) not in partition.adding


def _counts_first(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-56: a partition needs no more in sync than it has replicas; in Kafka than the first one has."""
    partition, first = _partitions_of(difference, before)
    if partition is None or first is None or len(first.replicas) >= len(partition.replicas):
        return False
    if difference.of == "answer":
        return isinstance(step, steps.ElectLeaders) and difference.kafka == "NONE"
    texts = [_ELR.sub("", text).replace(NOTHING, "PartitionChange()") for text in (difference.kafka, difference.own)]
    return difference.of == "records" and texts[0] == texts[1]


def _remembers_member(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-56: if an ISR becomes empty that had no leader, its first member is remembered in the leader's place."""
    partition, _ = _partitions_of(difference, before)
    has_none = partition is not None and partition.leader == NO_BROKER
    return has_none and difference.of == "records" and _LAST_KNOWN.sub("", difference.own) == difference.kafka


def _partitions_of(difference: Difference, before: Partitions) -> tuple[Partition | None, Partition | None]:
    """The partition that a difference is about, and the first one of its topic."""
    topic, number = _key_of(difference)
    return before.get((topic, number)), before.get((topic, 0))


def _key_of(difference: Difference) -> Key:
    """The partition that a difference is about; partition -1 if it is about something else."""
    topic, _, number = difference.where.removeprefix("partition ").rpartition("-")
    return topic, int(number) if number.isdecimal() else -1


def _clears_all(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-56: eligible replicas are forgotten by changes of their partitions, not by a record of its own."""
    others = [record for record in difference.kafka.split("; ") if not record.startswith("ClearElr(")]
    return difference.of == "records" and "; ".join(others or [NOTHING]) == difference.own


def _forgets_gone(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-56: Kafka removes former replicas from its list of eligible ones: only the epoch shows it."""
    if difference.of == "records":
        return (difference.kafka, difference.own) == ("PartitionChange()", NOTHING)
    texts = [_EPOCH.sub("", text) for text in (difference.kafka, difference.own)]
    return isinstance(step, steps.AlterPartition) and difference.of == "answer" and texts[0] == texts[1]


def _faults(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-56: Kafka 4.3 keeps an index of eligible replicas that it has forgotten, and trips over deleted topics."""
    return _is_answer(difference, "NOT_CONTROLLER", "an answer") and STALE_INDEX in difference.kafka


def _is_unknown_type(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-60: an unknown type of resource is an invalid request."""
    return isinstance(step, steps.AlterConfigs) and _is_answer(difference, "UNSUPPORTED_VERSION", "INVALID_REQUEST")


def _is_looked_for_first(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-60: whether a topic exists is seen before its configs are."""
    is_config = isinstance(step, steps.AlterConfigs)
    return is_config and _is_answer(difference, "INVALID_CONFIG", "UNKNOWN_TOPIC_OR_PARTITION")


def _has_level(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-61: a level that a feature has makes no record."""
    return isinstance(step, steps.UpdateFeature) and _is_unneeded(difference, "FeatureLevel")


def _is_address(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-63: an IP address of a quota must be one."""
    is_host = isinstance(step, steps.AlterQuotas) and any(kind == "ip" for kind, _ in step.entity)
    return is_host and difference.own in ("INVALID_REQUEST", NOTHING)


def _has_any(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-63: an entry that says ANY is refused; in Kafka the request fails."""
    return isinstance(step, steps.CreateAcls) and _is_answer(difference, "UNKNOWN_SERVER_ERROR", "INVALID_REQUEST")


_RULES: Final[tuple[tuple[str, Explains], ...]] = (
    ("CT-22", _has_no_name),
    ("CT-30", _fenced_twice),
    ("CT-32", _reaches_rack),
    ("CT-33", _registered_again),
    ("CT-34", _not_registered),
    ("CT-35", _without_directories),
    ("CT-36", _fenced_first),
    ("CT-51", _elects_other),
    ("CT-56", _clears_all),
    ("CT-56", _counts_first),
    ("CT-56", _remembers_member),
    ("CT-56", _forgets_gone),
    ("CT-56", _faults),
    ("CT-60", _is_unknown_type),
    ("CT-60", _is_looked_for_first),
    ("CT-61", _has_level),
    ("CT-63", _is_address),
    ("CT-63", _has_any),
)
