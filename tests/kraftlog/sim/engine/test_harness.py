"""What the engine does with any world: runs, sweeps, shrinking, reports, the options, the hunt."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kraftlog.sim.engine import sweep as sweep_module
from kraftlog.sim.engine.command import Command
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.mutation import Mutation
from kraftlog.sim.engine.outcome import Outcome
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.engine.report import MISSING_SHOWN_MAX, replay_command, show_missing
from kraftlog.sim.engine.shrink import shrink
from kraftlog.sim.engine.sweep import sweep
from kraftlog.sim.engine.world import NOTHING, World
from kraftlog.sim.zoo.hunt import hunt_in
from tests.kraftlog.sim.engine import toy_world
from tests.kraftlog.sim.engine.toy_world import BROKEN, FAULT_KINDS, IDLE, KILLED, TOY, ToyParameters, ToyWorld

FAILS = 1
"""A seed that fails in the world with the bug."""


def command(world: World[Any], overrides: Overrides = NOTHING, **options: Any) -> tuple[bool, str]:
    """Whether all is well, and what is printed."""
    defaults = {
        "seeds": 3, "first": 0, "minutes": None, "at_least": 0, "seed": None, "trace": False, "marks": False,
        "shrink_seed": None, "json_file": None,
    }  # fmt: skip
    console = Console(file=io.StringIO(), width=200)
    is_well = Command(world=world, overrides=overrides, **{**defaults, **options}).run(console)
    assert isinstance(console.file, io.StringIO)
    return is_well, console.file.getvalue()


# --- overrides --------------------------------------------------------------------------------------------------------


def test_overrides_that_a_world_cannot_have_are_refused_by_name() -> None:
    for overrides, words in (
        (Overrides(without_faults=("process: kiled",)), "'process: killed'"),
        (Overrides(fault_kinds=("x",)), "no fault 'x'"),
        (Overrides(sizes={"voters": 3}), "not take a number of voters, only of counters"),
        (Overrides(sizes={"counters": 10}), "10 counters: the world toy has 1 to 9"),
    ):
        with pytest.raises(ValueError, match=words):
            TOY.parameters(1, overrides)
    with pytest.raises(ValueError, match=r"not take a number of voters$"):
        replace(TOY, sizes=()).check(Overrides(sizes={"voters": 3}))


def test_the_engine_applies_overrides_that_a_world_does_not_look_at() -> None:
    parameters = TOY.parameters(1, Overrides(seconds=3, without_faults=(IDLE,)))
    assert (parameters.seconds, parameters.fault_kinds) == (3, (KILLED,))
    ignoring = replace(TOY, draw=lambda seed, overrides: toy_world.draw(seed, NOTHING))
    assert ignoring.parameters(1, Overrides(fault_kinds=(IDLE,))).fault_kinds == (IDLE,)


def test_a_fault_of_the_simulator_itself_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(world: ToyWorld) -> None:
        raise LookupError("a bug of a judge")

    monkeypatch.setattr(ToyWorld, "check", fail)
    assert "the simulator failed: LookupError('a bug of a judge')" in (TOY.run_seed(1).violation or "")


# --- sweeps -----------------------------------------------------------------------------------------------------------


def test_a_sweep_adds_up_what_its_runs_count() -> None:
    total, outcomes = sweep(TOY, range(3), count=3), [TOY.run_seed(seed) for seed in range(3)]
    assert (total.seeds, total.failures) == (3, [])
    assert total.checks == sum(outcome.checks for outcome in outcomes)
    assert total.figures["counted_up"] == sum(outcome.figures["counted_up"] for outcome in outcomes)
    assert total.marks.counts["counted up"] == total.figures["counted_up"]
    assert total.elapsed_seconds > 0


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps without processes of their own, which take a second to start."""

    def in_workers(work: Callable[[int], Outcome], seeds: Iterable[int]) -> Generator[Outcome, None, None]:
        yield from map(work, seeds)

    monkeypatch.setattr(sweep_module, "in_workers", in_workers)


@pytest.mark.usefixtures("in_this_process")
def test_a_sweep_ends_when_so_many_have_failed_and_when_its_time_is_over() -> None:
    assert len(sweep(BROKEN, range(1_000), failures_max=2).failures) == 2
    assert sweep(BROKEN, range(1_000), minutes=0).seeds == 0


@pytest.mark.usefixtures("in_this_process")
def test_a_sweep_that_is_long_enough_must_cover_all_marks_if_nothing_is_overridden(tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    never = replace(TOY, marks=(*TOY.marks, "an earthquake"))
    assert command(TOY, seeds=5)[0]
    is_well, output = command(never, seeds=5, json_file=file)
    assert not is_well and "never happened:\n  an earthquake" in output
    written = json.loads(file.read_text())
    assert (written["world"], written["missing_marks"], written["fault_kinds"]) == ("toy", ["an earthquake"], 2)
    assert command(never, seeds=4)[0]
    assert command(never, Overrides(without_faults=FAULT_KINDS), seeds=5)[0]


@pytest.mark.usefixtures("in_this_process")
def test_a_sweep_says_what_failed_and_what_it_lacks() -> None:
    is_well, output = command(BROKEN, seeds=3)
    assert not is_well and "again: kraftlog sim --world toy --seed" in output
    is_well, output = command(TOY, minutes=0, at_least=7)
    assert not is_well and "only 0 seeds ran; at least 7 are required" in output
    is_well, output = command(TOY, marks=True)
    assert is_well
    for words in ("simulation of counters", "counted up", "fault: client: idle", "kinds of faults"):
        assert words in output


def test_no_more_than_some_missing_marks_are_listed() -> None:
    console = Console(file=io.StringIO())
    show_missing(console, [f"mark {number}" for number in range(MISSING_SHOWN_MAX + 3)])
    assert isinstance(console.file, io.StringIO) and "and 3 more" in console.file.getvalue()


# --- one seed ---------------------------------------------------------------------------------------------------------


def test_one_run_is_told_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.json"
    is_well, output = command(TOY, seed=2, trace=True, marks=True, json_file=file)
    assert is_well and "seed 2: all invariants hold" in output and " counted up," in output
    assert "counter 0 is at 1" in capsys.readouterr().out
    written = json.loads(file.read_text())
    assert written["counted_up"] == written["marks"]["counted up"]
    assert written["trace_digest"] == TOY.run_seed(2).trace_digest


def test_a_failure_has_the_last_lines_the_nodes_what_was_drawn_and_the_command() -> None:
    is_well, output = command(BROKEN, Overrides(seconds=19, without_faults=(IDLE,), sizes={"counters": 1}), seed=FAILS)
    assert not is_well
    for words in (
        "fault: process: killed, counter 0", "nodes at the end:\ncounter 0: 0\n", "configuration:\n", "  seconds: 19\n",
        "a counter does not go back (1)",
        "again: kraftlog sim --world toy --seed 1 --trace --safety-seconds 19 --counters 1 --without 'client: idle'",
    ):  # fmt: skip
        assert words in output


def test_a_replayed_command_quotes_kinds() -> None:
    overrides = Overrides(without_faults=("input: a stranger's claims",))
    assert replay_command(TOY, 1, overrides).endswith('--without "input: a stranger\'s claims"')


# --- shrinking --------------------------------------------------------------------------------------------------------


def test_a_seed_is_shrunk_in_time_faults_and_sizes_all_at_once() -> None:
    lines: list[str] = []
    overrides, outcome = shrink(BROKEN, FAILS, lines.append)
    parameters = outcome.parameters
    assert isinstance(parameters, ToyParameters)
    assert outcome.violation is not None
    assert (parameters.fault_kinds, parameters.counters) == ((KILLED,), 1)
    assert parameters.seconds < TOY.parameters(FAILS).seconds
    assert BROKEN.run_seed(FAILS, overrides).trace_digest == outcome.trace_digest
    assert "without 'client: idle': still fails" in lines


def test_shrinking_begins_with_what_is_overridden_and_writes_what_it_found(tmp_path: Path) -> None:
    file = tmp_path / "shrunk.json"
    is_well, _ = command(BROKEN, Overrides(sizes={"counters": 3}), shrink_seed=FAILS, json_file=file)
    assert is_well
    assert json.loads(file.read_text())["overrides"]["without_faults"] == [IDLE]
    is_well, output = command(TOY, shrink_seed=FAILS)
    assert not is_well and "does not fail" in output


# --- the hunt ---------------------------------------------------------------------------------------------------------


def test_a_bug_is_hunted_with_the_faults_and_sizes_that_it_names() -> None:
    seen: list[ToyParameters] = []

    def watched(parameters: ToyParameters, *, echo: bool = False) -> Any:
        seen.append(parameters)
        return toy_world.run(parameters, echo=echo)

    catch = hunt_in(replace(TOY, run=watched), TOY.bugs[0], seeds_max=20)
    assert catch.invariant == "a counter does not go back (1)"
    assert catch.seeds == len(seen)
    assert {(one.fault_kinds, one.counters, one.seconds) for one in seen} == {((KILLED,), 1, 30)}


def test_a_bug_that_nothing_catches_and_one_that_needs_what_the_world_lacks() -> None:
    harmless = Mutation("none", "our own", list, (), {})
    assert hunt_in(TOY, harmless, seeds_max=2).caught_by is None
    with pytest.raises(ValueError, match="number of brokers"):
        hunt_in(TOY, replace(harmless, sizes={"brokers": 3}), seeds_max=2)


def test_what_is_missing_is_what_was_not_hit() -> None:
    marks = Marks()
    marks.hit("counted up")
    assert TOY.missing(marks) == [f"fault: {kind}" for kind in FAULT_KINDS]
