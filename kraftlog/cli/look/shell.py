"""`kraftlog shell`: browse the metadata as a tree of directories and files (OT-10)."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraftbase.errors import StorageError
from kraftlog.cli.shared.errors import one_line
from kraftlog.cli.shared.options import endpoints, path_argument, run_async
from kraftlog.cli.shared.output import note, say
from kraftlog.cli.shared.snapshots import load_snapshot

if TYPE_CHECKING:
    from kraftlog.offline.metadata_shell import MetadataShell, Source

COMPLETIONS_MAX: Final = 1_000
"""At most this many names are offered as completions."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    # The words after the shell's own options are a command with its own options.
    app.command("shell", context_settings={"allow_interspersed_args": False})(shell)


def shell(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="One command to run, such as ls -l /topics.")
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", parser=path_argument, metavar="FILE", help="A snapshot, a .checkpoint file."),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", parser=path_argument, metavar="DIR", help="A node's data directory, also live."),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="A running cluster in its present state: one node takes a snapshot for the shell."),
    ] = False,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            envvar="KRAFTLOG_BOOTSTRAP_SERVER",
            metavar="HOST:PORT[,HOST:PORT]",
            help="With --live: any nodes of the cluster.",
        ),
    ] = None,
) -> None:
    """Browse the metadata as directories and files.

    Without a command, runs the lines of standard input, or asks for them at a terminal; see its command help. Changes
    nothing. The exit code is 1 if a command failed.
    """
    from kraftlog.offline.metadata_shell import MetadataShell

    with _opened(snapshot, directory, bootstrap_server if live else None, live=live) as source:
        session = MetadataShell(source, say, _print_error)
        if words:
            is_well = session.run(words)
        elif sys.stdin.isatty():
            is_well = _converse(session)
        else:
            is_well = _run_lines(session)
    if not is_well:
        raise typer.Exit(1)


# --- where the metadata comes from ------------------------------------------------------------------------------------


@contextmanager
def _opened(
    snapshot: Path | None, directory: Path | None, bootstrap_server: str | None, *, live: bool
) -> Iterator[Source]:
    if [snapshot is not None, directory is not None, live].count(True) != 1:
        raise typer.BadParameter("give one of --snapshot, --directory and --live")
    if live:
        if bootstrap_server is None:
            raise typer.BadParameter(
                "--live needs the address of a node; name one or more", param_hint="--live / --bootstrap-server"
            )
        with _present(bootstrap_server) as source:
            yield source
    elif directory is not None:
        source = LiveDatabase(directory)
        with source.reading():
            pass  # an error in it is reported before the first command
        yield source
    elif snapshot is not None:
        with closing(load_snapshot(snapshot)) as connection:
            yield LoadedSnapshot(connection, snapshot)


@contextmanager
def _present(bootstrap_server: str) -> Iterator[Source]:
    """The metadata that a node of the cluster has applied at this moment."""
    from kraftlog.commands.snapshots import save_present

    with TemporaryDirectory() as directory:
        path = run_async(save_present(endpoints(bootstrap_server), Path(directory)))
        connection = load_snapshot(path)
    with closing(connection):
        yield LoadedSnapshot(connection, path)


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """A snapshot in memory."""

    connection: sqlite3.Connection
    path: Path

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """See Source."""
        with _translated(self.path):
            yield self.connection


@dataclass(frozen=True, slots=True)
class LiveDatabase:
    """The database of a node. The node may run, and may even rebuild the database, so each command opens it again."""

    directory: Path

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """See Source."""
        from raft.storage.directory import METADATA_DATABASE_NAME
        from statemachine.store.private_copy import open_copy

        path = self.directory / METADATA_DATABASE_NAME
        # While a node runs, and after it was killed, a write-ahead log exists. It grows as long as a reader holds it,
        # and a command whose output goes to a pager may take any time: so a copy is read. Without a write-ahead log no
        # process writes; SQLite would create one even to read, unless the database is opened as immutable.
        is_still = not path.with_name(path.name + "-wal").exists()
        with _translated(path), closing(_open_still(path) if is_still else open_copy(path)) as connection:
            connection.execute("BEGIN")
            if connection.execute("SELECT end_offset FROM applied").fetchone() is None:
                raise StorageError(f"the metadata database {path} is damaged: it has no applied end offset")
            yield connection


def _open_still(path: Path) -> sqlite3.Connection:
    """A connection to a database that no process writes. A node that starts now does not change the file at once."""
    try:
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise StorageError(f"cannot read the metadata database {path}: {error}; check that it is a node's") from None


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StorageError(
            f"cannot read the metadata in {path}: {error}; check that it is a node's directory"
        ) from None


# --- where the commands come from -------------------------------------------------------------------------------------


def _print_error(line: str) -> None:
    sys.stdout.flush()  # the results of finished commands are printed before the error
    note(line)


def _run_lines(shell: MetadataShell) -> bool:
    """Run the lines of standard input; returns whether all succeeded."""
    is_well = True
    _accept_all_bytes()
    for line in sys.stdin:
        is_well &= shell.run_line(line)
        sys.stdout.flush()  # the sender of the lines may wait for their output
        if shell.is_done:
            break
    return is_well


def _converse(shell: MetadataShell) -> bool:
    """Ask for lines and run them until the end of the input. Ctrl-C drops a line, or stops its command."""
    _accept_all_bytes()
    readline = _complete_with_tab(shell)
    while not shell.is_done:
        try:
            with _interrupt_as_a_key(readline):
                line = input(f"{shell.current_directory}> ")
            shell.run_line(line)
        except EOFError:
            say("")
            break
        except KeyboardInterrupt:
            say("")
        except Exception as error:
            message = one_line(error)
            if message is None:
                raise
            _print_error(f"error: {message}")
    return True


@contextmanager
def _interrupt_as_a_key(readline: ModuleType | None) -> Iterator[None]:
    """At the prompt, Ctrl-C is a key: it drops the line and asks for the next one. As a signal it can get lost: the
    terminal drops what was typed before it, and if readline already expects a key, it waits for another one, and Python
    handles the signal only after that.
    """
    descriptor = 0  # `input` lets lines be edited at this one only
    if readline is None or "libedit" in (readline.__doc__ or "") or not os.isatty(descriptor):
        yield
        return
    import termios

    readline.parse_and_bind(r'"\C-c": "\C-e\C-u\C-m"')
    before = termios.tcgetattr(descriptor)
    characters = [*before[6]]
    characters[termios.VINTR] = os.fpathconf(descriptor, "PC_VDISABLE")
    termios.tcsetattr(descriptor, termios.TCSADRAIN, [*before[:6], characters])
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _accept_all_bytes() -> None:
    """Bytes that are not UTF-8 become text that matches no name."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="backslashreplace")


def _complete_with_tab(shell: MetadataShell) -> ModuleType | None:
    """The module that lets lines be edited and completed; None where there is none."""
    try:
        import readline
    except ImportError:  # not on every system
        return None
    found: list[str] = []

    def complete(text: str, index: int) -> str | None:
        if index == 0:
            before = readline.get_line_buffer()[: readline.get_begidx()]
            found[:] = completions(shell, before, text)
        return found[index] if index < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t")
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    return readline


def completions(shell: MetadataShell, before: str, text: str) -> list[str]:
    """The completions of `text`, the last word of a line that begins with `before`."""
    from kraftlog.offline.metadata_shell import COMMANDS
    from kraftlog.offline.metadata_tree import File

    if before.strip() in ("", "man", "help"):
        return [f"{name} " for name in COMMANDS if name.startswith(text)]
    head, slash, last = text.rpartition("/")
    with suppress(StorageError), closing(shell.entries_below(head + slash)) as entries:
        found = islice((entry for entry in entries if entry[0].startswith(last)), COMPLETIONS_MAX)
        return [f"{head}{slash}{name}{' ' if isinstance(node, File) else '/'}" for name, node in found]
    return []
