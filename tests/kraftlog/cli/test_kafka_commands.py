"""`kraftlog kafka`: what the commands print of a real Kafka's directories, and what they refuse."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.metadata_records import ConfigRecord, UserScramCredentialRecord
from kraftlog.offline.kafka.directory import found_batches, open_directory
from tests.kraftlog.command_line import Run, run
from tests.kraftlog.kafka.conftest import kafka_data
from tests.kraftlog.offline.kafka.conftest import controller, other_controller
from tests.kraftlog.offline.kafka.test_image import append

__all__ = ["controller", "kafka_data", "other_controller", "run"]

HIDDEN = {"value": "(hidden)"}
BEHIND = "note: offsets 676 to 779 are after the newest snapshot and may be uncommitted"


# --- dump -------------------------------------------------------------------------------------------------------------


def test_dump_prints_each_record_of_the_log(controller: Path, run: Run) -> None:
    dumped = run("kafka", "dump", controller)
    assert dumped.errors.startswith(BEHIND)
    records = [json.loads(line) for line in dumped.output.splitlines()]
    assert [record["offset"] for record in records] == list(range(780))
    assert records[0]["type"] == "LEADER_CHANGE_MESSAGE"
    assert records[4] == {
        "offset": 4,
        "epoch": 1,
        "timestamp": 1795344352903,
        "type": "FEATURE_LEVEL_RECORD",
        "version": 0,
        "data": {"name": "metadata.version", "featureLevel": 30},
    }


def test_dump_of_a_range_and_of_types(controller: Path, run: Run) -> None:
    def offsets(*options: str) -> list[int]:
        return [json.loads(line)["offset"] for line in run("kafka", "dump", controller, *options).lines()]

    assert offsets("--offsets", "181:185") == [181, 182, 183, 184]
    assert offsets("--offsets", ":2") == [0, 1]
    assert offsets("--offsets", "674:676") == [674, 675]
    assert offsets("--offsets", ":200", "--type", "FeatureLevelRecord") == [4, 5, 6, 7, 8, 181]
    types = ("--type", "feature_level", "--type", "END_TRANSACTION_RECORD")
    assert offsets("--offsets", ":10", *types) == [4, 5, 6, 7, 8, 9]


def test_dump_says_what_of_it_may_be_uncommitted(controller: Path, run: Run) -> None:
    dumped = run("kafka", "dump", controller, "--offsets", "678:680")
    assert [json.loads(line)["offset"] for line in dumped.output.splitlines()] == [678, 679]
    assert dumped.errors.startswith("note: offsets 676 to 679 are after the newest snapshot")


def test_dump_of_a_checkpoint_has_no_offsets(controller: Path, run: Run) -> None:
    path = open_directory(controller).checkpoints[0].path
    records = [json.loads(line) for line in run("kafka", "dump", path).lines()]
    assert (records[0]["type"], records[-1]["type"]) == ("SNAPSHOT_HEADER_RECORD", "SNAPSHOT_FOOTER_RECORD")
    assert all("offset" not in record for record in records)
    assert len(records) == 132


def test_no_credential_and_no_password_is_shown(controller: Path, run: Run) -> None:
    secret = "listener.name.external.ssl.keystore.password"
    append(controller, [ConfigRecord(resource_type=4, resource_name="11", name=secret, value="opensesame")])
    dumped = run("kafka", "dump", controller).output
    hidden = [json.loads(line)["data"] for line in dumped.splitlines() if "USER_SCRAM" in line]
    assert hidden == [{"hidden": True}] * 3
    asked = run("kafka", "sql", controller, "SELECT * FROM configs").output
    compared = run("kafka", "diff", controller, controller).output
    for output in (dumped, asked, compared):
        assert "opensesame" not in output
    assert "(hidden)" in asked


def test_a_torn_end_is_the_last_line(controller: Path, run: Run) -> None:
    path = controller / "__cluster_metadata-0" / "00000000000000000680.log"
    os.truncate(path, path.stat().st_size - 10)
    dumped = run("kafka", "dump", controller, "--offsets", "700:").output
    *_, before, last = map(json.loads, dumped.splitlines())
    assert before["offset"] == 778
    assert (last["damage"], last["file"]) == ("torn", path.name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--offsets", "9:3"), "'9:3' is not a range of offsets"),
        (("--offsets", "x"), "'x' is not a range of offsets"),
        (("--type", "scram"), "write for example REMOVE_USER_SCRAM_CREDENTIAL_RECORD or USER_SCRAM_CREDENTIAL_RECORD"),
        (("--type", "TOPICS"), "'TOPICS' is not a type of record; write for example TOPIC_RECORD"),
    ],
)
def test_dump_refuses_what_it_does_not_know(controller: Path, run: Run, options: tuple[str, ...], words: str) -> None:
    refused = run("kafka", "dump", controller, *options)
    assert (refused.code, refused.output) == (2, "")
    assert words in refused.errors


# --- describe ---------------------------------------------------------------------------------------------------------


def test_describe(controller: Path, run: Run) -> None:
    """Also the records of bootstrap.checkpoint (FM-06)."""
    found = run("kafka", "describe", controller, "--output", "json").json()
    assert {name: value for name, value in found.items() if not isinstance(value, list)} == {
        "Directory": str(controller),
        "ClusterId": "kraftlogTestClusterAAA",
        "NodeId": 3,
        "DirectoryId": "WVgOKTrjSTm503GBhPGShQ",
        "LeaderId": 3,
        "LeaderEpoch": 2,
        "VotedId": -1,
        "VotedDirectoryId": None,
        "QuorumStateVersion": 1,
        "KRaftVersion": 1,
        "LogStartOffset": 0,
        "LogEndOffset": 780,
        "LastEpoch": 2,
        "CommittedAtLeast": 676,
        "TornTail": None,
    }
    assert [voter["VoterId"] for voter in found["Voters"]] == [1, 2, 3]
    assert found["Voters"][2]["Endpoints"] == ["CONTROLLER://localhost:29103"]
    assert [(one["EndOffset"], one["Records"]) for one in found["Snapshots"]] == [(163, 128), (410, 121), (676, 180)]
    assert [one["StartOffset"] for one in found["Epochs"]] == [0, 466]
    assert found["Bootstrap"][0] == {
        "Type": "FEATURE_LEVEL_RECORD",
        "Data": {"name": "metadata.version", "featureLevel": 30},
    }
    assert [record["Data"]["name"] for record in found["Bootstrap"][1:]] == [
        "group.version",
        "share.version",
        "streams.version",
        "transaction.version",
    ]
    table = run("kafka", "describe", controller).lines()
    assert ["CommittedAtLeast:", "676"] in [line.split() for line in table]


def test_describe_of_fixed_voters_and_of_a_broken_snapshot(controller: Path, run: Run) -> None:
    partition = controller / "__cluster_metadata-0"
    for path in [*partition.glob("*.log"), *partition.glob("*.checkpoint")]:
        if not path.name.startswith("00000000000000000676"):
            path.unlink()
    path = next(partition.glob("*.checkpoint"))
    first = path.read_bytes()[:269]  # its header
    path.write_bytes(first)
    found = run("kafka", "describe", controller, "--output", "json").json()
    assert "has no footer" in found["Snapshots"][0]["Problem"]
    assert found["LogEndOffset"] == 676


# --- sql --------------------------------------------------------------------------------------------------------------


def test_sql_asks_our_views_and_says_what_may_be_uncommitted(controller: Path, run: Run) -> None:
    statement = "SELECT count(*) AS n, sum(leader = -1) AS offline FROM partitions"
    asked = run("kafka", "sql", controller, statement, "--output", "json")
    assert (asked.code, json.loads(asked.output)[0]["n"]) == (0, 97)
    assert asked.errors.startswith(BEHIND)
    assert run("sql", "--kafka", controller, statement, "--output", "json").output == asked.output
    levels = run("kafka", "sql", controller, "SELECT * FROM features", "--snapshot-only", "--output", "json").json()
    assert {row["name"]: row["level"] for row in levels} == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    for view in ("replicas", "isr", "under_replicated_partitions", "leader_skew", "broker_load", "offline_partitions"):
        assert run("kafka", "sql", controller, f"SELECT * FROM {view}").code == 0


def test_sql_can_change_nothing(controller: Path, run: Run) -> None:
    refused = run("kafka", "sql", controller, "DELETE FROM topics", "--snapshot-only")
    assert refused.is_error(ErrorCode.INVALID_REQUEST, "begins with DELETE")


def test_sql_refuses_two_sources(controller: Path, run: Run) -> None:
    refused = run("sql", "--kafka", controller, "--directory", controller, "SELECT 1")
    assert refused.code == 2


def test_no_statement_reads_a_credential(controller: Path, run: Run) -> None:
    counted = run("kafka", "sql", controller, "SELECT count(*) AS n FROM scram_credentials", "--output", "json")
    assert json.loads(counted.output) == [{"n": 1}]
    for statement in ("SELECT * FROM scram_credentials", "SELECT length(value) FROM scram_credentials"):
        refused = run("kafka", "sql", controller, statement, "--snapshot-only")
        assert refused.is_error(ErrorCode.INVALID_REQUEST, "would read scram_credentials, which is never shown")


@pytest.mark.parametrize("command", [("sql", "SELECT 1"), ("describe",), ("dump",), ("import", "--to", ".")])
def test_what_is_not_kafkas_is_one_line(tmp_path: Path, run: Run, command: tuple[str, ...]) -> None:
    name, *arguments = command
    refused = run("kafka", name, tmp_path, *arguments)
    assert refused.is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(tmp_path), "has no __cluster_metadata-0")


# --- diff -------------------------------------------------------------------------------------------------------------


def test_diff_of_two_controllers(controller: Path, other_controller: Path, run: Run) -> None:
    same = run("kafka", "diff", controller, other_controller)
    assert (same.code, same.output.startswith("No differences: ")) == (0, True)
    apart = run("kafka", "diff", controller, other_controller, "--snapshot-only", "--output", "json")
    changed = json.loads(apart.output)
    assert apart.code == 1
    brokers = [row for row in changed if row["Table"] == "brokers"]
    assert {"Table", "Key", "Change", "Columns"} == set(brokers[0])
    assert brokers[0]["Key"] == {"broker_id": 11}
    assert brokers[0]["Columns"]["fenced"] == "0 -> 1"
    partitions = [row for row in changed if row["Table"] == "partitions"]
    assert all(row["Key"]["topic"] for row in partitions)


def test_diff_shows_what_was_added_and_removed(controller: Path, run: Run, tmp_path: Path) -> None:
    later = shutil.copytree(controller, tmp_path / "later")
    append(controller, [ConfigRecord(resource_type=2, resource_name="pinned", name="before", value="1")])
    append(later, [ConfigRecord(resource_type=2, resource_name="pinned", name="after", value="9")])
    found = json.loads(run("kafka", "diff", controller, later, "--output", "json").output)
    key = {"resource_type": 2, "resource_name": "pinned"}
    assert [(row["Key"], row["Change"], row["Columns"]) for row in found] == [
        ({**key, "name": "after"}, "added", {"value": "9"}),
        ({**key, "name": "before"}, "removed", {"value": "1"}),
    ]


def test_diff_says_that_secrets_differ_and_not_how(controller: Path, run: Run, tmp_path: Path) -> None:
    def password(value: str) -> ConfigRecord:
        return ConfigRecord(resource_type=4, resource_name="11", name="ssl.key.password", value=value)

    later = shutil.copytree(controller, tmp_path / "later")
    append(controller, [password("opensesame")])
    credential = UserScramCredentialRecord(name="eve", mechanism=1, salt=b"opensesame")
    append(later, [password("closesesame"), credential])
    found = run("kafka", "diff", controller, later, "--output", "json")
    assert [(row["Table"], row["Key"], row["Change"], row["Columns"]) for row in json.loads(found.output)] == [
        ("configs", {"resource_type": 4, "resource_name": "11", "name": "ssl.key.password"}, "changed", HIDDEN),
        ("scram_credentials", {"key": "(hidden)"}, "added", HIDDEN),
    ]
    assert [line.split(": ")[1] for line in found.errors.splitlines()] == [str(controller), str(later)]
    assert "sesame" not in run("kafka", "diff", controller, later).output


def test_no_command_writes_into_the_directory(controller: Path, tmp_path: Path, run: Run) -> None:
    def stats() -> dict[str, tuple[int, int]]:
        found = (controller, *controller.rglob("*"))
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}

    before = stats()
    for command in (
        ("kafka", "describe", controller),
        ("kafka", "dump", controller),
        ("kafka", "sql", controller, "SELECT 1"),
        ("sql", "--kafka", controller, "SELECT 1"),
        ("kafka", "diff", controller, controller),
        ("kafka", "import", controller, "--to", tmp_path),
        ("export", "--kafka", controller, "--to", tmp_path / "export"),
    ):
        assert run(*command).code == 0
    assert stats() == before


@pytest.mark.parametrize("below", [".", "new", "__cluster_metadata-0", "__cluster_metadata-0/new"])
def test_a_target_in_the_directory_is_refused(controller: Path, run: Run, below: str) -> None:
    (controller / "new").mkdir()
    before = sorted(controller.rglob("*"))
    for command in (("kafka", "import", controller), ("export", "--kafka", controller)):
        refused = run(*command, "--to", controller / below)
        assert refused.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "a Kafka's directory, where nothing is ever written")
    assert sorted(controller.rglob("*")) == before


# --- import and export ------------------------------------------------------------------------------------------------


def test_import_and_export_keep_all_that_both_have(controller: Path, tmp_path: Path, run: Run) -> None:
    newest = Path(shutil.copy(open_directory(controller).checkpoints[-1].path, tmp_path))
    taken, back = tmp_path / "taken", tmp_path / "back"
    taken.mkdir()
    back.mkdir()
    imported = run("kafka", "import", controller, "--to", taken, "--output", "json")
    assert imported.code == 0
    assert "left out" in imported.errors and "group.version=1" in imported.errors
    assert "kept only for export to a Kafka, neither used nor shown by kraftlog: 1 scram_credentials" in imported.errors
    fields = json.loads(imported.output)
    assert (fields["EndOffset"], fields["FromClusterId"]) == (780, "kraftlogTestClusterAAA")
    assert run("snapshot", "verify", fields["Path"]).code == 0
    shown = run("snapshot", "inspect", fields["Path"], "--records").output
    (credential,) = [json.loads(line) for line in shown.splitlines() if "SCRAM" in line]
    assert credential == {"type": "USER_SCRAM_CREDENTIAL_RECORD", "data": {"hidden": True}}
    again = run("kafka", "import", controller, "--to", fields["Path"])
    assert again.code == 1 and "already exists and is left unchanged" in again.errors
    exported = run("kafka", "export", "--snapshot", fields["Path"], "--to", back, "--output", "json").json()
    lines = run("kafka", "dump", exported["Path"]).lines()
    assert (json.loads(lines[0])["type"], json.loads(lines[-1])["type"]) == (
        "SNAPSHOT_HEADER_RECORD",
        "SNAPSHOT_FOOTER_RECORD",
    )
    _replace_log(controller, Path(exported["Path"]))
    copy = shutil.copytree(controller, tmp_path / "copy")
    second = tmp_path / "second"
    second.mkdir()
    run("kafka", "import", copy, "--to", second)
    first_records, second_records = (
        run("snapshot", "inspect", path, "--records").lines()[1:] for path in (fields["Path"], *second.iterdir())
    )
    assert first_records == second_records
    assert _credentials(Path(exported["Path"])) == _credentials(newest) != []


def _credentials(checkpoint: Path) -> list[bytes]:
    """The bytes of Kafka's records of SCRAM credentials."""
    records = (
        record for found in found_batches(checkpoint) if not found.batch.is_control for record in found.batch.records()
    )
    return [
        bytes(record.value or b"") for record in records if (record.value or b"")[1] == UserScramCredentialRecord.KEY
    ]


def _replace_log(controller: Path, checkpoint: Path) -> None:
    """As a Kafka has it that starts from the checkpoint."""
    partition = controller / "__cluster_metadata-0"
    for path in [*partition.glob("*.log"), *partition.glob("*.checkpoint")]:
        path.unlink()
    shutil.copy(checkpoint, partition)


def test_an_export_leaves_our_own_configs_out_and_names_them(controller: Path, tmp_path: Path, run: Run) -> None:
    """A Kafka takes any config of a broker, so that one of it may have the name of ours."""
    taken, back = tmp_path / "taken", tmp_path / "back"
    taken.mkdir()
    back.mkdir()
    own = [
        ConfigRecord(resource_type=2, resource_name="pinned", name="flush.before.ack", value="false"),
        ConfigRecord(resource_type=2, resource_name="wide", name="flush.before.ack", value="true"),
        ConfigRecord(resource_type=4, resource_name="", name="log.flush.before.ack", value="false"),
    ]
    kept = ConfigRecord(resource_type=2, resource_name="pinned", name="flush.ms", value="9")
    append(controller, [*own, kept])
    assert run("kafka", "import", controller, "--to", taken).code == 0
    exported = run("kafka", "export", "--snapshot", next(taken.iterdir()), "--to", back, "--output", "json")
    left_out = "2 rows of configs (flush.before.ack), 1 rows of configs (log.flush.before.ack)"
    assert exported.errors == f"note: left out, because a Kafka does not have them: {left_out}\n"
    dumped = run("kafka", "dump", json.loads(exported.output)["Path"], "--type", "CONFIG_RECORD").lines()
    names = [json.loads(line)["data"]["name"] for line in dumped]
    assert "flush.ms" in names
    assert not {record.name for record in own} & set(names)


def test_a_file_must_have_the_snapshots_name(controller: Path, tmp_path: Path, run: Run) -> None:
    refused = run("kafka", "import", controller, "--to", tmp_path / "x.checkpoint", "--snapshot-only")
    name = "00000000000000000676-0000000002.checkpoint"
    assert refused.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "x.checkpoint", name)
    assert run("kafka", "import", controller, "--to", tmp_path / name, "--snapshot-only").code == 0


def test_an_export_never_replaces_a_file(controller: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "taken").mkdir()
    run("kafka", "import", controller, "--to", tmp_path / "taken")
    (snapshot,) = (tmp_path / "taken").iterdir()
    refused = run("kafka", "export", "--snapshot", snapshot, "--to", tmp_path / "taken")
    assert refused.is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(snapshot), "already exists and is left unchanged")
    assert list((tmp_path / "taken").iterdir()) == [snapshot]
