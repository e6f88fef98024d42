"""Options that several commands share, and how a command runs its asynchronous part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from kraftbase.endpoint import Endpoint
from kraftlog.cli.shared.signals import SignalCancellation, TerminatedBySignal
from kraftlog.config.endpoints import parse_endpoints

Result = TypeVar("Result")
Value = TypeVar("Value")


class Output(StrEnum):
    """How a command prints its results."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", help="What to print: a table to read, or JSON.")]

_BOOTSTRAP_SERVER: Final = typer.Option(
    "--bootstrap-server",
    envvar="KRAFTLOG_BOOTSTRAP_SERVER",
    metavar="HOST:PORT[,HOST:PORT]",
    help="Any nodes of the cluster; the client finds the leader through them.",
)
BootstrapServer = Annotated[str, _BOOTSTRAP_SERVER]
BootstrapServerOrNone = Annotated[str | None, _BOOTSTRAP_SERVER]


def is_on_command_line(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line, and not in the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def endpoints(bootstrap_server: str) -> tuple[Endpoint, ...]:
    """The addresses in `--bootstrap-server`. Raises a usage error for one that is not an address."""
    return usage(parse_endpoints, bootstrap_server, "--bootstrap-server")


def path_argument(value: str | Path) -> Path:
    """The path that an option names; an empty one, which would mean the working directory, is a usage error."""
    if not str(value):
        raise typer.BadParameter("the path is empty; name a path")
    return Path(value)


def usage(parse: Callable[[Value], Result], value: Value, option: str) -> Result:
    """Return `parse(value)`; raise a usage error of `option` for a value that `parse` refuses."""
    from kraftbase.errors import ConfigurationError

    try:
        return parse(value)
    except (ConfigurationError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


_runner: ContextVar[asyncio.Runner | None] = ContextVar("_runner", default=None)


@contextmanager
def one_event_loop() -> Iterator[None]:
    """Make all calls of `run_async` in the block share an event loop.

    gRPC remembers the loop of each pending event; if that loop is closed when another polls the event, a traceback is
    printed on standard error, between the lines of a command that works.
    """
    with asyncio.Runner() as runner:
        token = _runner.set(runner)
        try:
            yield
        finally:
            _runner.reset(token)


def run_async(work: Coroutine[Any, Any, Result], *, timeout_hint: str | None = None) -> Result:
    """Run a command's asynchronous part. Ctrl-C cancels it and raises KeyboardInterrupt, SIGTERM TerminatedBySignal.

    `--timeout` limits the whole command; `timeout_hint` is the advice after a timeout, for a command that changes
    nothing.
    """
    from kraftlog.admin.client.time_limit import CHANGE_HINT, within_limit

    runner, cancellation = _runner.get(), SignalCancellation()
    bounded = cancellation.run_until_signal(within_limit(work, timeout_hint or CHANGE_HINT))
    try:
        return asyncio.run(bounded) if runner is None else runner.run(bounded, context=copy_context())
    except asyncio.CancelledError:
        if cancellation.number is None:
            raise
        raise TerminatedBySignal(cancellation.number) from None
