"""`kraftlog restore`: make a new cluster from a saved snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraftlog.cli.cluster.adoption import adopting_of, adoption_fields, print_adoption
from kraftlog.cli.cluster.node import InitialControllers, initial_voters
from kraftlog.cli.shared.options import Output, OutputOption, path_argument
from kraftlog.cli.shared.output import print_fields, print_json, print_rows, say

if TYPE_CHECKING:
    from kraftlog.offline.adoption.adopted_snapshot import Adopting
    from kraftlog.offline.restore import RestoredCluster
    from raft.core.voters import VoterSet

COLUMNS: Final = ("NodeId", "DirectoryId", "Path")

BrokerReports = Annotated[
    list[Path] | None,
    typer.Option(
        "--broker-report",
        parser=path_argument,
        metavar="FILE",
        help="The report by `brokers report` of a broker of the old cluster, which may then be adopted; once for"
        " each broker.",
    ),
]
OtherClusters = Annotated[
    list[str] | None,
    typer.Option(
        "--also-of-cluster",
        metavar="ID",
        help="Also accept reports of this cluster: the snapshot's cluster was restored from a snapshot of it. May"
        " be given again.",
    ),
]
KeepClusterId = Annotated[
    bool, typer.Option("--keep-cluster-id", help="Keep the cluster's id. All its former voters must be lost.")
]
LostVoters = Annotated[
    list[int] | None,
    typer.Option(
        "--lost-voter", metavar="ID", help="With --keep-cluster-id: a former voter that is lost; once for each."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="With --keep-cluster-id: do not ask.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="With --broker-report: only show what is kept and what is lost.")
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("restore")(restore)


def restore(
    snapshot: Annotated[
        Path,
        typer.Option(
            "--snapshot", parser=path_argument, metavar="FILE", help="A snapshot, such as `snapshot save` copies."
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option("--config", parser=path_argument, metavar="FILE", help="Make the data of the node of this file."),
    ] = None,
    cluster_id: Annotated[
        str | None,
        typer.Option(
            "--cluster-id", help="With --config: the new cluster's id, the same on all its nodes, or 'random'."
        ),
    ] = None,
    initial_controllers: InitialControllers = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", parser=path_argument, metavar="DIR", help="Make a local cluster that `up` runs."),
    ] = None,
    voters: Annotated[int | None, typer.Option("--voters", help="With --dir; 3 if not given.")] = None,
    observers: Annotated[int | None, typer.Option("--observers", help="With --dir; 0 if not given.")] = None,
    broker_report: BrokerReports = None,
    also_of_cluster: OtherClusters = None,
    keep_cluster_id: KeepClusterId = False,
    lost_voter: LostVoters = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a new cluster from a saved snapshot: the data of one node, or a whole local cluster.

    Make every node from the same snapshot with the same new cluster id. Only an observer may start with an empty
    directory. A damaged snapshot or a directory that is not empty is refused, and nothing is changed.
    """
    adopting = adopting_of(broker_report or (), also_of_cluster or (), _lost(keep_cluster_id, lost_voter))
    if dry_run:
        _show_adoption(snapshot, adopting, output)
        return
    _confirm_loss(adopting, is_confirmed=yes, output=output)
    if config is not None and directory is None:
        _refuse(
            "the node's file lists the voters; leave the option out", {"--voters": voters, "--observers": observers}
        )
        restored = _restore_node(snapshot, config, cluster_id, initial_voters(initial_controllers), adopting)
        cluster = "--keep-cluster-id" if keep_cluster_id else f"--cluster-id {restored.cluster_id}"
        advice = f"Restore the other voters from the same files, with {cluster}, then start all of them."
    elif directory is not None and config is None:
        _refuse("a local cluster gets a new id; leave the option out", {"--cluster-id": cluster_id})
        _refuse("the directories get new ids; leave the option out", {"--initial-controllers": initial_controllers})
        restored = _restore_cluster(snapshot, directory, voters, observers, adopting)
        advice = f"Start it: kraftlog up --dir {directory}"
    else:
        raise typer.BadParameter("give one of the two", param_hint="--config / --dir")
    fields = _fields(restored)
    if restored.adoption is not None and output is Output.JSON:
        fields["Adoption"] = adoption_fields(restored.adoption)
    if output is Output.JSON:
        print_json(fields)
        return
    rows = fields.pop("Directories")
    print_fields(fields, output)
    say("")
    print_rows(COLUMNS, rows, output)
    if restored.adoption is not None:
        say("")
        print_adoption(restored.adoption, output)
    say(advice)


def _lost(keeps_cluster_id: bool, lost_voters: list[int] | None) -> list[int] | None:
    if lost_voters and not keeps_cluster_id:
        raise typer.BadParameter("the option is only for a cluster that keeps its id", param_hint="--lost-voter")
    return list(lost_voters or ()) if keeps_cluster_id else None


def _confirm_loss(adopting: Adopting, *, is_confirmed: bool, output: Output) -> None:
    """Ask whether the former voters are lost, if the cluster keeps its id."""
    from kraftlog.cli.shared.confirmation import check_can_ask, confirm

    if adopting.lost_voters and not is_confirmed:
        check_can_ask(output)
        who = ", ".join(map(str, adopting.lost_voters))
        confirm(f"Will the directories of the former voters {who} never be started again?")


def _show_adoption(snapshot: Path, adopting: Adopting, output: Output) -> None:
    from kraftlog.offline.restore import planned_adoption

    if not adopting:
        raise typer.BadParameter("there is nothing to show without reports of brokers", param_hint="--broker-report")
    adoption = planned_adoption(snapshot, adopting)
    if output is Output.JSON:
        print_json(adoption_fields(adoption))
        return
    print_adoption(adoption, output)


def _refuse(reason: str, options: Mapping[str, object]) -> None:
    """Raise a usage error if one of the options was given."""
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(reason, param_hint=name)


def _restore_node(
    snapshot: Path,
    config: Path,
    cluster_id: str | None,
    voters: VoterSet | None,
    adopting: Adopting,
) -> RestoredCluster:
    from kraftbase.uuids import random_cluster_id
    from kraftlog.config.config import load_config
    from kraftlog.offline.restore import restore_node

    if adopting.keeps_cluster_id:
        _refuse("the cluster keeps its id; leave the option out", {"--cluster-id": cluster_id})
        return restore_node(snapshot, load_config(config), None, voters, adopting)
    if cluster_id is None:
        raise typer.BadParameter(
            "missing; give an id that `kraftlog random-uuid` prints, the same for all nodes, or 'random' for the"
            " first node",
            param_hint="--cluster-id",
        )
    wanted = random_cluster_id() if cluster_id == "random" else cluster_id
    return restore_node(snapshot, load_config(config), wanted, voters, adopting)


def _restore_cluster(
    snapshot: Path, directory: Path, voters: int | None, observers: int | None, adopting: Adopting
) -> RestoredCluster:
    from kraftlog.offline.restore import restore_cluster

    return restore_cluster(snapshot, directory, voters=voters, observers=observers, adopting=adopting)


def _fields(restored: RestoredCluster) -> dict[str, Any]:
    from kraftbase.uuids import uuid_to_text

    source, snapshot = restored.source, restored.snapshot
    return {
        "ClusterId": restored.cluster_id,
        "EndOffset": snapshot.snapshot_id.offset,
        "Epoch": snapshot.snapshot_id.epoch,
        "Records": snapshot.record_count,
        "Digest": snapshot.digest.hex(),
        "FromClusterId": source.header.cluster_id,
        "FromEpoch": source.snapshot_id.epoch,
        "Directories": [
            {
                "NodeId": node.identity.node_id,
                "DirectoryId": uuid_to_text(node.identity.directory_id),
                "Path": str(node.path),
            }
            for node in restored.nodes
        ],
    }
