"""Of the command line, what the arguments name is built alone: it must not be another one for that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from kraftlog.cli.main import app, main
from kraftlog.cli.shared.narrowing import command_for


def paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from paths(inner, (*path, name))


def found(command: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        command = command.commands[name]
    return command


def described(command: Any) -> object:
    return type(command), vars(command).keys(), command.get_help(typer.Context(command))


@pytest.fixture(scope="module")
def whole() -> Any:
    return typer.main.get_command(app)


def test_each_command_is_the_same_as_in_the_whole_command_line(whole):
    all_paths = list(paths(whole))
    assert len(all_paths) > 70
    for path in all_paths:
        assert described(found(command_for(app, path), path)) == described(found(whole, path)), path


def test_only_the_named_command_is_built():
    assert set(command_for(app, ["topics", "list"]).commands) == {"topics"}
    assert set(found(command_for(app, ["topics", "list"]), ("topics",)).commands) == {"list"}
    assert len(found(command_for(app, ["topics", "--help"]), ("topics",)).commands) > 1


def test_a_misspelled_name_is_compared_with_all(capsys):
    assert main(["topcs", "list"]) == 2
    assert "Did you mean 'topics'?" in capsys.readouterr().err
    assert main(["topics", "lst"]) == 2
    assert "Did you mean 'list'?" in capsys.readouterr().err
