"""`kraftlog brokers report` and `kraftlog brokers adopt`: move stopped brokers to a restored cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraftlog.cli.shared.options import Output, OutputOption, path_argument
from kraftlog.cli.shared.output import print_fields, print_json, print_rows, say

if TYPE_CHECKING:
    from kraftlog.offline.adoption.adopted_snapshot import Adopting, Adoption
    from kraftlog.offline.adoption.broker_disks import StoppedBroker
    from kraftlog.offline.adoption.broker_report import ReportedLog
    from kraftlog.offline.adoption.moving import Move
    from kraftlog.offline.adoption.partition_choice import ChosenPartition

PARTITION_COLUMNS: Final = ("Topic", "Partition", "InSync", "LogEndOffset", "LeaderEpoch", "Condition")
LOG_COLUMNS: Final = ("Topic", "Partition", "LogEndOffset", "Becomes")

DataDirectory = Annotated[
    Path,
    typer.Option("--data-dir", parser=path_argument, metavar="DIR", help="Where the stopped broker keeps everything."),
]
LogDirectories = Annotated[
    list[Path] | None,
    typer.Option(
        "--log-dir",
        parser=path_argument,
        metavar="DIR",
        help="A log directory of the broker, as in `brokers run`; may be given again; default: `partitions` in"
        " --data-dir.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("report")(report)
    app.command("adopt")(adopt)


def report(
    data_dir: DataDirectory,
    to: Annotated[
        Path, typer.Option("--to", parser=path_argument, metavar="FILE", help="Where to write it: a new file.")
    ],
    log_dir: LogDirectories = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write down what a stopped broker has on its disks, for `kraftlog restore --broker-report`. Changes nothing there.

    Every log is read from where it was last flushed. A log directory that is not named is not in the report, and its
    records are lost.
    """
    from kraftbase.files.files import write_new_file
    from kraftbase.files.posix import PosixFileSystem
    from kraftlog.offline.adoption.broker_disks import read_broker
    from kraftlog.offline.adoption.broker_report import encode_report

    if to.exists():
        raise typer.BadParameter(f"{to} exists; name a new file", param_hint="--to")
    with _stopped(data_dir, log_dir) as broker:
        made = read_broker(broker)
    write_new_file(PosixFileSystem(), str(to.absolute()), encode_report(made))
    damaged = [f"{log.topic}-{log.partition_id}" for log in made.logs if log.is_damaged]
    fields: dict[str, Any] = {
        "BrokerId": made.broker_id,
        "ClusterId": made.cluster_id,
        "MetadataEndOffset": made.metadata_end_offset,
        "LogDirectories": len(made.directory_ids),
        "Logs": len(made.logs),
        "Damaged": damaged,
        "Path": str(to),
    }
    print_json(fields) if output is Output.JSON else print_fields(fields, output)


def adopt(
    data_dir: DataDirectory,
    snapshot: Annotated[
        Path,
        typer.Option(
            "--snapshot",
            parser=path_argument,
            metavar="FILE",
            help="A snapshot of the restored cluster, such as `snapshot save` copies.",
        ),
    ],
    log_dir: LogDirectories = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Make the change. Without this option it is only shown.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move a stopped broker to the cluster that was restored with its report. Shows what becomes of each of its logs.

    Refused if the cluster was restored without the report, or if the disks have changed since the report.
    """
    from kraftlog.offline.adoption.moving import execute_move, planned_move
    from kraftlog.offline.restore import usable_snapshot

    with (
        _stopped(data_dir, log_dir) as broker,
        usable_snapshot(snapshot) as (reader, _),
        _removed_at_end(broker) as new_path,
    ):
        move = planned_move(broker, reader, new_path)
        if execute and not move.is_done:
            execute_move(broker, move, new_path)
    _print_move(move, is_moved=execute, output=output)


@contextmanager
def _removed_at_end(broker: StoppedBroker) -> Iterator[Path]:
    from kraftlog.offline.adoption.moving import new_database_path
    from statemachine.tables.database import remove

    path = new_database_path(broker)
    try:
        yield path
    finally:
        remove(path)


@contextmanager
def _stopped(data_dir: Path, log_dirs: Sequence[Path] | None) -> Iterator[StoppedBroker]:
    from kraftbase.files.posix import PosixFileSystem
    from kraftlog.broker.settings import PARTITIONS_NAME
    from kraftlog.offline.adoption.broker_disks import stopped_broker

    paths = [str(path.absolute()) for path in log_dirs or [data_dir / PARTITIONS_NAME]]
    with stopped_broker(PosixFileSystem(), str(data_dir.absolute()), paths) as broker:
        yield broker


def _print_move(move: Move, *, is_moved: bool, output: Output) -> None:
    rows = [
        {
            "Topic": log.topic,
            "Partition": log.partition_id,
            "LogEndOffset": log.log_end_offset,
            "Becomes": str(fate),
        }
        for log, fate in move.fates
    ]
    fields = {
        "BrokerId": move.report.broker_id,
        "FromClusterId": move.report.cluster_id,
        "ClusterId": move.new_cluster_id,
        "Moved": is_moved or move.is_done,
    }
    if output is Output.JSON:
        print_json({**fields, "Logs": rows})
        return
    print_fields(fields, output)
    if rows:
        say("")
        print_rows(LOG_COLUMNS, rows, output)
    if move.is_done:
        say(f"Broker {move.report.broker_id} is of cluster {move.new_cluster_id} already.")
    elif not is_moved:
        say("Nothing was changed. Add --execute to move the broker.")


# --- what `kraftlog restore` shows ------------------------------------------------------------------------------------


def adopting_of(paths: Iterable[Path], also_of_clusters: Sequence[str], lost_voters: Sequence[int] | None) -> Adopting:
    """The brokers that a cluster adopts, by the files with their reports; the cluster keeps its id unless `lost_voters`
    is None.

    Raises ConfigurationError for a file that is no report, OSError.
    """
    from kraftbase.errors import ConfigurationError
    from kraftlog.offline.adoption.adopted_snapshot import Adopting
    from kraftlog.offline.adoption.broker_report import REPORT_BYTES_MAX, decode_report

    reports = []
    for path in paths:
        if path.stat().st_size > REPORT_BYTES_MAX:
            raise ConfigurationError(f"{path} is too large for a report")
        reports.append(decode_report(path.read_bytes(), str(path)))
    return Adopting(reports, also_of_clusters, lost_voters)


def adoption_fields(adoption: Adoption) -> dict[str, Any]:
    """What becomes of partitions and logs, for JSON."""
    from kraftbase.uuids import uuid_to_text

    return {
        "Adopted": adoption.brokers,
        "LeftOut": adoption.brokers_left_out,
        "DirectoriesLeftOut": [
            {"BrokerId": broker_id, "DirectoryId": uuid_to_text(directory_id)}
            for broker_id, directory_id in adoption.directories_left_out
        ],
        "Partitions": [
            {
                "Topic": name.topic,
                "Partition": name.partition_id,
                "InSync": [*chosen.record.isr],
                "LogEndOffset": None if chosen.log is None else chosen.log.log_end_offset,
                "LeaderEpoch": chosen.record.leader_epoch,
                "NotAdopted": [*chosen.not_adopted],
                "Damaged": sorted({*chosen.damaged, *chosen.damaged_beyond}),
                "Condition": condition(chosen),
            }
            for name, chosen in adoption.partitions
        ],
        "Strays": [{"BrokerId": broker_id, **_stray(log)} for broker_id, log in adoption.strays],
    }


def condition(chosen: ChosenPartition) -> str:
    """The records of a partition that are lost, or may be; empty if none are."""
    who = _ids(chosen.not_adopted)
    if chosen.is_without_leader:
        return f"no leader: only {who} may have records"
    if chosen.log is None:
        return "begins empty: no log of it is reported"
    found = [f"loses the records that only {who} has"] if who else []
    if chosen.damaged_beyond:
        found.append(f"loses the records that only the damaged log on {_ids(chosen.damaged_beyond)} had")
    if chosen.damaged:
        found.append(f"damaged on {_ids(chosen.damaged)}")
    return "; ".join(found)


def _ids(broker_ids: Sequence[int]) -> str:
    return ", ".join(map(str, broker_ids))


def _stray(log: ReportedLog) -> dict[str, Any]:
    return {"Topic": log.topic, "Partition": log.partition_id, "LogEndOffset": log.log_end_offset}


def print_adoption(adoption: Adoption, output: Output) -> None:
    """Print what becomes of partitions and logs, as tables."""
    fields = adoption_fields(adoption)
    print_rows(PARTITION_COLUMNS, fields["Partitions"], output)
    if fields["Strays"]:
        say("")
        say("Logs that the cluster does not know, which stay on their brokers' disks under other names:")
        print_rows(("BrokerId", "Topic", "Partition", "LogEndOffset"), fields["Strays"], output)
    for broker_id in adoption.brokers_left_out:
        say(f"There is no report of broker {broker_id}: records that only this broker has are lost.")
    for broker_id, directory_id in adoption.directories_left_out:
        say(
            f"The report of broker {broker_id} lacks its log directory {directory_id}: records that only this"
            " directory has are lost."
        )
