"""The differences that docs/rules has as deviations, each with its rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from zlib import crc32

from kraftlog.difftest import steps
from kraftlog.difftest.comparison import NOTHING, Difference
from kraftlog.difftest.image import Image
from kraftlog.difftest.steps import Step

MIN_ISR: Final = "min.insync.replicas"
_FORGOTTEN: Final = re.compile(r"PartitionChange\(elr=\(\)(, last_known_elr=\(\))?\)")
_ELIGIBLE: Final = re.compile(r"partition_epoch=\d+|(last_known_)?elr=\([\d, ]*\)")
_MOVING: Final = re.compile(r"(, )?(adding|removing)=\([\d, ]*\)(, )?")
_STALE_INDEX: Final = "existed in isrMembers, but not in the topics map"

SELDOM: Final = 4
UNKNOWN_CONFIG: Final = "no.such.config"

Explains = Callable[[Difference, Step], bool]


def leads_apart(step: Step, image: Image) -> bool:
    """Whether the two are known to have other metadata for good after this step, as rules say.

    A sequence that comes to such a step ends there: most are left out, chosen by what they say, so that a shorter
    sequence chooses the same.
    """
    return crc32(repr(step).encode()) % SELDOM != 0 and any(leads(step, image) for leads in _LEAD_APART)


def _forgets_eligible(step: Step, image: Image) -> bool:
    """CT-56."""
    if not isinstance(step, steps.AlterConfigs) or all(name != MIN_ISR for name, _, _ in step.changes):
        return False
    return any(
        partition.elr or partition.last_known_elr
        for (topic, _), partition in image.partitions.items()
        if topic == step.resource_name or step.resource_type == steps.BROKER
    )


def _keeps_list(step: Step, image: Image) -> bool:
    """CT-55: Kafka keeps the earlier list of those being added or removed where the new one is empty."""
    for topic, number, target in step.partitions if isinstance(step, steps.Reassign) else ():
        partition = image.partitions.get((topic, number))
        if target and partition is not None:
            is_added, is_removed = set(target) - {*partition.replicas}, {*partition.replicas} - set(target)
            if (partition.adding and not is_added) or (partition.removing and not is_removed):
                return True
    return False


def _is_still_alive(step: Step, image: Image) -> bool:
    """CT-33: a fenced broker that sends heartbeats keeps another incarnation out, in Kafka."""
    if not isinstance(step, steps.RegisterBroker) or step.is_late:
        return False
    broker = image.brokers.get(step.broker_id)
    return broker is not None and broker.fenced and broker.incarnation != f"{step.broker_id}:{step.incarnation}"


def _configures_brokers(step: Step, image: Image) -> bool:
    """CT-60: what Kafka takes and we do not, and the other way around."""
    if not isinstance(step, steps.AlterConfigs) or step.resource_type != steps.BROKER:
        return False
    return any(
        name == UNKNOWN_CONFIG or (name == MIN_ISR and operation == steps.DELETE) for name, operation, _ in step.changes
    )


def explained(differences: list[Difference], step: Step) -> list[Difference]:
    """The same differences, with the rule of those that are meant."""
    return [
        replace(difference, rule=next((rule for rule, explains in _RULES if explains(difference, step)), ""))
        for difference in differences
    ]


def _is_answer(difference: Difference, kafka: str, own: str) -> bool:
    return difference.of == "answer" and difference.kafka.startswith(kafka) and difference.own.startswith(own)


def _keeps_list_of(difference: Difference, step: Step) -> bool:
    """CT-55: see `_keeps_list`."""
    if not isinstance(step, steps.Reassign) or not difference.where.startswith("partition "):
        return False
    texts = [_MOVING.sub("", text) for text in (difference.kafka, difference.own)]
    return texts[0] == texts[1] or (difference.kafka, texts[1].rstrip(")")) == (NOTHING, "PartitionChange(")


def _no_session(difference: Difference, step: Step) -> bool:
    """CT-33: a fenced broker has no session that would keep another incarnation out."""
    if not isinstance(step, steps.RegisterBroker):
        return False
    return _is_answer(difference, "DUPLICATE_BROKER_REGISTRATION", "NONE") or (
        difference.of == "records" and difference.kafka == NOTHING and difference.where == f"broker {step.broker_id}"
    )


def _registered_again(difference: Difference, step: Step) -> bool:
    """CT-33: a registration that says nothing new makes no record."""
    is_registration = difference.kafka.startswith("RegisterBroker(") and ";" not in difference.kafka
    return difference.of == "records" and is_registration and difference.own == NOTHING


def _without_directories(difference: Difference, step: Step) -> bool:
    """CT-35: a broker whose directories have failed is not unfenced at once, and fenced if none is left."""
    return isinstance(step, steps.Heartbeat) and bool(step.offline_log_dirs) and difference.of in ("answer", "records")


def _of_brokers(difference: Difference, step: Step) -> bool:
    """CT-60: an unknown config of a broker is refused, the last default of min.insync.replicas can be deleted."""
    return (
        isinstance(step, steps.AlterConfigs)
        and step.resource_type == steps.BROKER
        and _configures_brokers(step, Image())
        and {difference.kafka, difference.own} & {NOTHING, "INVALID_CONFIG"} != set()
    )


def _any_in_entry(difference: Difference, step: Step) -> bool:
    """CT-63: an entry that says ANY, or something unknown, is refused; in Kafka the request fails."""
    return isinstance(step, steps.CreateAcls) and _is_answer(difference, "UNKNOWN_SERVER_ERROR", "INVALID_REQUEST")


def _not_registered(difference: Difference, step: Step) -> bool:
    """CT-34: a broker that is not registered is told so."""
    return _is_answer(difference, "STALE_BROKER_EPOCH", "BROKER_ID_NOT_REGISTERED")


def _fenced_first(difference: Difference, step: Step) -> bool:
    """CT-36: before a broker is unregistered it is fenced, if it is not."""
    return (
        isinstance(step, steps.UnregisterBroker)
        and difference.of == "records"
        and difference.own.startswith("BrokerRegistrationChange(")
        and difference.own.endswith("; " + difference.kafka)
    )


def _clears_all(difference: Difference, step: Step) -> bool:
    """CT-56: eligible replicas are forgotten by changes of their partitions, not by a record of its own."""
    others = [record for record in difference.kafka.split("; ") if not record.startswith("ClearElr(")]
    return difference.of == "records" and "; ".join(others or [NOTHING]) == difference.own


def _forgets(difference: Difference, step: Step) -> bool:
    """CT-56: eligible replicas are forgotten only where that is needed, by a change of the partition."""
    if not isinstance(step, steps.AlterConfigs) or all(name != MIN_ISR for name, _, _ in step.changes):
        return False
    if difference.of == "records":
        return difference.kafka == NOTHING and _FORGOTTEN.fullmatch(difference.own) is not None
    texts = [_ELIGIBLE.sub("", text) for text in (difference.kafka, difference.own)]
    return difference.of == "image" and difference.where.startswith("partition ") and texts[0] == texts[1]


def _faults(difference: Difference, step: Step) -> bool:
    """CT-56: Kafka 4.3 keeps an index of eligible replicas that it has forgotten, and trips over deleted topics."""
    return _is_answer(difference, "NOT_CONTROLLER", "an answer") and _STALE_INDEX in difference.kafka


def _fenced_twice(difference: Difference, step: Step) -> bool:
    """CT-30: a fenced broker has no session that could end and have it fenced once more."""
    is_fence = difference.kafka.startswith("BrokerRegistrationChange(") and difference.kafka.endswith(", fenced=True)")
    return difference.of == "records" and is_fence and ";" not in difference.kafka and difference.own == NOTHING


def _address(difference: Difference, step: Step) -> bool:
    """CT-63: an IP address of a quota must be one."""
    is_host = isinstance(step, steps.AlterQuotas) and any(kind == "ip" for kind, _ in step.entity)
    return is_host and difference.own in ("INVALID_REQUEST", NOTHING)


_RULES: Final[tuple[tuple[str, Explains], ...]] = (
    ("CT-30", _fenced_twice),
    ("CT-33", _no_session),
    ("CT-33", _registered_again),
    ("CT-34", _not_registered),
    ("CT-35", _without_directories),
    ("CT-36", _fenced_first),
    ("CT-55", _keeps_list_of),
    ("CT-56", _clears_all),
    ("CT-56", _forgets),
    ("CT-56", _faults),
    ("CT-60", _of_brokers),
    ("CT-63", _address),
    ("CT-63", _any_in_entry),
)

_LEAD_APART: Final = (_forgets_eligible, _keeps_list, _is_still_alive, _configures_brokers)
