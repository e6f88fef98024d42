"""Files of `kraftlog elect` and `reassign`: as Kafka's tools read and write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftbase.errors import ConfigurationError, ErrorCode
from kraftbase.partition import TopicPartition
from kraftlog.commands.partition_files import read_election, read_reassignment, read_topics, reassignment_json
from tests.kraftlog.command_line import Run
from tests.kraftlog.partitions import an_entry, written

NOWHERE = "127.0.0.1:1"
AT_NOWHERE = ("--bootstrap-server", NOWHERE)
AT: TopicPartition = TopicPartition("t", 0)


def test_a_file_for_an_election_is_read(tmp_path: Path) -> None:
    content = {"partitions": [{"topic": "b", "partition": 1}, {"topic": "a", "partition": 0}]}
    for written_content in (content, {"version": 1, **content}):
        file = written(tmp_path / "election.json", written_content)
        assert read_election(file) == [TopicPartition("b", 1), TopicPartition("a", 0)]


def test_a_file_with_topics_to_move_is_read(tmp_path: Path) -> None:
    content = {"topics": [{"topic": "foo"}, {"topic": "bar"}]}
    for written_content in (content, {"version": 1, **content}):
        assert read_topics(written(tmp_path / "topics.json", written_content)) == ["foo", "bar"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", 'it is not JSON: .*; write \\{"version": 1, "topics": '),
        ("[]", r"'\[\]' is not an object; write \{...\} with \"version\", \"topics\""),
        ({}, 'there are no topics: "topics" is missing; list them there'),
        ({"topics": []}, "\"topics\" is '\\[\\]'"),
        ({"topics": "foo"}, '"topics" is .*foo'),
        ({"version": 3, "topics": [{"topic": "foo"}]}, "the version is '3'; only 1"),
        ({"partitions": [], "topics": [{"topic": "foo"}]}, "'partitions' is not a known key"),
        ({"topics": ["foo"]}, "number 1 of the topics: .*foo.* is not an object"),
        ({"topics": [{"topic": "foo"}, {}]}, "number 2 of the topics: the topic is missing"),
        ({"topics": [{"topic": 7}]}, "the topic is '7'"),
        ({"topics": [{"topic": "a b"}]}, "'a b' is illegal"),
        ({"topics": [{"topic": "foo", "partition": 0}]}, "number 1 of the topics: 'partition' is not a known key"),
        ({"topics": [{"topic": "foo"}, {"topic": "foo"}]}, "topic 'foo' appears twice"),
    ],
)
def test_a_file_with_topics_to_move_that_has_anything_wrong_is_refused(
    tmp_path: Path, content: object, words: str
) -> None:
    file = written(tmp_path / "topics.json", content)
    with pytest.raises(ConfigurationError, match=words) as refused:
        read_topics(file)
    assert str(refused.value).startswith(f"{file}: ")


def test_an_assignment_is_written_as_kafka_does_and_read_again(tmp_path: Path) -> None:
    replicas = {TopicPartition("b", 0): [3], TopicPartition("a", 10): [2, 1], TopicPartition("a", 9): [1, 2]}
    content = reassignment_json(replicas)
    assert content == {
        "version": 1,
        "partitions": [
            {"topic": "a", "partition": 9, "replicas": [1, 2], "log_dirs": ["any", "any"]},
            {"topic": "a", "partition": 10, "replicas": [2, 1], "log_dirs": ["any", "any"]},
            {"topic": "b", "partition": 0, "replicas": [3], "log_dirs": ["any"]},
        ],
    }
    assert read_reassignment(written(tmp_path / "moves.json", content)) == replicas
    for entry in content["partitions"]:
        del entry["log_dirs"]
    del content["version"]
    assert read_reassignment(written(tmp_path / "moves.json", content)) == replicas


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", r"is not an object; write \{...\} with \"version\", \"partitions\""),
        ({}, "there are no partitions"),
        ({"partitions": {}}, "there are no partitions: \"partitions\" is '{}'; list them there"),
        ({"partitions": []}, "there are no partitions"),
        ({"version": 2, **an_entry()}, "the version is '2'; only 1"),
        ({"version": True, **an_entry()}, "the version is 'true'; only 1"),
        ({"partition": [], **an_entry()}, "'partition' is not a known key"),
        (
            {"throttle": 1000, **an_entry()},
            "'throttle' asks for a throttle, which kraftlog does not have; leave the key out",
        ),
        (an_entry(**{"leader.replication.throttled.rate": 5}), "number 1 of the partitions.* asks for a throttle"),
        (an_entry(replica=[1]), "'replica' is not a known key; use"),
        ({"partitions": [5]}, "number 1 of the partitions: '5' is not an object"),
        (an_entry(topic=None), "the topic is missing"),
        (an_entry(topic=7), "the topic is '7'"),
        (an_entry(topic="\ud800"), "illegal"),
        (an_entry(topic="x" * 250), "250 characters"),
        (an_entry(partition=None), "the partition is missing; write a whole number from 0"),
        (an_entry(partition="0"), "the partition is"),
        (an_entry(partition=True), "the partition is 'true'"),
        (an_entry(partition=-1), "the partition is '-1'"),
        (an_entry(partition=2**31), "the partition is '2147483648'"),
        (an_entry(replicas=None), "partition 0 of topic 't': it has no replicas"),
        (an_entry(replicas=[]), "it has no replicas"),
        (an_entry(replicas=[1, 1.5]), "the replica is '1.5'"),
        (an_entry(replicas=[1, 2, 1]), "broker 1 appears more than once"),
        (an_entry(log_dirs=["any"]), "for each replica, or leave them out"),
        (an_entry(log_dirs="any"), "for each replica, or leave them out"),
        (an_entry(log_dirs=["any", "/data"]), 'but log_dirs has .*/data.*; write "any"'),
        ({"partitions": an_entry()["partitions"] * 2}, "partition 0 of topic 't' appears twice"),
    ],
)
def test_a_file_with_anything_wrong_is_refused_by_its_name(tmp_path: Path, content: object, words: str) -> None:
    file = written(tmp_path / "moves.json", content)
    with pytest.raises(ConfigurationError, match=words) as refused:
        read_reassignment(file)
    assert str(refused.value).startswith(f"{file}: ")


def test_replicas_in_a_file_for_an_election_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'replicas' is not a known key"):
        read_election(written(tmp_path / "election.json", an_entry()))


def test_a_bad_file_is_one_line_before_anybody_is_asked(run: Run, tmp_path: Path) -> None:
    latin = tmp_path / "latin.json"
    latin.write_bytes(b'{"partitions": [{"topic": "\xe9"}]}')
    throttled = written(tmp_path / "throttled.json", {"throttle": 1, **an_entry()})
    for command in (
        ("reassign", "execute", "--file"),
        ("reassign", "verify", "--file"),
        ("reassign", "cancel", "--file"),
    ):
        assert run(*command, throttled, *AT_NOWHERE).is_error(ErrorCode.INVALID_CONFIG, str(throttled), "throttle")
    elect = ("elect", "--type", "preferred", *AT_NOWHERE, "--path")
    assert run(*elect, latin).is_error(ErrorCode.INVALID_CONFIG, str(latin), "not JSON")
    assert run(*elect, tmp_path / "none").is_error(
        ErrorCode.INVALID_CONFIG,
        f"file {tmp_path / 'none'} does not exist",
        'give the path of a JSON file with "partitions"',
    )
    assert run(*elect, tmp_path).is_error(ErrorCode.INVALID_CONFIG, f"{tmp_path} cannot be read", "check the path")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "moves.json"
    entry = {"topic": "t", "partition": 0, "replicas": [1]}
    path.write_text(json.dumps({"version": 1, "partitions": [entry]}), encoding="utf-8-sig")
    assert read_reassignment(path) == {TopicPartition("t", 0): [1]}
