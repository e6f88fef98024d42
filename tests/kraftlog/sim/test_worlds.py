"""What holds of every world: HACKING's "Add a world" relies on it."""

from __future__ import annotations

import inspect
import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import kraftlog.sim
from kraftlog.sim.command import main
from kraftlog.sim.engine.mutation import MUTATIONS
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.engine.world import World
from kraftlog.sim.worlds import DEFAULT, WORLDS
from kraftlog.sim.zoo.catalogue import NAMES
from tests.kraftlog.sim.engine.toy_world import TOY

SEEDS = range(300)

every_world = pytest.mark.parametrize("world", [*WORLDS.values(), TOY], ids=lambda world: world.name)


def modules() -> list[str]:
    return [module.name for module in pkgutil.walk_packages(kraftlog.sim.__path__, "kraftlog.sim.")]


def test_every_definition_is_a_world_and_every_bug_of_a_module_is_hunted_in_one() -> None:
    definitions = [import_module(name) for name in modules() if name.endswith(".definition")]
    defined = {value.name for module in definitions for value in vars(module).values() if isinstance(value, World)}
    assert defined == set(WORLDS) and len(definitions) == len(WORLDS)
    for name in modules():
        if ".zoo." in name and name.endswith("_bugs"):
            import_module(name)
    in_modules = {bug.name for bug in MUTATIONS.values() if bug.patches.__module__.startswith("kraftlog.")}
    assert set(NAMES) == in_modules and len(NAMES) == len(in_modules)
    assert DEFAULT == "clusters"


@every_world
def test_a_world_is_whole(world: World[Any]) -> None:
    assert world.invariants and world.bugs and world.covering_seeds
    for names in (world.marks, world.fault_kinds, [size.name for size in world.sizes]):
        assert len(set(names)) == len(names)
    for bug in world.bugs:
        world.check(Overrides(sizes=bug.sizes, fault_kinds=bug.faults))
    for size in world.sizes:
        assert all(size.least <= count <= size.most for count in size.smaller)


@pytest.mark.parametrize("world", WORLDS.values(), ids=lambda world: world.name)
def test_there_is_an_option_for_each_size(world: World[Any]) -> None:
    assert {size.name for size in world.sizes} <= set(inspect.signature(main).parameters)


@every_world
def test_what_a_seed_draws_is_a_function_of_it_and_of_what_is_overridden(world: World[Any]) -> None:
    drawn = [world.parameters(seed) for seed in SEEDS]
    assert drawn == [world.parameters(seed) for seed in SEEDS]
    assert {kind for one in drawn for kind in one.fault_kinds} == set(world.fault_kinds)
    assert [one.seed for one in drawn] == list(SEEDS)
    kind = drawn[7].fault_kinds[0]
    assert kind not in world.parameters(7, Overrides(without_faults=(kind,))).fault_kinds
    assert world.parameters(7, Overrides(seconds=3)).seconds == 3
    for seed in SEEDS[:20]:
        assert world.parameters(seed, Overrides(fault_kinds=(kind,))).fault_kinds in ((), (kind,))
        for size in world.sizes:
            for count in (size.least, *size.smaller, size.most):
                parameters = world.parameters(seed, Overrides(sizes={size.name: count}))
                assert parameters.sizes[size.name] == count
                assert parameters.fault_kinds == drawn[seed].fault_kinds
    assert set(drawn[0].sizes) == {size.name for size in world.sizes}


@every_world
def test_two_seeds_give_two_traces_and_a_run_has_the_digest_of_its_trace(world: World[Any]) -> None:
    overrides = Overrides(seconds=2)
    first, second = world.run_seed(1, overrides), world.run_seed(2, overrides)
    assert first.violation is None and second.violation is None
    assert first.trace_digest != second.trace_digest


@pytest.mark.parametrize(
    "runs",
    [
        [("clusters", 3, 4), ("broker-log", 61, 5), ("replication", 2, 2)],
        pytest.param(
            [("clusters", 3, 20), ("clusters", 38, 20), ("broker-log", 61, 30), ("replication", 2, 10)],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["short", "long"],
)
def test_a_seed_gives_the_same_trace_whatever_the_hash_seed(runs: list[tuple[str, int, int]]) -> None:
    """Seed 3 has clusters with brokers, 38 without."""
    assert {name for name, _, _ in runs} == set(WORLDS)
    program = f"""
from kraftlog.process.logs import silence_logging
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.worlds import WORLDS
silence_logging()
for name, seed, seconds in {runs!r}:
    print(name, seed, WORLDS[name].run_seed(seed, Overrides(seconds=seconds)).trace_digest)
"""
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(traces) == 1


def test_nothing_of_the_engine_the_command_or_the_zoo_knows_a_world_by_name() -> None:
    above = Path(next(iter(kraftlog.sim.__path__)))
    for path in [above / "command.py", *(above / "engine").rglob("*.py"), *(above / "zoo").rglob("*.py")]:
        text = path.read_text()
        for world in WORLDS.values():
            assert f'"{world.name}"' not in text, path
