"""`kraftlog features`: metadata.version and the other features, with the options of kafka-features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, run_async, usage
from kraftlog.cli.shared.output import print_result, print_rows

if TYPE_CHECKING:
    from statemachine.query.cluster_descriptions import UpgradeType

app = typer.Typer(help="Features and their levels.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("Feature", "SupportedMinVersion", "SupportedMaxVersion", "FinalizedVersionLevel", "Release")

Metadata = Annotated[
    str | None,
    typer.Option("--metadata", metavar="VERSION", help="The metadata.version: 4.1-IV1, 4.1 (its newest) or 27."),
]
Release = Annotated[
    str | None,
    typer.Option(
        "--release-version", metavar="RELEASE", help="4.1: every feature as in a new cluster of Kafka's release."
    ),
]
Features = Annotated[
    list[str] | None, typer.Option("--feature", metavar="NAME=LEVEL", help="0 is off; may be given again.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only validate.")]


@app.command()
def describe(bootstrap_server: BootstrapServer, output: OutputOption = Output.TABLE) -> None:
    """Every feature: the levels that all nodes support, and the level in effect. 0 is off."""
    from kraftlog.commands.cluster_admin import feature_listing

    print_rows(COLUMNS, run_async(feature_listing(endpoints(bootstrap_server))), output)


@app.command()
def upgrade(
    bootstrap_server: BootstrapServer,
    release: Release = None,
    metadata: Metadata = None,
    feature: Features = None,
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set higher levels, all or none."""
    from statemachine.query.cluster_descriptions import UpgradeType

    _update(bootstrap_server, release, metadata, feature, dry_run, output, UpgradeType.UPGRADE)


@app.command()
def downgrade(
    bootstrap_server: BootstrapServer,
    release: Release = None,
    metadata: Metadata = None,
    feature: Features = None,
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set lower levels, all or none; refused if metadata would be lost."""
    from statemachine.query.cluster_descriptions import UpgradeType

    _update(bootstrap_server, release, metadata, feature, dry_run, output, UpgradeType.SAFE_DOWNGRADE)


def _update(
    bootstrap_server: str,
    release: str | None,
    metadata: str | None,
    features: list[str] | None,
    dry_run: bool,
    output: Output,
    upgrade_type: UpgradeType,
) -> None:
    from kraftlog.commands.cluster_admin import (
        feature_changes,
        parse_features,
        parse_metadata_version,
        parse_release,
        shown_level,
        update_features,
    )
    from statemachine.query.cluster_descriptions import UpgradeType

    of_release = None if release is None else usage(parse_release, release, "--release-version")
    version = None if metadata is None else usage(parse_metadata_version, metadata, "--metadata")
    levels = usage(parse_features, features or [], "--feature")
    options = "--release-version / --metadata / --feature"
    changes = usage(lambda of: feature_changes(version, of, upgrade_type, of_release), levels, options)
    changed = run_async(update_features(endpoints(bootstrap_server), changes, dry_run=dry_run))
    done = "upgraded" if upgrade_type is UpgradeType.UPGRADE else "downgraded"
    lines = []
    for change in changes:
        level = shown_level(change.name, change.level)
        how = f"{'can be' if dry_run else 'was'} {done} to {level}" if change in changed else f"is already at {level}"
        lines.append(f"{change.name} {how}.")
    result = [
        {
            "Feature": change.name,
            "Level": change.level,
            "WasSo": change not in changed,
            "Altered": change in changed and not dry_run,
        }
        for change in changes
    ]
    print_result(result, lines, output)
