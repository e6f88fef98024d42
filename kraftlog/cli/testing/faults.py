"""`kraftlog sim` and `kraftlog chaos`: simulated clusters and real ones under faults. Each has options of its own."""

from __future__ import annotations

from typing import Any, Final

import typer

PASSED_ON: Final[dict[str, Any]] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
"""Passes all arguments to a command that is imported only when it is used: the simulator imports every module of a
node.
"""


def add_to(app: typer.Typer) -> None:
    """Add both commands."""

    @app.command("sim", context_settings=PASSED_ON, help="Simulate clusters under faults; see kraftlog sim --help.")
    def sim(context: typer.Context) -> Any:
        from kraftlog.sim.command import app as simulator

        command = typer.main.get_command(simulator)
        return command(args=context.args, prog_name="kraftlog sim", standalone_mode=False)

    @app.command("chaos", context_settings=PASSED_ON, help="Faults on real processes; see kraftlog chaos --help.")
    def chaos(context: typer.Context) -> int:
        from kraftlog.chaos.command import main

        return main(context.args)
