"""`kraftlog health`: what is not well, in one list."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from kraftbase.sentinels import NO_LEADER as NOBODY
from kraftlog.commands.health import (
    DIRECTORY_OFFLINE,
    DISK_FULL,
    FENCED,
    NO_LEADER,
    NO_QUORUM,
    NOT_ANSWERING,
    QUERIES,
    SHOWN_MAX,
    SHUTTING_DOWN,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    Health,
    health_of,
)
from kraftlog.commands.node_status import Findings
from kraftlog.storage.full_disk import ADVICE
from kraftpb.v1.metadata_pb2 import MetadataRecord
from tests.kraftlog.commands.test_node_status import LEADER, answer, endpoint, found
from tests.statemachine.builders import an_id, broker, config, topic
from tests.statemachine.partitions import TOPIC, a_partition, leaving
from tests.statemachine.states import database_of


def health(records: Iterable[MetadataRecord], nodes: Findings | None = None) -> Health:
    """Of a cluster with these records; all nodes are well unless they are given."""
    whole = nodes or found(LEADER, answer(1, "follower", 2), answer(3, "follower", 2))
    connection: sqlite3.Connection = database_of(*records)
    return health_of(whole, {name: connection.execute(query).fetchall() for name, query in QUERIES.items()})


def brief(of: Health) -> list[tuple[str, str, str]]:
    return [(finding.of, finding.name, finding.state) for finding in of.findings]


BROKERS = [broker(1), broker(2), broker(3)]
WELL = [*BROKERS, topic(TOPIC, 1), MetadataRecord(partition=a_partition((1, 2, 3)))]


def test_all_is_well() -> None:
    well = health(WELL)
    assert well.is_healthy
    assert well.summary() == "healthy: 3 nodes, 3 brokers, 1 partitions"


def test_nodes_that_do_not_answer_and_no_quorum() -> None:
    ill = health(WELL, found(LEADER, silent=(endpoint(1), endpoint(3))))
    assert brief(ill) == [
        ("quorum", "", NO_QUORUM),
        ("node", "1", NOT_ANSWERING),
        ("node", "3", NOT_ANSWERING),
    ]
    assert ill.findings[1].detail == "at localhost:9091"


def test_a_node_that_recovers() -> None:
    ill = health(WELL, found(LEADER, answer(1, "follower", 2), answer(3, "follower", 2, recovering=True)))
    assert brief(ill) == [("node", "3", "recovering")]


def test_brokers_and_their_disks() -> None:
    full = broker(1)
    full.register_broker.full_log_dirs.append(an_id(901))
    lost = a_partition((1, 2, 3), directories=[an_id(901), an_id(902), an_id(999)])
    ill = health([full, broker(2, fenced=True), leaving(3), topic(TOPIC, 1), MetadataRecord(partition=lost)])
    states = [state for _, _, state in brief(ill)]
    assert states == [FENCED, SHUTTING_DOWN, DISK_FULL, DIRECTORY_OFFLINE]
    assert "1 of its 1 replicas lead" in ill.findings[2].detail
    assert "`kraftlog log-dirs --broker 1` shows its path" in ill.findings[2].detail
    assert ADVICE in ill.findings[2].detail


def test_partitions_of_each_kind_are_named_up_to_a_number() -> None:
    many = [
        MetadataRecord(partition=a_partition((1, 2, 3), (1,), partition_id=number)) for number in range(SHOWN_MAX + 5)
    ]
    offline = MetadataRecord(partition=a_partition((1, 2), (2,), NOBODY, partition_id=99))
    ill = health([*BROKERS, topic(TOPIC, 1), config(TOPIC, "min.insync.replicas", "2"), *many, offline])
    states = [finding.state for finding in ill.findings]
    assert states.count(NO_LEADER) == 1
    assert states.count(UNDER_MIN_ISR) == states.count(UNDER_REPLICATED) == SHOWN_MAX + 1
    assert [finding.name for finding in ill.findings if "more" in finding.name] == ["6 more", "6 more"]
    assert ill.findings[0].name == f"{TOPIC}-99"
