"""The intended differences that leave the metadata of both systems the same, each with its rule in docs/rules.

`kraftlog.difftest.known_divergences` has those after which the metadata differ.
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
"""The text of Kafka's exception."""
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
    """Return the same differences, each intended one with its rule.

    `before` has the partitions before the step. `with_former` names the partitions for which Kafka's list of eligible
    replicas has brokers that are no longer replicas.
    """
    found = []
    for difference in differences:
        rule = next((rule for rule, explains in _RULES if explains(difference, step, before)), "")
        if not rule and _waits_for_former(difference, with_former):
            rule = "CT-56"
        found.append(replace(difference, rule=rule))
    return found


def _waits_for_former(difference: Difference, with_former: Collection[Key]) -> bool:
    """CT-56: while its list of eligible replicas has any broker, even a former replica, Kafka does not elect the last
    known leader.
    """
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
    """CT-22: an empty topic name is an invalid request."""
    is_empty = isinstance(step, steps.DeleteTopics) and difference.where == ""
    return is_empty and _is_answer(difference, "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST")


def _fenced_twice(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-30: a fenced broker has no session, so no session can end and fence it a second time."""
    others = _FENCED.sub("", difference.kafka)
    return difference.of == "records" and others != difference.kafka and (others or NOTHING) == difference.own


def _reaches_rack(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-32: placement uses a fenced broker only if no active one is left, and not to reach one more rack."""
    return (difference.of, difference.where) in (
        ("placement", "active brokers first"),
        ("placement", "replicas are on many"),
    ) and difference.own != "False"


def _registered_again(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-33: a registration that changes nothing writes no record."""
    return _is_unneeded(difference, "RegisterBroker")


def _not_registered(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-34: a broker that is not registered gets an error that says so."""
    return _is_answer(difference, "STALE_BROKER_EPOCH", "BROKER_ID_NOT_REGISTERED")


def _without_directories(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-35: a broker with failed directories is not unfenced at once, and is fenced if no directory is left."""
    return isinstance(step, steps.Heartbeat) and bool(step.offline_log_dirs) and difference.of in ("answer", "records")


def _fenced_first(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-36: a broker is fenced, if it is not yet, before it is unregistered."""
    return (
        isinstance(step, steps.UnregisterBroker)
        and difference.of == "records"
        and difference.own.startswith("BrokerRegistrationChange(")
        and difference.own.endswith("; " + difference.kafka)
    )


def _elects_other(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-51: an unclean election prefers any other replica to one that a reassignment adds."""
    partition, _ = _partitions_of(difference, before)
    kafka, own = _LEADER.search(difference.kafka), _LEADER.search(difference.own)
    if partition is None or kafka is None or own is None:
        return False
    texts = [_ELECTED.sub("", text) for text in (difference.kafka, difference.own)]
    return texts[0] == texts[1] and int(kafka[1]) in partition.adding and int(own[1]) not in partition.adding


def _counts_first(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-56: min.insync.replicas is bounded by the partition's replicas; in Kafka by those of the first partition."""
    partition, first = _partitions_of(difference, before)
    if partition is None or first is None or len(first.replicas) >= len(partition.replicas):
        return False
    if difference.of == "answer":
        return isinstance(step, steps.ElectLeaders) and difference.kafka == "NONE"
    texts = [_ELR.sub("", text).replace(NOTHING, "PartitionChange()") for text in (difference.kafka, difference.own)]
    return difference.of == "records" and texts[0] == texts[1]


def _remembers_member(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-56: if the ISR of a partition without a leader becomes empty, its first member is the last known leader."""
    partition, _ = _partitions_of(difference, before)
    has_none = partition is not None and partition.leader == NO_BROKER
    return has_none and difference.of == "records" and _LAST_KNOWN.sub("", difference.own) == difference.kafka


def _partitions_of(difference: Difference, before: Partitions) -> tuple[Partition | None, Partition | None]:
    """The partition that a difference is about, and the first partition of its topic."""
    topic, number = _key_of(difference)
    return before.get((topic, number)), before.get((topic, 0))


def _key_of(difference: Difference) -> Key:
    """The partition that a difference is about; partition -1 if it is about something else."""
    topic, _, number = difference.where.removeprefix("partition ").rpartition("-")
    return topic, int(number) if number.isdecimal() else -1


def _clears_all(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-56: changes of their partitions remove eligible replicas, not a ClearElr record."""
    others = [record for record in difference.kafka.split("; ") if not record.startswith("ClearElr(")]
    return difference.of == "records" and "; ".join(others or [NOTHING]) == difference.own


def _forgets_gone(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-56: Kafka removes former replicas from its list of eligible replicas: only the partition epoch shows it."""
    if difference.of == "records":
        return (difference.kafka, difference.own) == ("PartitionChange()", NOTHING)
    texts = [_EPOCH.sub("", text) for text in (difference.kafka, difference.own)]
    return isinstance(step, steps.AlterPartition) and difference.of == "answer" and texts[0] == texts[1]


def _faults(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-56: Kafka 4.3 keeps eligible replicas in an index after removing them, and fails at a deleted topic there."""
    return _is_answer(difference, "NOT_CONTROLLER", "an answer") and STALE_INDEX in difference.kafka


def _is_unknown_type(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-60: an unknown type of resource is an invalid request."""
    return isinstance(step, steps.AlterConfigs) and _is_answer(difference, "UNSUPPORTED_VERSION", "INVALID_REQUEST")


def _is_looked_for_first(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-60: kraftlog checks that a topic exists before it checks the configs; Kafka does the reverse."""
    is_config = isinstance(step, steps.AlterConfigs)
    return is_config and _is_answer(difference, "INVALID_CONFIG", "UNKNOWN_TOPIC_OR_PARTITION")


def _has_level(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-61: setting a feature to its present level writes no record."""
    return isinstance(step, steps.UpdateFeature) and _is_unneeded(difference, "FeatureLevel")


def _is_address(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-63: the IP address of a quota must be a valid address."""
    is_host = isinstance(step, steps.AlterQuotas) and any(kind == "ip" for kind, _ in step.entity)
    return is_host and difference.own in ("INVALID_REQUEST", NOTHING)


def _has_any(difference: Difference, step: Step, before: Partitions) -> bool:
    """CT-63: an access control entry with ANY is refused; in Kafka the whole request fails."""
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
