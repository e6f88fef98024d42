"""What `kraftlog health` finds: nodes, brokers, log directories and partitions that are not well, and why.

Each node is asked for its own state (`kraftlog.commands.node_status`). Brokers and partitions are read from the
metadata, which any node can answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftlog.admin.client.client import AdminClient
from kraftlog.commands import node_status
from kraftlog.storage.full_disk import ADVICE

COLUMNS: Final = ("Of", "Name", "State", "Detail")

SHOWN_MAX: Final = 20
"""At most this many partitions of each kind are named, as in `QUERIES`; the others are counted."""

NO_QUORUM: Final = "no-quorum"
NOT_ANSWERING: Final = "not-answering"
FENCED: Final = "fenced"
SHUTTING_DOWN: Final = "shutting-down"
DISK_FULL: Final = "disk-full"
DIRECTORY_OFFLINE: Final = "offline"
NO_LEADER: Final = "no-leader"
UNDER_MIN_ISR: Final = "under-min-isr"
UNDER_REPLICATED: Final = "under-replicated"

QUERIES: Final[Mapping[str, str]] = {
    "totals": "SELECT (SELECT count(*) FROM brokers), (SELECT count(*) FROM partitions)",
    "brokers": "SELECT broker_id, fenced FROM brokers WHERE fenced OR in_controlled_shutdown ORDER BY broker_id",
    "directories": "SELECT broker_id, directory, is_online, is_full, replicas, leaders FROM log_directories"
    " WHERE is_full OR (NOT is_online AND directory IS NOT NULL AND directory != 'AAAAAAAAAAAAAAAAAAAAAA')"
    " ORDER BY broker_id, directory",
    NO_LEADER: "SELECT topic, partition_id, 'in sync last: ' || isr, count(*) OVER () FROM offline_partitions"
    " ORDER BY topic, partition_id LIMIT 20",
    UNDER_MIN_ISR: "SELECT topic, partition_id, 'in sync: ' || isr || ', needed: ' || min_isr, count(*) OVER ()"
    " FROM under_min_isr_partitions ORDER BY topic, partition_id LIMIT 20",
    UNDER_REPLICATED: "SELECT topic, partition_id, 'missing: ' || missing, count(*) OVER ()"
    " FROM under_replicated_partitions ORDER BY topic, partition_id LIMIT 20",
}
Rows = Sequence[Sequence[Any]]

PARTITION_STATES: Final = (NO_LEADER, UNDER_MIN_ISR, UNDER_REPLICATED)


class Finding(NamedTuple):
    """A problem with a node, broker, log directory or partition."""

    of: str
    """node, broker, directory or partition."""
    name: str
    state: str
    detail: str

    def row(self) -> dict[str, str]:
        """For a table."""
        return dict(zip(COLUMNS, self, strict=True))


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a cluster at one moment."""

    findings: Sequence[Finding]
    nodes: int
    brokers: int
    partitions: int

    @property
    def is_healthy(self) -> bool:
        """Whether everything is well."""
        return not self.findings

    def summary(self) -> str:
        """A summary in one line."""
        counted = f"{self.nodes} nodes, {self.brokers} brokers, {self.partitions} partitions"
        return f"healthy: {counted}" if self.is_healthy else f"not healthy: {len(self.findings)} findings; {counted}"


async def examine(endpoints: Sequence[Endpoint]) -> Health:
    """Ask the nodes. Raises ApiError if none answers."""
    found = await node_status.ask_all(endpoints)
    async with AdminClient(list(found.nodes()) or list(endpoints)) as client:
        answers = await asyncio.gather(*map(client.query, QUERIES.values()))
    return health_of(found, {name: answer.rows for name, answer in zip(QUERIES, answers, strict=True)})


def health_of(found: node_status.Findings, rows: Mapping[str, Rows]) -> Health:
    """The states that the nodes reported, and a node's answers to `QUERIES`."""
    ((brokers, partitions),) = rows["totals"]
    findings = [*_of_nodes(found), *_of_brokers(rows["brokers"]), *_of_directories(rows["directories"])]
    for state in PARTITION_STATES:
        findings += _of_partitions(state, rows[state])
    return Health(findings, len(node_status.rows(found)), brokers, partitions)


def _of_nodes(found: node_status.Findings) -> Iterator[Finding]:
    if not found.has_quorum():
        yield Finding("quorum", "", NO_QUORUM, "there is no leader that a majority of the voters follow")
    for row in node_status.rows(found):
        name = str(row["Address"] if row["Node"] is None else row["Node"])
        wrong = [condition for condition in row["Condition"] if condition != node_status.NOT_ASKED]
        if node_status.NO_ANSWER in wrong:
            where = "" if row["Address"] is None else f"at {row['Address']}"
            yield Finding("node", name, NOT_ANSWERING, where)
        elif wrong:
            yield Finding("node", name, wrong[0], "; ".join(wrong[1:]))


def _of_brokers(rows: Rows) -> Iterator[Finding]:
    for broker_id, is_fenced in rows:
        if is_fenced:
            yield Finding(
                "broker", str(broker_id), FENCED, "its heartbeats do not arrive, or it is starting: see its log"
            )
        else:
            yield Finding("broker", str(broker_id), SHUTTING_DOWN, "others lead its partitions until it is back")


def _of_directories(rows: Rows) -> Iterator[Finding]:
    for broker_id, directory, is_online, is_full, replicas, leaders in rows:
        name = f"{broker_id}: {directory}"
        if is_full:
            path = f"`kraftlog log-dirs --broker {broker_id}` shows its path"
            detail = f"{leaders} of its {replicas} replicas lead; {path}; make room: {ADVICE}"
            yield Finding("directory", name, DISK_FULL, detail)
        elif not is_online:
            yield Finding("directory", name, DIRECTORY_OFFLINE, f"{replicas} replicas; see the log of the broker")


def _of_partitions(state: str, rows: Rows) -> Iterator[Finding]:
    for topic, partition_id, detail, _ in rows:
        yield Finding("partition", f"{topic}-{partition_id}", state, str(detail))
    if rows and (others := rows[0][3] - len(rows)) > 0:
        yield Finding("partition", f"{others:,} more", state, "")


def unreachable(error: ApiError) -> Health:
    """The findings when no node answers."""
    return Health([Finding("quorum", "", NOT_ANSWERING, str(error))], 0, 0, 0)
