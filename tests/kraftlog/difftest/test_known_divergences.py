"""Which steps are known to part the two systems, and when they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlog.difftest import steps
from kraftlog.difftest.generator import FEATURE, generate
from kraftlog.difftest.image import Image
from kraftlog.difftest.known_divergences import EXECUTED_ONE_IN, divergence_rule, is_executed
from kraftlog.difftest.records import Record
from kraftlog.difftest.steps import SET, Step

MIN_ISR = "min.insync.replicas"


def image(**partition: object) -> Image:
    """Brokers 1 to 4, of which 4 is fenced, and a topic with one partition of 1, 2 and 3."""
    found = Image()
    for broker_id in (1, 2, 3, 4):
        values = {
            "incarnation": f"{broker_id}:1", "epoch": "", "rack": None, "fenced": broker_id == 4,
            "in_controlled_shutdown": False, "log_dirs": (f"{broker_id}:1",), "end_points": (), "features": "",
        }  # fmt: skip
        found.apply(Record("RegisterBroker", f"broker {broker_id}", values))
    values = {
        "replicas": (1, 2, 3), "isr": (1, 2, 3), "removing": (), "adding": (), "leader": 1, "recovery_state": 0,
        "leader_epoch": 0, "partition_epoch": 0, "directories": (), "elr": (), "last_known_elr": (), **partition,
    }  # fmt: skip
    found.apply(Record("Topic", "topic t", {"name": "t"}))
    found.apply(Record("Partition", "partition t-0", values))
    found.apply(Record("FeatureLevel", f"feature {FEATURE}", {"level": 1}))
    found.apply(Record("FeatureLevel", "feature metadata.version", {"level": 29}))
    return found


QUIET = image()
MOVING = image(replicas=(3, 1, 2), adding=(3,), removing=(1,), isr=(1, 2))
STRANDED = image(replicas=(3, 1, 2), adding=(3,), removing=(1,), isr=(3,))
WITH_ELIGIBLE = image(isr=(1,), elr=(2,))
FAILED_ELIGIBLE = image(isr=(1,), elr=(2,), directories=("1:1", "2:2", "3:1"))
FAILED_LAST_KNOWN = image(isr=(), leader=-1, last_known_elr=(3,), directories=("1:1", "2:2", "3:2"))
WITH_FORMER = image()
WITH_FORMER.former_eligible["t", 0] = frozenset({4})
UNEVEN = image()
UNEVEN.partitions["t", 1] = replace(UNEVEN.partitions["t", 0], replicas=(1,))


def reassign(*replicas: int) -> Step:
    return steps.Reassign((("t", 0, replicas or None),))


def configure(resource_type: int, name: str, config: str, operation: int = SET) -> Step:
    return steps.AlterConfigs(resource_type, name, ((config, operation, "2"),))


@pytest.mark.parametrize(
    ("rule", "step", "before"),
    [
        ("CT-23", steps.CreatePartitions("t", 2, ((1, 2),)), MOVING),
        ("CT-23", steps.CreatePartitions("t", 2, ((1, 2),)), UNEVEN),
        ("", steps.CreatePartitions("t", 2, ((1, 2),)), QUIET),
        ("", steps.CreatePartitions("u", 2, ((1, 2),)), QUIET),
        ("CT-27", steps.AssignDirectories(1, 7, (("t", 0),)), QUIET),
        ("", steps.AssignDirectories(1, 1, (("t", 0),)), QUIET),
        ("", steps.AssignDirectories(4, 7, (("t", 0),)), QUIET),
        ("", steps.AssignDirectories(9, 7, (("t", 0),)), QUIET),
        ("CT-27", steps.AssignDirectories(2, 1, (("t", 0),)), FAILED_ELIGIBLE),
        ("CT-27", steps.AssignDirectories(3, 1, (("t", 0),)), FAILED_LAST_KNOWN),
        ("", steps.AssignDirectories(2, 1, (("t", 0),)), FAILED_LAST_KNOWN),
        ("", steps.AssignDirectories(2, 1, (("t", 0),)), WITH_ELIGIBLE),
        ("CT-33", steps.RegisterBroker(4, 2), QUIET),
        ("", steps.RegisterBroker(4, 1), QUIET),
        ("", steps.RegisterBroker(4, 2, is_late=True), QUIET),
        ("", steps.RegisterBroker(3, 2), QUIET),
        ("CT-33", steps.RegisterBroker(-1, 1), QUIET),
        ("CT-36", steps.UnregisterBroker(2), WITH_ELIGIBLE),
        ("CT-36", steps.UnregisterBroker(1), QUIET),
        ("", steps.UnregisterBroker(4), QUIET),
        ("CT-54", reassign(), STRANDED),
        ("", reassign(), MOVING),
        ("", reassign(), QUIET),
        ("CT-55", reassign(3, 1), MOVING),
        ("CT-55", reassign(3, 1, 2, 4), MOVING),
        ("", reassign(4, 1), MOVING),
        ("", reassign(1, 2), QUIET),
        ("CT-56", reassign(1, 2, 4), WITH_FORMER),
        ("", reassign(1, 2), WITH_FORMER),
        ("CT-56", configure(steps.TOPIC, "t", MIN_ISR), WITH_FORMER),
        ("CT-56", configure(steps.TOPIC, "t", MIN_ISR), WITH_ELIGIBLE),
        ("CT-56", configure(steps.BROKER, "", MIN_ISR), WITH_ELIGIBLE),
        ("", configure(steps.TOPIC, "u", MIN_ISR), WITH_ELIGIBLE),
        ("", configure(steps.TOPIC, "t", "retention.ms"), WITH_ELIGIBLE),
        ("", configure(steps.BROKER, "", MIN_ISR), QUIET),
        ("", configure(steps.BROKER, "1", "no.such.config"), QUIET),
        ("CT-60", configure(steps.BROKER, "", MIN_ISR, steps.DELETE), QUIET),
        ("", configure(steps.TOPIC, "t", "no.such.config"), QUIET),
        ("CT-61", steps.UpdateFeature("metadata.version", 28, 3), QUIET),
        ("", steps.UpdateFeature("metadata.version", 28, 2), QUIET),
        ("CT-61", steps.UpdateFeature(FEATURE, 0, 2), WITH_ELIGIBLE),
        ("", steps.UpdateFeature(FEATURE, 0, 2), QUIET),
    ],
)
def test_which_steps_part_the_two(rule: str, step: Step, before: Image) -> None:
    assert divergence_rule(step, before) == rule


def test_few_of_them_are_carried_out_and_always_the_same() -> None:
    every = [step for seed in range(40) for step in generate(seed)]
    chosen = [step for step in every if is_executed(step)]
    assert 0 < len(chosen) < 2 * len(every) / EXECUTED_ONE_IN
    assert chosen == [step for step in every if is_executed(step)]
