"""What judges find in the inventories of log directories."""

from __future__ import annotations

from kraftlog.sim.replication.checkers.inventories import differences


def test_an_inventory_has_the_logs_that_are_there() -> None:
    assert differences("that of broker 1", ["a-0", "b-0"], ["b-0", "a-0"]) == []


def test_an_inventory_must_not_have_others_nor_lack_one() -> None:
    assert differences("that of broker 1", ["a-0", "c-0", "c-1"], ["a-0", "b-0"]) == [
        "that of broker 1 still has c-0, c-1",
        "that of broker 1 lacks b-0",
    ]
