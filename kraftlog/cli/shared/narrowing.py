"""Makes a command start sooner: typer builds the command that the arguments name, not all of them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import typer


def command_for(app: typer.Typer, arguments: Sequence[str]) -> Any:
    """The part of the command line that these arguments need. Building all groups and commands takes typer as long as
    all imports of a command together. Arguments that begin with the name of a group or command (`brokers list`) need no
    other one. All others, such as `--help` or a misspelled name, get the whole command line.
    """
    return typer.main.get_command(_narrowed(app, arguments))


def _narrowed(app: typer.Typer, arguments: Sequence[str]) -> typer.Typer:
    if not arguments:
        return app
    groups = [group for group in app.registered_groups if group.name == arguments[0]]
    commands = [command for command in app.registered_commands if _name(command) == arguments[0]]
    if not groups and not commands:
        return app
    narrowed = copy.copy(app)
    narrowed.registered_commands = commands
    narrowed.registered_groups = [_narrowed_group(group, arguments[1:]) for group in groups]
    return narrowed


def _narrowed_group(group: Any, arguments: Sequence[str]) -> Any:
    narrowed = copy.copy(group)
    narrowed.typer_instance = _narrowed(group.typer_instance, arguments)
    return narrowed


def _name(command: Any) -> str:
    return command.name or typer.main.get_command_name(command.callback.__name__)
