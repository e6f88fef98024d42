"""`--timeout`, an option of every command that connects to a cluster."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

import typer

from kraftlog.admin.client.time_limit import set_limit

SECONDS_MIN: Final = 0.1
SECONDS_MAX: Final = 86_400.0

_HELP: Final = "Stop after this many seconds in all; default: each step has its own limit."
_HELP_OF: Final = {
    "produce": "Abandon a record that is not acknowledged within this many seconds of being read; default: 120.",
}
"""The help for commands with another limit: the input of `produce` may take any time."""


def with_timeout(command: Any) -> Any:
    """Add the option to each subcommand that connects to a cluster: those with `--bootstrap-server`."""
    for of_group in getattr(command, "commands", {}).values():
        with_timeout(of_group)
    if any(parameter.name == "bootstrap_server" for parameter in command.params):
        command.params.append(_option(_HELP_OF.get(command.name, _HELP)))
    return command


def _set(seconds: float | None) -> None:
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is not a time; give seconds")
    set_limit(seconds)


def _option(text: str) -> Any:
    app = typer.Typer(add_completion=False)

    @app.command()
    def asking(
        timeout: Annotated[
            float | None,
            typer.Option(
                "--timeout",
                min=SECONDS_MIN,
                max=SECONDS_MAX,
                metavar="SECONDS",
                callback=_set,
                expose_value=False,
                help="",
            ),
        ] = None,
    ) -> None: ...

    option: Any = next(of for of in typer.main.get_command(app).params if of.name == "timeout")
    option.help = text  # typer does not see this function's arguments in the annotation above
    return option
