"""The command `kraftlog`: its groups, and how every command reports errors.

An expected error is one line on standard error, `error: KAFKA_ERROR_NAME: what is wrong; what to do`, and exit code 1;
a usage error is one line and exit code 2; Ctrl-C is 130, SIGTERM 143 and SIGHUP 129, and they print nothing. A pipe
closed by its reader is not an error either: the exit code is 141, as if SIGPIPE had ended the command. A full disk
behind standard output is an expected error; a closed standard output is no error. Anything else is a bug and shows its
traceback.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from kraftlog import __version__
from kraftlog.admin.client.time_limit import limits_end
from kraftlog.cli.cluster import brokers, features, node, up, voters
from kraftlog.cli.disks import dump_log, kafka, restore, snapshot, verify
from kraftlog.cli.examples import with_examples
from kraftlog.cli.groups import GroupedCommands
from kraftlog.cli.look import health, log, log_dirs, node_status, quorum, shell, sql
from kraftlog.cli.records import consume, produce
from kraftlog.cli.shared.errors import in_plain_words, one_line
from kraftlog.cli.shared.narrowing import command_for
from kraftlog.cli.shared.options import one_event_loop
from kraftlog.cli.shared.output import note, print_error, say
from kraftlog.cli.shared.signals import interrupted_exit_code, raise_on_signals
from kraftlog.cli.shared.streams import discard_standard_output, prepare_standard_streams, standard_output_failure
from kraftlog.cli.shared.timeout import with_timeout
from kraftlog.cli.testing import bench, difftest, faults
from kraftlog.cli.topics import acls, configs, elect, partitions, quotas, reassign, tier, topics, topics_apply
from kraftlog.commands.user_messages import user_messages_to
from kraftlog.process.grpc_settings import set_grpc
from kraftlog.process.logs import configure_logging

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
EXIT_READER_GONE: Final = 128 + signal.SIGPIPE


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"kraftlog {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="kraftlog",
    cls=GroupedCommands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
up.add_to(app)
node.add_to(app)
restore.add_to(app)
log.add_to(app)
verify.add_to(app)
dump_log.add_to(app)
shell.add_to(app)
sql.add_to(app)
elect.add_to(app)
health.add_to(app)
app.add_typer(node_status.app, name="node")
app.add_typer(quorum.app, name="quorum")
app.add_typer(voters.app, name="voters")
topics_apply.add_to(topics.app)
app.add_typer(topics.app, name="topics")
app.add_typer(partitions.app, name="partitions")
app.add_typer(reassign.app, name="reassign")
app.add_typer(tier.app, name="tier")
app.add_typer(brokers.app, name="brokers")
app.add_typer(configs.app, name="configs")
app.add_typer(features.app, name="features")
app.add_typer(quotas.app, name="quotas")
app.add_typer(acls.app, name="acls")
produce.add_to(app)
consume.add_to(app)
log_dirs.add_to(app)
app.add_typer(snapshot.app, name="snapshot")
app.add_typer(kafka.app, name="kafka")
app.add_typer(bench.app, name="bench")
faults.add_to(app)
difftest.add_to(app)


@app.callback()
def kraftlog(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """A KRaft-style replicated metadata log: run a cluster, change its metadata, follow its log."""


def run() -> None:
    """The entry point: run the command line of this process and exit."""
    set_grpc()  # before any command imports grpc
    prepare_standard_streams()
    raise_on_signals()
    code = main(sys.argv[1:])
    sys.exit(interrupted_exit_code() if code == EXIT_INTERRUPTED else code)


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    configure_logging("critical")
    try:
        return _command(arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as end:
        # typer and rich end the process this way at a broken pipe.
        if isinstance(end.__context__, BrokenPipeError):
            return _reader_gone()
        raise
    except Exception as error:
        return _failed(error)


def _command(arguments: Sequence[str]) -> int:
    for argument in arguments:
        if not _is_utf8(argument):
            raise typer.BadParameter(f"the argument {argument!r} is not UTF-8; write it in UTF-8")
    try:
        with user_messages_to(note), one_event_loop(), limits_end():
            command = with_examples(with_timeout(command_for(app, arguments)))
            result: Any = command(args=list(arguments), prog_name="kraftlog", standalone_mode=False)
    finally:
        sys.stdout.flush()  # what was done is printed before the error about what was not
    return result if isinstance(result, int) else 0


def _reader_gone() -> int:
    discard_standard_output()
    return EXIT_READER_GONE


def _is_utf8(argument: str) -> bool:
    """Whether the argument was UTF-8: Python reads other bytes as surrogates, which cannot be encoded."""
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _failed(error: Exception) -> int:
    if isinstance(error, typer.Abort):
        return EXIT_INTERRUPTED
    if isinstance(error, typer.TyperException):
        return _misused(error)
    if isinstance(error, OSError) and (failure := standard_output_failure(error)) is not None:
        discard_standard_output()
        error = failure
    line = one_line(error)
    if line is None:
        raise error
    print_error(line)
    return EXIT_FAILURE


def _misused(error: typer.TyperException) -> int:
    context: typer.Context | None = getattr(error, "ctx", None)
    message = in_plain_words(error)
    if context is not None and message == context.get_help():  # a group without a command
        print(message, file=sys.stderr)  # noqa: T201
    else:
        command = "kraftlog" if context is None else context.command_path
        print_error(f"{message.rstrip('.')}; see {command} --help")
    return EXIT_USAGE
