"""Every command that asks a running cluster: what it prints, what it refuses, from any node's address."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.uuids import uuid_from_text
from kraftlog.commands.quorum import REPLICATION_COLUMNS
from kraftlog.local.cluster import LocalCluster
from tests.kraftlog.command_line import Run, command, environment
from tests.process.conftest import addresses

pytestmark = pytest.mark.process


def test_a_topic_is_created_listed_described_and_deleted(ask) -> None:
    created = ask(
        *("topics", "create", "life", "--partitions", 2, "--replication-factor", 3, "--config", "retention.ms=5")
    )
    assert created.lines() == ["Created topic life with 2 partitions, replication factor 3."]

    (listed,) = [topic for topic in ask("topics", "list", "--output", "json").json() if topic["Topic"] == "life"]
    assert (listed["Partitions"], listed["ReplicationFactor"]) == (2, 3)
    uuid_from_text(listed["TopicId"])

    (described,) = ask("topics", "describe", "life", "--output", "json").json()
    assert described["TopicId"] == listed["TopicId"]
    assert described["Configs"] == {"retention.ms": "5"}
    assert [partition["Partition"] for partition in described["Partitions"]] == [0, 1]
    for partition in described["Partitions"]:
        assert sorted(partition["Replicas"]) == sorted(partition["Isr"]) == [1, 2, 3]
        assert partition["Leader"] == partition["Replicas"][0]

    table = ask("topics", "describe", "life").lines()
    assert table[0].startswith(f"Topic: life  TopicId: {listed['TopicId']}  PartitionCount: 2  ReplicationFactor: 3")

    assert ask("topics", "delete", "life").lines() == ["Deleted topic life."]
    assert ask("topics", "describe", "life").is_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "life")


def test_replicas_can_be_assigned_by_hand(ask) -> None:
    assert ask("topics", "create", "by-hand", "--replica-assignment", "2:1,3:2").code == 0
    (described,) = ask("topics", "describe", "by-hand", "--output", "json").json()
    assert [partition["Replicas"] for partition in described["Partitions"]] == [[2, 1], [3, 2]]


def test_a_topic_that_exists_is_an_error_unless_told_otherwise(ask) -> None:
    assert ask("topics", "create", "twice", "--replication-factor", 1).code == 0
    again = ("topics", "create", "twice", "--replication-factor", 1)
    assert ask(*again).is_error(ErrorCode.TOPIC_ALREADY_EXISTS, "twice")
    assert ask(*again, "--if-not-exists").lines() == ["Topic twice already exists."]


def test_deleting_a_topic_that_does_not_exist_is_an_error_unless_told_otherwise(ask) -> None:
    assert ask("topics", "delete", "nobody").is_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nobody")
    assert ask("topics", "delete", "nobody", "--if-exists").lines() == ["Topic nobody does not exist."]


def test_what_was_deleted_before_one_that_cannot_be_is_told(ask) -> None:
    assert ask("topics", "create", "goes", "--replication-factor", 1).code == 0
    said = ask("topics", "delete", "goes", "nobody")
    assert (said.code, said.output) == (1, "Deleted topic goes.\n")
    assert said.errors.startswith("error: UNKNOWN_TOPIC_OR_PARTITION: ")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["bad name"], ErrorCode.INVALID_TOPIC_EXCEPTION, "bad name"),
        (["t", "--replication-factor", 4], ErrorCode.INVALID_REPLICATION_FACTOR, "4"),
        (["t", "--partitions", 0], ErrorCode.INVALID_PARTITIONS, "0"),
        (["t", "--replica-assignment", "1:1"], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "1"),
        (["t", "--replica-assignment", "9"], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "9"),
        (["t", "--config", "no.such.config=1"], ErrorCode.INVALID_CONFIG, "no.such.config"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_by_kafkas_name_and_nothing_is_written(
    ask, options: list[object], code: ErrorCode, words: str
) -> None:
    before = ask("topics", "list", "--output", "json").json()
    assert ask("topics", "create", *options).is_error(code, words)
    assert ask("topics", "list", "--output", "json").json() == before


def test_brokers_are_listed(ask) -> None:
    brokers = ask("brokers", "list", "--output", "json").json()
    assert [broker["BrokerId"] for broker in brokers] == [1, 2, 3]
    (endpoint,) = brokers[0]["Endpoints"]
    assert endpoint.startswith("PLAINTEXT://localhost:")
    heading, *_ = ask("brokers", "list").lines()
    assert heading.split() == ["BrokerId", "BrokerEpoch", "Endpoints", "Rack", "Fenced", "InControlledShutdown"]


def test_configs_are_altered_and_described(ask) -> None:
    assert ask("topics", "create", "configured", "--replication-factor", 1).code == 0
    entity = ("--entity-type", "topics", "--entity-name", "configured")
    altered = ask("configs", "alter", *entity, "--add-config", "retention.ms=7")
    assert altered.lines() == ["Altered 1 config of topic configured."]
    assert ask("configs", "describe", *entity, "--output", "json").json() == [{"Name": "retention.ms", "Value": "7"}]
    assert ask("configs", "alter", *entity, "--delete-config", "retention.ms").code == 0
    assert ask("configs", "describe", *entity, "--output", "json").json() == []


def test_the_default_of_all_brokers_is_altered(ask) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "")
    added = ("--add-config", "log.retention.ms=7", "--add-config", "log.segment.bytes=1048576")
    assert ask("configs", "alter", *entity, *added).lines() == ["Altered 2 configs of the brokers' default."]
    removed = ("--delete-config", "log.retention.ms", "--delete-config", "log.segment.bytes")
    assert ask("configs", "alter", *entity, *removed).code == 0


def test_configs_of_a_topic_that_does_not_exist_cannot_be_altered(ask) -> None:
    refused = ask(
        *("configs", "alter", "--entity-type", "topics", "--entity-name", "nobody"),
        *("--add-config", "retention.ms=7"),
    )
    assert refused.is_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nobody")


def test_any_nodes_address_will_do_also_from_the_environment(
    run: Run, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node_id in cluster.node_ids:
        monkeypatch.setenv("KRAFTLOG_BOOTSTRAP_SERVER", str(cluster.endpoint(node_id)))
        assert run("topics", "create", f"through-{node_id}", "--replication-factor", 1).code == 0
        names = [topic["Topic"] for topic in run("topics", "list", "--output", "json").json()]
        assert f"through-{node_id}" in names


def test_ot02_status_shows_the_quorum(ask, cluster: LocalCluster) -> None:
    status = ask("quorum", "describe", "--status", "--output", "json").json()
    assert status["ClusterId"] == cluster.cluster_id
    assert status["LeaderId"] in cluster.voter_ids
    assert [voter["id"] for voter in status["CurrentVoters"]] == cluster.voter_ids
    assert sorted(observer["id"] for observer in status["CurrentObservers"]) == [4, 5]
    assert status["HighWatermark"] > 0
    lines = ask("quorum", "describe", "--status").lines()
    assert [line.partition(":")[0] for line in lines] == list(status)


def test_ot03_replication_shows_every_replica(ask) -> None:
    rows = ask("quorum", "describe", "--replication", "--output", "json").json()
    assert [row["Status"] for row in rows] == ["Leader", "Follower", "Follower", "Observer", "Observer"]
    heading, *_ = ask("quorum", "describe", "--replication").lines()
    assert tuple(heading.split()) == REPLICATION_COLUMNS
    ages = ask("quorum", "describe", "--replication", "--human-readable", "--output", "json").json()
    assert ages[1]["LastFetchTimestamp"].endswith(" ms ago")


def test_watch_prints_committed_records_as_json_lines_without_a_gap(ask) -> None:
    until = ask("quorum", "describe", "--status", "--output", "json").json()["HighWatermark"]
    records = [json.loads(line) for line in ask("watch", "--from", 0, "--until", until).lines()]
    assert [record["offset"] for record in records] == list(range(until))
    assert records[0]["type"] == "LEADER_CHANGE"
    registered = [record["data"]["brokerId"] for record in records if record["type"] == "REGISTER_BROKER_RECORD"]
    assert registered == [1, 2, 3]
    limited = [json.loads(line) for line in ask("watch", "--from", 2, "--limit", 1).lines()]
    assert limited == [records[2]]


def test_watch_goes_on_with_what_is_committed_later(ask, cluster: LocalCluster) -> None:
    watching = subprocess.Popen(
        command("watch", "--bootstrap-server", addresses(cluster)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with watching:
        assert json.loads(watching.stdout.readline())["offset"] == 0
        assert ask("topics", "create", "watched", "--replication-factor", 1).code == 0
        for line in watching.stdout:
            record = json.loads(line)
            if record["type"] == "TOPIC_RECORD" and record["data"]["name"] == "watched":
                break
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 130
        assert watching.stderr.read() == ""


def test_a_reader_that_goes_away_ends_watch_without_a_word(cluster: LocalCluster) -> None:
    watching = subprocess.Popen(
        command("watch", "--bootstrap-server", addresses(cluster), "--until", 5),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with watching:
        watching.stdout.close()
        watching.wait(30)
        assert watching.stderr.read() == ""


def test_an_export_is_continued_and_of_another_cluster_refused(ask, tmp_path) -> None:
    first = ask("export", "--to", tmp_path / "export", "--output", "json").json()
    assert (first["StartOffset"], first["Rows"]) == (0, first["EndOffset"])
    assert ask("topics", "create", "exported", "--replication-factor", 1).code == 0
    end = first["EndOffset"]
    while end < first["EndOffset"] + 2:  # a leader that answers late is not asked for its high watermark
        next_one = ask("export", "--to", tmp_path / "export", "--output", "json").json()
        assert next_one["StartOffset"] == end
        end = next_one["EndOffset"]
