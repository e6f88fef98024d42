"""The differences that docs/rules has as deviations, each with its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kraftlog.difftest import steps
from kraftlog.difftest.comparison import NOTHING, Difference
from kraftlog.difftest.steps import Step

Explains = Callable[[Difference, Step], bool]


def explained(differences: list[Difference], step: Step) -> list[Difference]:
    """The same differences, with the rule of those that are meant."""
    return [
        replace(difference, rule=next((rule for rule, explains in _RULES if explains(difference, step)), ""))
        for difference in differences
    ]


def _is_answer(difference: Difference, kafka: str, own: str) -> bool:
    return difference.of == "answer" and difference.kafka.startswith(kafka) and difference.own.startswith(own)


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


def _address(difference: Difference, step: Step) -> bool:
    """CT-63: an IP address of a quota must be one."""
    is_host = isinstance(step, steps.AlterQuotas) and any(kind == "ip" for kind, _ in step.entity)
    return is_host and difference.own in ("INVALID_REQUEST", NOTHING)


_RULES: Final[tuple[tuple[str, Explains], ...]] = (
    ("CT-34", _not_registered),
    ("CT-36", _fenced_first),
    ("CT-56", _clears_all),
    ("CT-63", _address),
)
