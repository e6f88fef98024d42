"""`kraftlog sim` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kraftlog.cli.main import main
from kraftlog.sim.command import app
from kraftlog.sim.engine.mutation import MUTATIONS
from kraftlog.sim.engine.shrink import shrink
from kraftlog.sim.quorum.definition import CLUSTERS
from kraftlog.sim.worlds import WORLDS

RUNNER = CliRunner()
BUG = "less than a majority commits"


def test_one_seed_can_be_traced_and_written_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    result = RUNNER.invoke(app, ["--seed", "7", "--safety-seconds", "5", "--trace", "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert "seed 7: all invariants hold" in result.output
    assert " leader " in result.output
    assert json.loads(file.read_text())["violation"] is None


def test_a_few_seeds_give_a_table_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    result = RUNNER.invoke(app, ["--seeds", "3", "--first", "5", "--safety-seconds", "2", "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert "simulation of clusters" in result.output
    written = json.loads(file.read_text())
    assert (written["seeds"], written["failures"]) == (3, [])


def test_the_world_of_a_brokers_log_tells_what_happened(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    result = RUNNER.invoke(app, ["--world", "broker-log", "--seed", "6", "--trace", "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert "seed 6: all invariants hold" in result.output
    assert "the broker has started" in result.output
    assert json.loads(file.read_text())["marks"]["shut down cleanly"] > 0
    options = ["--seeds", "1", "--first", "62", "--safety-seconds", "2", "--json", str(file)]
    result = RUNNER.invoke(app, ["--world", "broker-log", *options])
    assert result.exit_code == 0, result.output
    assert "simulation of a broker's log" in result.output
    assert json.loads(file.read_text())["failures"] == []


def test_a_failure_in_that_world_tells_how_to_see_it_again() -> None:
    with MUTATIONS["an append is acknowledged before its group commit"].put_in():
        result = RUNNER.invoke(app, ["--world", "broker-log", "--seed", "3"])
        assert result.exit_code == 1
        for words in ("kraftlog sim --world broker-log --seed 3 --trace", "configuration:", "(81)"):
            assert words in result.output
        result = RUNNER.invoke(app, ["--world", "broker-log", "--shrink", "3"])
    assert "--without" in result.output
    result = RUNNER.invoke(app, ["--world", "broker-log", "--shrink", "6"])
    assert result.exit_code == 1
    assert "does not fail" in result.output


@pytest.mark.parametrize("world", ["broker-log", "replication"])
def test_a_world_without_voters_takes_no_number_of_them(world: str) -> None:
    result = RUNNER.invoke(app, ["--world", world, "--seed", "6", "--voters", "3"])
    assert result.exit_code == 2
    assert world in result.output


def test_the_world_of_replication_tells_what_happened(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    options = ["--world", "replication", "--seed", "3", "--safety-seconds", "4", "--trace", "--json", str(file)]
    result = RUNNER.invoke(app, options)
    assert result.exit_code == 0, result.output
    assert "seed 3: all invariants hold" in result.output
    assert "has taken over, epoch" in result.output
    assert json.loads(file.read_text())["marks"]["a reader got records"] > 0


def test_a_failure_tells_the_seed_the_nodes_the_last_lines_and_how_to_see_it_again() -> None:
    with MUTATIONS[BUG].put_in():
        result = RUNNER.invoke(app, ["--seed", "1", "--safety-seconds", "20"])
    assert result.exit_code == 1
    for words in (
        "kraftlog sim --world clusters --seed 1 --trace --safety-seconds 20",
        "configuration:",
        "nodes at the end:",
        "(6)",
    ):
        assert words in result.output


def test_a_seed_is_shrunk_to_what_it_takes_to_fail() -> None:
    with MUTATIONS[BUG].put_in():
        overrides, outcome = shrink(CLUSTERS, 1, lambda line: None)
    assert outcome.violation is not None
    assert overrides.seconds is not None
    assert overrides.seconds < 20
    assert outcome.parameters.fault_kinds == ()


def test_a_seed_that_does_not_fail_cannot_be_shrunk() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(CLUSTERS, 7, lambda line: None)


def test_the_zoo_hunts_what_it_is_told_and_says_what_caught_it(tmp_path: Path) -> None:
    file = tmp_path / "zoo.json"
    result = RUNNER.invoke(app, ["zoo", BUG, "--seeds", "3", "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert json.loads(file.read_text())[0]["seeds"] <= 3


@pytest.mark.parametrize("one", ["--seed", "--shrink"])
def test_one_seed_and_several_are_refused_together(one: str) -> None:
    result = RUNNER.invoke(app, [one, "3", "--seeds", "2", "--at-least", "1"])
    assert result.exit_code == 2
    assert "leave --seeds and --at-least out" in result.output


def test_a_wrong_option_is_one_line_and_not_the_whole_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "3", "--seeds", "2"]) == 2
    out, error = capfd.readouterr()
    assert out == ""
    assert error.count("\n") == 1


@pytest.mark.parametrize("world", WORLDS)
def test_the_faults_of_a_world_are_listed(world: str) -> None:
    result = RUNNER.invoke(app, ["faults", "--world", world])
    assert tuple(result.output.splitlines()) == WORLDS[world].fault_kinds


def test_an_unknown_bug_is_refused_by_name() -> None:
    result = RUNNER.invoke(app, ["zoo", "no such bug"])
    assert result.exit_code == 2
    assert "no such bug" in result.output


def test_an_unknown_world_and_an_unknown_fault_are_refused_by_name() -> None:
    result = RUNNER.invoke(app, ["--world", "nowhere"])
    assert result.exit_code == 2 and "nowhere" in result.output and "broker-log" in result.output
    result = RUNNER.invoke(app, ["--seed", "1", "--without", "process: pawsed"])
    assert result.exit_code == 2 and "pawsed" in result.output
    result = RUNNER.invoke(app, ["zoo", "--world", "replication", BUG])
    assert result.exit_code == 2 and "a follower counts before it has flushed" in result.output.replace("\n", " ")


def test_any_world_that_has_brokers_can_have_fewer(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    options = ["--world", "replication", "--seed", "12", "--brokers", "3", "--safety-seconds", "2", "--json", str(file)]
    assert RUNNER.invoke(app, options).exit_code == 0
    assert json.loads(file.read_text())["violation"] is None
