"""`kraftlog partitions`, `elect`, `reassign` and `tier`: what they read, print and refuse, and a cluster that obeys."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftbase.ids import id_to_bytes, id_to_text
from kraftbase.partition import TopicPartition
from kraftlog.admin.client.client import AdminClient, Alteration, NewTopic
from kraftlog.broker.lifecycle import BrokerLifecycle, living_brokers
from kraftlog.commands import partition_admin, reassignments
from kraftlog.commands.partition_admin import PartitionFilter, parse_broker_ids, parse_topics, partition_rows
from kraftlog.commands.partition_files import reassignment_json
from kraftpb.v1.admin_pb2 import Operation
from statemachine.query.descriptions import ConfigValue, PartitionDescription, TopicDescription
from statemachine.query.partition_descriptions import (
    ElectionType,
    IsrAlteration,
    IsrBroker,
    LeaderEpochStart,
    PartitionOutcome,
    RemoteSegment,
)
from tests.kraftlog.admin.admin_nodes import AdminCluster, admin_cluster
from tests.kraftlog.command_line import Finished, Run, kraftlog
from tests.kraftlog.partitions import a_partition, an_entry, written
from tests.statemachine.builders import TOPIC, an_id
from tests.statemachine.remote_logs import COPY_FINISHED, segment, update

NOWHERE = "127.0.0.1:1"
AT_NOWHERE = ("--bootstrap-server", NOWHERE)


# --- arguments --------------------------------------------------------------------------------------------------------


def test_lists_of_topics_and_brokers_are_read() -> None:
    assert parse_topics("a") == ["a"]
    assert parse_topics("b,a") == ["b", "a"]
    assert parse_broker_ids("3,0,2147483647") == [3, 0, 2**31 - 1]


@pytest.mark.parametrize("text", ["", ",", "a,", ",a", "a,,b"])
def test_a_list_of_topics_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write names with commas"):
        parse_topics(text)


@pytest.mark.parametrize("text", ["", "a", "1,", "1;2", "-1", "1.5", "2147483648", "1, 2"])
def test_what_are_no_brokers_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write their ids with commas"):
        parse_broker_ids(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["partitions"], "describe"),
        (["partitions", "describe"], "Missing option '--bootstrap-server'"),
        (["partitions", "describe", *AT_NOWHERE, "--leader", "-1"], "--leader"),
        (["partitions", "describe", *AT_NOWHERE, "--leader", str(2**31)], "--leader"),
        (["partitions", "describe", *AT_NOWHERE, "--output", "yaml"], "'yaml'"),
        (["partitions", "add", *AT_NOWHERE, "--count", "2"], "Missing argument 'TOPIC'"),
        (["partitions", "add", "t", *AT_NOWHERE], "Missing option '--count'"),
        (["partitions", "add", "t", *AT_NOWHERE, "--count", "0"], "--count"),
        (["partitions", "add", "t", *AT_NOWHERE, "--count", str(2**31)], "--count"),
        (["elect", *AT_NOWHERE, "--all-topic-partitions"], "Missing option '--type'"),
        (["elect", *AT_NOWHERE, "--type", "any", "--all-topic-partitions"], "'any'"),
        (["elect", *AT_NOWHERE, "--type", "preferred"], "name the partitions with exactly one of these"),
        (["elect", *AT_NOWHERE, "--type", "unclean", "--topic", "t", "--all-topic-partitions"], "exactly one of these"),
        (["elect", *AT_NOWHERE, "--type", "unclean", "--path", "f", "--all-topic-partitions"], "exactly one of these"),
        (["elect", *AT_NOWHERE, "--type", "unclean", "--path", "f", "--partition", "0"], "exactly one of these"),
        (["elect", *AT_NOWHERE, "--type", "unclean", "--topic", "t"], "give both"),
        (["elect", *AT_NOWHERE, "--type", "unclean", "--partition", "0"], "give both"),
        (["elect", *AT_NOWHERE, "--type", "unclean", "--topic", "t", "--partition", "-1"], "--partition"),
        (["elect", *AT_NOWHERE, "--type", "unclean", "--path", ""], "--path"),
        (["reassign", "generate", *AT_NOWHERE, "--brokers", "1"], "--topics / --topics-file"),
        (
            ["reassign", "generate", *AT_NOWHERE, "--brokers", "1", "--topics", "t", "--topics-file", "f"],
            "give one of them: the topics to move",
        ),
        (["reassign", "generate", *AT_NOWHERE, "--brokers", "1", "--topics-file", ""], "--topics-file"),
        (["reassign", "generate", *AT_NOWHERE, "--topics", "a"], "Missing option '--brokers'"),
        (["reassign", "generate", *AT_NOWHERE, "--topics", "a,", "--brokers", "1"], "write names with commas"),
        (["reassign", "generate", *AT_NOWHERE, "--topics", "a,a", "--brokers", "1"], "topic a appears more than once"),
        (["reassign", "generate", *AT_NOWHERE, "--topics", "a", "--brokers", "1,x"], "as in 1,2,3"),
        (
            ["reassign", "generate", *AT_NOWHERE, "--topics", "a", "--brokers", "1,1"],
            "broker 1 appears more than once",
        ),
        *[
            (["reassign", command, *AT_NOWHERE, *options], words)
            for command in ("execute", "verify", "cancel")
            for options, words in (((), "Missing option '--file'"), (("--file", ""), "--file"))
        ],
        (["tier", "segments", *AT_NOWHERE], "Missing argument 'TOPIC'"),
        (["tier", "segments", "t", *AT_NOWHERE], "Missing argument 'PARTITION'"),
        (["tier", "segments", "t", "x", *AT_NOWHERE], "'PARTITION'"),
        (["tier", "segments", "t", str(2**31), *AT_NOWHERE], "PARTITION"),
        (["tier", "segments", "t", "0", *AT_NOWHERE, "--leader-epoch", "-1"], "--leader-epoch"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(run: Run, arguments: list[str], words: str) -> None:
    said = run(*arguments)
    assert (said.code, said.output) == (2, "")
    assert words in said.errors
    if len(arguments) > 1:
        assert re.fullmatch(r"error: .*; see kraftlog.* --help\n", said.errors), said.errors


def test_nobody_there_is_one_line(run: Run, tmp_path: Path) -> None:
    file = written(tmp_path / "moves.json", reassignment_json({TopicPartition("t", 0): [1]}))
    for arguments in (
        ("partitions", "describe"),
        ("partitions", "add", "t", "--count", 2),
        ("elect", "--type", "preferred", "--all-topic-partitions"),
        ("reassign", "generate", "--topics", "t", "--brokers", "1"),
        ("reassign", "execute", "--file", file),
        ("reassign", "verify", "--file", file),
        ("reassign", "cancel", "--file", file),
        ("reassign", "list"),
        ("tier", "segments", "t", 0),
    ):
        assert run(*arguments, *AT_NOWHERE).is_error(ErrorCode.BROKER_NOT_AVAILABLE, NOWHERE)


# --- rows -------------------------------------------------------------------------------------------------------------


def partition_ids(wanted: PartitionFilter, *partitions: PartitionDescription, min_isr: str | None = None) -> list[int]:
    configs = () if min_isr is None else (ConfigValue("min.insync.replicas", min_isr),)
    topic = TopicDescription("t", id_to_text(an_id(1)), partitions, configs)
    return [row["Partition"] for row in partition_rows([topic], wanted, min_isr_default=2)]


def test_each_filter_takes_the_partitions_that_it_is_about() -> None:
    partitions = (
        a_partition(0),
        a_partition(1, isr=[1]),
        a_partition(2, leader=-1, isr=[]),
        a_partition(3, replicas=[1, 2, 3], adding=[3]),
        a_partition(4, leader=2, replicas=[2, 1], isr=[2]),
        a_partition(5, replicas=[1, 2, 3], removing=[3]),
    )
    assert partition_ids(PartitionFilter(), *partitions) == [0, 1, 2, 3, 4, 5]
    assert partition_ids(PartitionFilter(under_replicated=True), *partitions) == [1, 2, 4]
    assert partition_ids(PartitionFilter(unavailable=True), *partitions) == [2]
    assert partition_ids(PartitionFilter(under_min_isr=True), *partitions) == [1, 2, 4]
    assert partition_ids(PartitionFilter(under_min_isr=True), *partitions, min_isr="1") == [2]
    assert partition_ids(PartitionFilter(leader=2), *partitions) == [4]
    assert partition_ids(PartitionFilter(under_replicated=True, leader=1), *partitions) == [1]


def test_db22_no_more_have_to_be_in_sync_than_there_are_replicas() -> None:
    """DB-22: of two numbers the smaller one counts."""
    partitions = (a_partition(0, replicas=[1], isr=[1]), a_partition(1, replicas=[1, 2], isr=[1]), a_partition(2))
    assert partition_ids(PartitionFilter(under_min_isr=True), *partitions, min_isr="3") == [1]
    assert partition_ids(PartitionFilter(at_min_isr=True), *partitions, min_isr="3") == [0, 2]


def test_the_status_goes_by_replicas_their_order_and_what_is_under_way() -> None:
    at = TopicPartition("t", 0)
    moving = a_partition(replicas=[2, 3, 1], adding=[3], removing=[1])
    for wanted, partition, status in (
        ([1, 2], a_partition(), "completed"),
        ([2, 1], a_partition(), "different"),
        ([2, 3], moving, "in progress"),
        ([2, 3, 1], moving, "different"),
        ([1, 2, 3], a_partition(replicas=[1, 2, 3], adding=[3]), "in progress"),
    ):
        assert reassignments.verified_row(at, wanted, partition)["Status"] == status
    assert reassignments.original_replicas(moving) == [2, 1]
    assert reassignments.target_replicas(moving) == [2, 3]


def test_an_outcome_names_kafkas_error_only_where_it_failed() -> None:
    harmless = {ErrorCode.ELECTION_NOT_NEEDED: "not needed"}
    rows = [
        partition_admin.outcome_row(PartitionOutcome("t", 0, code, message), "elected", harmless)
        for code, message in (
            (ErrorCode.NONE, ""),
            (ErrorCode.ELECTION_NOT_NEEDED, "it leads"),
            (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "it is away"),
        )
    ]
    assert [(row["Result"], row["Error"], row["Reason"]) for row in rows] == [
        ("elected", None, None),
        ("not needed", None, "it leads"),
        ("failed", "PREFERRED_LEADER_NOT_AVAILABLE", "it is away"),
    ]


def test_a_remote_segment_is_a_row() -> None:
    epochs = (LeaderEpochStart(0, 5), LeaderEpochStart(3, 7))
    copy = RemoteSegment("T", 1, "S", 5, 9, epochs, 100, 1, 2, 11, 12, b"\x0f", True)
    assert partition_admin.segment_row(copy) == {
        "SegmentId": "S",
        "StartOffset": 5,
        "EndOffset": 9,
        "LeaderEpochs": {"0": 5, "3": 7},
        "State": "COPY_FINISHED",
        "SizeBytes": 100,
        "BrokerId": 2,
        "MaxTimestamp": 11,
        "EventTimestamp": 12,
        "CustomMetadata": "0f",
        "TxnIndexEmpty": True,
    }


# --- the results ------------------------------------------------------------------------------------------------------


AT: TopicPartition = TopicPartition("t", 0)


def answered(monkeypatch: pytest.MonkeyPatch, name: str, answer: object) -> None:
    """Have a function of `reassignments` return `answer`, or raise it, without a cluster."""

    async def instead(*arguments: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(reassignments, name, instead)


def test_the_exit_code_is_1_if_any_partition_cannot_be_moved(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "moves.json", an_entry())
    failed = partition_admin.outcome_row(PartitionOutcome("t", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no"), "", {})
    answered(monkeypatch, "present_assignment", {AT: [3]})
    answered(monkeypatch, "execute", [failed])
    said = run("reassign", "execute", "--file", file, *AT_NOWHERE)
    assert (said.code, said.errors) == (1, "")
    lines = said.output.splitlines()
    assert json.loads(lines[1]) == reassignment_json({AT: [3]})
    assert lines[-1].split() == ["t", "0", "failed", "INVALID_REPLICA_ASSIGNMENT", "no"]
    answered(monkeypatch, "cancel", [failed])
    assert run("reassign", "cancel", "--file", file, *AT_NOWHERE).code == 1


@pytest.mark.parametrize("options", [(), ("--output", "json")])
def test_the_way_back_is_told_though_nobody_knows_what_came_of_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    file = written(tmp_path / "moves.json", an_entry())
    answered(monkeypatch, "present_assignment", {AT: [3]})
    answered(monkeypatch, "execute", ApiError(ErrorCode.REQUEST_TIMED_OUT, "who knows"))
    said = run("reassign", "execute", "--file", file, *AT_NOWHERE, *options)
    assert (said.code, said.errors) == (1, "error: REQUEST_TIMED_OUT: who knows\n")
    told = json.loads(said.output)["Current"] if options else json.loads(said.output.splitlines()[1])
    assert told == reassignment_json({AT: [3]})


def test_a_proposal_is_made_of_the_topics_in_a_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    async def propose(*arguments: object) -> reassignments.Proposal:
        asked.extend(arguments[1:])
        return reassignments.Proposal({AT: [1]}, {AT: [2]}, ())

    monkeypatch.setattr(reassignments, "propose", propose)
    file = written(tmp_path / "topics.json", {"version": 1, "topics": [{"topic": "t"}, {"topic": "u"}]})
    said = run("reassign", "generate", "--topics-file", file, "--brokers", "2", *AT_NOWHERE, "--output", "json")
    assert said.json()["Proposed"] == reassignment_json({AT: [2]})
    assert asked == [["t", "u"], [2]]


def test_a_proposal_notes_brokers_that_are_fenced(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, "propose", reassignments.Proposal({AT: [1]}, {AT: [2]}, (7,)))
    said = run("reassign", "generate", "--topics", "t", "--brokers", "2,7", *AT_NOWHERE, "--output", "json")
    assert said.code == 0
    assert said.errors.startswith("Broker 7 is fenced or shutting down; it gets replicas only if")
    assert json.loads(said.output) == {
        "Current": reassignment_json({AT: [1]}),
        "Proposed": reassignment_json({AT: [2]}),
    }


# --- a cluster --------------------------------------------------------------------------------------------------------


class Commands:
    """Runs commands in processes of their own while the cluster and its brokers live in this one."""

    def __init__(self, cluster: AdminCluster) -> None:
        self._address = str(cluster.endpoints[1])

    async def __call__(self, *arguments: object) -> Finished:
        return await asyncio.to_thread(kraftlog, *arguments, "--bootstrap-server", self._address)

    async def json(self, *arguments: object, code: int = 0) -> Any:
        """What the command printed as JSON, ending with that exit code."""
        finished = await self(*arguments, "--output", "json")
        assert (finished.code, finished.errors) == (code, ""), finished
        return json.loads(finished.output)


@asynccontextmanager
async def living_cluster(
    base: Path, broker_ids: Sequence[int]
) -> AsyncIterator[tuple[Commands, AdminClient, list[BrokerLifecycle]]]:
    """A node with brokers that are unfenced, a client of it, and commands against it."""
    async with (
        admin_cluster(base) as cluster,
        AdminClient([cluster.endpoints[1]], timeout_ms=20_000) as client,
        living_brokers(client, broker_ids) as brokers,
    ):
        yield Commands(cluster), client, brokers


async def set_isr(client: AdminClient, broker_epoch: int, topic: str, partition_id: int, isr: Sequence[int]) -> None:
    """Have the leader of a partition set its ISR."""
    (described,) = (await client.describe_topics([topic])).topics
    partition = described.partitions[partition_id]
    alteration = IsrAlteration(
        described.topic_id,
        partition_id,
        partition.leader_epoch,
        partition.partition_epoch,
        tuple(IsrBroker(broker_id) for broker_id in isr),
    )
    (altered,) = await client.alter_partition(partition.leader, broker_epoch, [alteration])
    assert (altered.code, altered.isr) == (ErrorCode.NONE, tuple(isr)), altered
    (stale,) = await client.alter_partition(partition.leader, broker_epoch, [alteration])
    assert stale.code is ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.process
async def test_partitions_are_described_added_and_led_by_whom_an_election_finds(tmp_path: Path) -> None:
    async with living_cluster(tmp_path, [1, 2, 3]) as (ask, client, (first, *_)):
        await client.create_topics([NewTopic("clicks", assignments={0: [1, 2], 1: [2, 1]}), NewTopic("views")])
        await client.alter_configs([Alteration(TOPIC, "clicks", "min.insync.replicas", "2")])
        added = await ask("partitions", "add", "clicks", "--count", 3)
        assert added.lines() == ["Topic clicks has 3 partitions now."]
        again = await ask("partitions", "add", "clicks", "--count", 3)
        assert again.is_error(ErrorCode.INVALID_PARTITIONS, "has 3 partitions, and 3 is not an increase")
        rows = await ask.json("partitions", "describe")
        assert [(row["Topic"], row["Partition"]) for row in rows] == [
            *[("clicks", n) for n in range(3)],
            ("views", 0),
        ]
        assert rows[0] == {
            "Topic": "clicks",
            "Partition": 0,
            "Leader": 1,
            "LeaderEpoch": 0,
            "Replicas": [1, 2],
            "Isr": [1, 2],
            "Elr": [],
            "LastKnownElr": [],
            "Damaged": [],
            "Adding": [],
            "Removing": [],
        }
        await set_isr(client, first.broker_epoch, "clicks", 0, [1])
        for option in ("--under-replicated", "--under-min-isr"):
            found = await ask.json("partitions", "describe", option, "--leader", 1)
            assert [(row["Topic"], row["Partition"], row["Isr"]) for row in found] == [("clicks", 0, [1])]
        assert await ask.json("partitions", "describe", "clicks", "--unavailable") == []
        (topic,) = await ask.json("topics", "describe", "clicks")
        assert [{"Topic": "clicks", **of} for of in topic["Partitions"]] == await ask.json(
            "partitions", "describe", "clicks"
        )
        assert topic["Partitions"][0]["Elr"] == [2]
        table = (await ask("partitions", "describe", "clicks")).lines()
        assert table[0].split()[-5:] == ["Elr", "LastKnownElr", "Damaged", "Adding", "Removing"]
        assert (await ask("topics", "describe", "clicks")).lines()[1:] == table
        assert table[2].split() == ["clicks", "0", "1", "0", "1,", "2", "1", "2"]  # 2 is eligible

        await client.alter_partition_reassignments({TopicPartition("clicks", 0): [2, 1]})
        elect = ("elect", "--type", "preferred")
        (failed,) = await ask.json(*elect, "--topic", "clicks", "--partition", 0, code=1)
        assert (failed["Result"], failed["Error"]) == ("failed", "PREFERRED_LEADER_NOT_AVAILABLE")
        assert "broker 2, is not active or not in sync" in failed["Reason"]
        await set_isr(client, first.broker_epoch, "clicks", 0, [1, 2])
        file = written(
            tmp_path / "election.json", {"partitions": [{"topic": "clicks", "partition": n} for n in (0, 1)]}
        )
        elected, not_needed = await ask.json(*elect, "--path", file)
        assert (elected["Result"], not_needed["Result"]) == ("elected", "not needed")
        assert not_needed["Reason"] == "partition 1 of topic 'clicks' has its preferred leader, broker 2"
        everywhere = await ask(*elect, "--all-topic-partitions")
        assert everywhere.lines() == ["No partition needs an election."]
        none = await client.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("nowhere", 0)])
        assert [outcome.code for outcome in none] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.process
async def test_remote_segments_are_listed_and_found(tmp_path: Path) -> None:
    async with living_cluster(tmp_path, [1]) as (ask, client, _):
        (topic,) = await client.create_topics([NewTopic("clicks")])
        first, second = segment(1, 0, 9), segment(2, 10, 19, {0: 10, 2: 15}, custom_metadata=b"\x01")
        finish = update(1, COPY_FINISHED)
        for request in (first, second, finish):
            request.topic_id = id_to_bytes(topic.topic_id)
        for operation in (
            Operation(add_remote_log_segment=first),
            Operation(add_remote_log_segment=second),
            Operation(update_remote_log_segment=finish),
        ):
            assert (await client.execute(operation)).error_code == 0
        found = await client.find_remote_log_segment(topic.topic_id, 0, 0, 5)
        assert found.segment is not None
        assert (found.segment.segment_id, found.highest_offset) == (id_to_text(first.segment_id), 9)
        missing = await client.find_remote_log_segment(topic.topic_id, 0, 2, 15)
        assert (missing.segment, missing.highest_offset) == (None, None)
        listed = await ask.json("tier", "segments", "clicks", 0)
        assert (listed["Topic"], listed["TopicId"], listed["SizeBytes"]) == ("clicks", topic.topic_id, 100)
        assert [(row["StartOffset"], row["State"], row["CustomMetadata"]) for row in listed["Segments"]] == [
            (0, "COPY_FINISHED", None),
            (10, "COPY_STARTED", "01"),
        ]
        assert listed["Segments"][1]["LeaderEpochs"] == {"0": 10, "2": 15}
        lines = (await ask("tier", "segments", "clicks", 0, "--leader-epoch", 2)).lines()
        assert lines[2].split()[:5] == [id_to_text(second.segment_id), "10", "19", "0=10,", "2=15"]
        assert lines[-1] == "The finished copies have 0 bytes."
        said = await ask("tier", "segments", "clicks", 1)
        assert said.is_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "has no partition 1; it has 1, from 0 on")
