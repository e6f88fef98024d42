"""The kinds of faults, and the order in which seeds draw them."""

from __future__ import annotations

import pytest

from kraftlog.sim.engine.world import NOTHING
from kraftlog.sim.quorum import parameters
from kraftlog.sim.quorum.fault_kinds import KINDS
from kraftlog.sim.quorum.faults.catalogue import FAULTS, MODULES
from kraftlog.sim.quorum.faults.fault import REGISTERED
from kraftlog.sim.quorum.parameters import draw
from tests.effort import some


def test_every_kind_that_is_defined_is_drawn_and_the_other_way_around() -> None:
    assert len(set(KINDS)) == len(KINDS)
    assert set(KINDS) == set(REGISTERED)
    assert tuple(FAULTS) == KINDS


def test_every_module_of_faults_is_imported() -> None:
    assert {fault.begin.__module__ for fault in FAULTS.values()} == {module.__name__ for module in MODULES}


@pytest.mark.parametrize("seed", some(range(30), part=4))
def test_a_kind_with_another_name_is_drawn_by_the_same_seeds(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    renamed = tuple(f"{len(KINDS) - place}: renamed" for place in range(len(KINDS)))
    before = draw(seed, NOTHING).fault_kinds
    monkeypatch.setattr(parameters, "KINDS", renamed)
    after = draw(seed, NOTHING).fault_kinds
    assert after == tuple(renamed[KINDS.index(kind)] for kind in before)
