"""The commands of `kraftlog --help`, in groups, with a line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import typer

GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Run a cluster": {
        "up": "Run nodes and brokers on this machine until Ctrl-C",
        "demo": "Show the main features in one run",
        "format": "Make a node's data directory",
        "start": "Run one node",
        "brokers": "Run, list and describe brokers; fence and unregister them",
        "voters": "Show and set the voters by the ids of their directories",
        "random-uuid": "Print an id for a cluster or a directory",
        "features": "Describe, raise and lower the levels of features",
    },
    "Topics and partitions": {
        "topics": "Create, describe, alter and delete topics; apply a file",
        "partitions": "Describe partitions, such as those without a leader",
        "reassign": "Move partitions to other brokers",
        "elect": "Have partitions elect leaders",
        "configs": "Describe and alter configs of topics and brokers",
        "quotas": "Describe and alter quotas of clients",
        "acls": "List, add and remove access control entries",
        "tier": "List the segments of a partition in tiered storage",
    },
    "Records": {
        "produce": "Write lines or JSON to a topic",
        "consume": "Print the records of a topic",
    },
    "Inspect it": {
        "health": "Show what is not well, and why, also by the exit code",
        "node": "Show the state of every node",
        "quorum": "Describe the leader and the lag of each replica",
        "log-dirs": "Show what each broker has on which disk",
        "sql": "Query the metadata in SQL",
        "shell": "Browse the metadata as directories and files",
        "watch": "Print each change of the metadata as it is committed",
        "export": "Write the metadata log to Parquet files",
        "report": "Have Spark report what an export holds",
    },
    "Snapshots and disks": {
        "snapshot": "Create, list, save and verify snapshots of the metadata",
        "restore": "Make a new cluster from a saved snapshot",
        "verify": "Check the files of a stopped node or broker",
        "dump-log": "Print the frames of a log's segments",
        "kafka": "Read, import and export a real Kafka's metadata",
    },
    "Measure and test": {
        "bench": "Measure latency, throughput and failover",
        "sim": "Simulate clusters under faults, by seeds",
        "chaos": "Inject faults into real processes",
        "difftest": "Compare our controller's decisions with Kafka's",
    },
}


class GroupedCommands(typer.core.TyperGroup):
    """The command line as a whole."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the existing commands, group by group."""
        for title, lines in GROUPS.items():
            rows = [(name, line) for name, line in lines.items() if name in self.commands]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
