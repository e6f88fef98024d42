"""The help: commands in groups, and examples that the commands understand."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from kraftlog.cli.examples import EXAMPLES
from kraftlog.cli.groups import GROUPS
from kraftlog.cli.main import app
from kraftlog.cli.shared.timeout import with_timeout
from tests.kraftlog.command_line import SERVERS, Run

LINE_MAX = 80
WITH_HELP_OF_THEIR_OWN = ("sim", "chaos")


@pytest.fixture(scope="module")
def whole() -> Any:
    return with_timeout(typer.main.get_command(app))


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command that does something, by its words."""
    inner = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        yield " ".join(path)
    for name, of_group in inner.items():
        yield from leaves(of_group, (*path, name))


def test_each_command_is_in_one_group(whole: Any, run: Run) -> None:
    listed = [name for lines in GROUPS.values() for name in lines]
    assert sorted(listed) == sorted(whole.commands)
    printed = run("--help").lines()
    assert [line.removesuffix(":") for line in printed if line.removesuffix(":") in GROUPS] == list(GROUPS)
    for lines in GROUPS.values():
        for name, told in lines.items():
            assert [line for line in printed if line.split()[:1] == [name] and line.endswith(told)], name
    assert all(len(line) <= LINE_MAX for line in printed)


def test_each_command_has_one_or_two_examples(whole: Any) -> None:
    assert sorted([*EXAMPLES, *WITH_HELP_OF_THEIR_OWN]) == sorted(leaves(whole))
    assert {len(examples) for examples in EXAMPLES.values()} <= {1, 2}


@pytest.mark.parametrize("path", EXAMPLES)
def test_an_example_is_understood(whole: Any, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in SERVERS:
        monkeypatch.setenv(name, "localhost:9092")
    for example in EXAMPLES[path]:
        words = shlex.split(
            example.rpartition("| kraftlog")[2].partition(" | ")[0].partition(" < ")[0].partition(" > ")[0]
        )
        arguments = words[1:] if words[0] == "kraftlog" else words
        assert " ".join(arguments).startswith(path)
        context, command, taken = None, whole, []
        while True:
            context = command.make_context(command.name, list(arguments), parent=context)
            rest = [*context._protected_args, *context.args]
            if not hasattr(command, "commands") or not rest:
                break
            name, command, arguments = command.resolve_command(context, rest)
            taken.append(name)
        assert " ".join(taken) == path


def test_the_help_ends_with_them_as_they_are_written(run: Run) -> None:
    for path in ("topics create", "configs alter", "up", "log-dirs"):
        assert run(*path.split(), "--help").lines()[-len(EXAMPLES[path]) :] == [
            f"    {example}" for example in EXAMPLES[path]
        ]
