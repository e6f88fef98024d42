"""`kraftlog tier`: what is in remote storage (KIP-405)."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, run_async
from kraftlog.cli.shared.output import print_json, print_rows, say

app = typer.Typer(help="Tiered storage.", no_args_is_help=True, rich_markup_mode=None)

INT32_MAX: Final = 2**31 - 1

COLUMNS = ("SegmentId", "StartOffset", "EndOffset", "LeaderEpochs", "State", "SizeBytes", "BrokerId", "MaxTimestamp")


@app.callback()
def tier() -> None:
    """Tiered storage."""


@app.command()
def segments(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, max=INT32_MAX, help="The partition's id.")],
    bootstrap_server: BootstrapServer,
    leader_epoch: Annotated[
        int | None,
        typer.Option("--leader-epoch", min=0, max=INT32_MAX, help="Only segments with offsets of this leader epoch."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the remote segments of a partition, by start offset.

    EndOffset is the last offset in the segment. LeaderEpochs shows the first offset of each epoch there, MaxTimestamp
    the newest record's time in milliseconds since 1970. Segments whose deletion is finished are not shown.
    """
    from kraftlog.commands.partition_admin import remote_segments

    found = run_async(remote_segments(endpoints(bootstrap_server), topic, partition, leader_epoch))
    if output is Output.JSON:
        print_json(found)
        return
    print_rows(COLUMNS, found["Segments"], output)
    say(f"The finished copies have {found['SizeBytes']} bytes.")
