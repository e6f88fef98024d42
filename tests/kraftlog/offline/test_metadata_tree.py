"""The metadata's tree (OT-12): what is where, how names are written, that nothing is read before it is asked for."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path as FilePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.ids import id_to_text
from kraftlog.offline.metadata_tree import File, Node, Path, decode_name, encode_name, printable, root, walk
from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.store.metadata_tables import MetadataTables
from statemachine.store.store import MetadataStore
from statemachine.tables.database import create_in
from tests.statemachine.builders import BROKER, CLUSTER_ID, an_id, batch, broker, config, log_of, partition, topic
from tests.statemachine.snapshots import filled

ODD = "a/b c%\n'*\x1b[31m\u202e{x,y}\\\u00e9"


def database(*runs: Sequence[MetadataRecord]) -> sqlite3.Connection:
    """A database in memory that has applied these records."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create_in(connection, CLUSTER_ID)
    MetadataTables(connection).apply(log_of(runs))
    return connection


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    records = [
        topic("a", 1),
        *(partition(1, number) for number in range(12)),
        config("a", "retention.ms", "1"),
        topic("b", 2),
        broker(10, fenced=True),
        broker(9, epoch=5, rack="r\n\x1b"),
        config("9", "log.retention.ms", "3", BROKER),
        config("", "log.retention.ms", "4", BROKER),
        config("default", "log.retention.ms", "5", BROKER),
        config("gone", "segment.ms", "6"),
    ]
    with closing(database(records)) as connection:
        yield connection


def node_at(connection: sqlite3.Connection, path: str) -> Node:
    ((_, node),) = walk(root(connection), tuple(path.split("/")[1:]))
    return node


def names(connection: sqlite3.Connection, path: str) -> list[str]:
    node = node_at(connection, path) if path != "/" else root(connection)
    assert not isinstance(node, File)
    found = [name for name, _ in node.entries()]
    assert node.count() == len(found)
    for name, listed in node.entries():
        looked_up = node.entry(name)
        assert type(looked_up) is type(listed)
    return found


def content(connection: sqlite3.Connection, path: str) -> str:
    node = node_at(connection, path)
    assert isinstance(node, File)
    return node.read()


def test_what_is_where(connection: sqlite3.Connection) -> None:
    assert names(connection, "/") == ["applied", "brokers", "cluster", "configs", "topicIds", "topics"]
    assert names(connection, "/applied") == ["digest", "endOffset", "epoch", "timestamp"]
    assert names(connection, "/brokers") == ["9", "10"]
    assert names(connection, "/brokers/9") == ["inControlledShutdown", "isFenced", "registration"]
    assert names(connection, "/cluster") == ["id"]
    assert names(connection, "/configs") == ["brokers", "topics"]
    assert names(connection, "/configs/brokers") == ["default", "9", "%64efault"]
    assert names(connection, "/configs/topics") == ["a", "gone"]
    assert names(connection, "/configs/topics/gone") == ["segment.ms"]
    assert names(connection, "/topicIds") == sorted(id_to_text(an_id(number)) for number in (1, 2))
    assert names(connection, "/topics") == ["a", "b"]
    assert names(connection, "/topics/a") == ["configs", "id", "partitions"]
    assert names(connection, "/topics/a/partitions") == [str(number) for number in range(12)]
    assert names(connection, "/topics/a/configs") == ["retention.ms"]
    assert names(connection, "/topics/b/partitions") == names(connection, "/topics/b/configs") == []


def test_files_say_what_is_so(connection: sqlite3.Connection) -> None:
    assert content(connection, "/cluster/id") == CLUSTER_ID
    assert content(connection, "/topics/a/id") == id_to_text(an_id(1))
    assert content(connection, f"/topicIds/{id_to_text(an_id(1))}") == "a"
    assert content(connection, "/topics/a/configs/retention.ms") == "1"
    assert content(connection, "/configs/topics/a/retention.ms") == "1"
    for name, value in (("9", "3"), ("default", "4"), ("%64efault", "5")):
        assert content(connection, f"/configs/brokers/{name}/log.retention.ms") == value
    assert [content(connection, f"/brokers/{number}/isFenced") for number in (9, 10)] == ["false", "true"]
    assert content(connection, "/brokers/9/inControlledShutdown") == "false"


def test_what_is_applied(connection: sqlite3.Connection) -> None:
    end_offset, digest = connection.execute("SELECT end_offset, digest FROM applied").fetchone()
    said = [content(connection, f"/applied/{name}") for name in ("endOffset", "epoch", "timestamp", "digest")]
    assert said == [str(end_offset), "1", "1", digest]
    connection.execute("UPDATE applied SET state_digest_end_offset = 7, state_digest = 'ab', diverged = 'so\nit is'")
    extra = ["diverged", "stateDigest", "stateDigestEndOffset"]
    assert sorted({*names(connection, "/applied")} - {"digest", "endOffset", "epoch", "timestamp"}) == extra
    assert [content(connection, f"/applied/{name}") for name in extra] == ["so\\nit is", "ab", "7"]


def test_a_partition_and_a_registration_are_json_in_kafkas_words(connection: sqlite3.Connection) -> None:
    assert json.loads(content(connection, "/topics/a/partitions/11")) == {
        "partitionId": 11,
        "topicId": id_to_text(an_id(1)),
        "replicas": [1, 2],
        "isr": [1, 2],
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": 1,
        "leaderRecoveryState": 0,
        "leaderEpoch": 0,
        "partitionEpoch": 0,
        "directories": [id_to_text(an_id(901)), id_to_text(an_id(902))],
    }
    text = content(connection, "/brokers/9/registration")
    assert json.loads(text) == {
        "brokerId": 9,
        "brokerEpoch": 5,
        "incarnationId": id_to_text(an_id(509)),
        "rack": "r\n\x1b",
        "fenced": False,
        "inControlledShutdown": False,
        "endPoints": [{"name": "PLAINTEXT", "host": "localhost", "port": 9101, "securityProtocol": 0}],
        "logDirs": [id_to_text(an_id(909))],
    }
    assert text.isascii()
    assert all(one.isprintable() or one == "\n" for one in text)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/brokers/8",
        "/brokers/09",
        "/brokers/x",
        "/brokers/-9",
        "/brokers/" + "9" * 30,
        "/brokers/9/rack",
        "/brokers/\u0669",
        "/topics/A",
        "/topics/%61",
        "/topics/%",
        "/topics/a/partitions/12",
        "/topics/a/partitions/1 ",
        "/topics/a/configs/segment.ms",
        "/topics/a/id/x",
        "/topicIds/a",
        "/topics/\udcff",
        "/topics/%FF",
        "/topics/a\0",
        "/configs/brokers/%",
        "/configs/brokers/8",
        "/configs/topics/b",
    ],
)
def test_what_is_not_there_is_not_found(connection: sqlite3.Connection, path: str) -> None:
    assert list(walk(root(connection), tuple(path.split("/")[1:]))) == []


def test_odd_names_are_found_as_they_are_listed() -> None:
    records = [
        topic(ODD, 1),
        partition(1),
        topic("..", 2),
        config(ODD, ODD, ODD),
        config(ODD, "", ""),
        config(".", ".", "x"),
        config(ODD, ODD, ODD, BROKER),
    ]
    with closing(database(records)) as connection:
        encoded = encode_name(ODD)
        assert names(connection, "/topics") == ["%2E%2E", encoded]
        assert names(connection, f"/topics/{encoded}/configs") == ["%", encoded]
        assert names(connection, "/configs/topics/%2E") == ["%2E"]
        assert content(connection, "/configs/topics/%2E/%2E") == "x"
        assert names(connection, f"/topics/{encoded}/partitions") == ["0"]
        assert content(connection, f"/topics/{encoded}/configs/%") == ""
        for path in (f"/topics/{encoded}/configs/{encoded}", f"/configs/brokers/{encoded}/{encoded}"):
            assert content(connection, path) == printable(ODD)
        assert content(connection, f"/topicIds/{id_to_text(an_id(1))}") == printable(ODD)


@given(st.text())
def test_every_text_has_a_name_of_its_own_that_can_be_typed(text: str) -> None:
    name = encode_name(text)
    assert decode_name(name) == text
    assert name not in ("", ".", "..")
    assert name.isprintable()
    assert not any(one in "/*?[]{}'\"\\" or one.isspace() for one in name)


@given(st.text(alphabet="%.2Ee5a/é", max_size=12))
def test_a_name_is_of_one_text_at_most(name: str) -> None:
    text = decode_name(name)
    assert text is None or encode_name(text) == name


@given(st.text())
def test_what_is_shown_can_be_printed(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()


def everything(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    yield path, node
    if not isinstance(node, File):
        for name, below in node.entries():
            yield from everything(below, (*path, name))


def test_every_path_leads_to_what_is_listed_there(connection: sqlite3.Connection) -> None:
    tree = root(connection)
    paths = [path for path, _ in everything(tree)]
    assert len(paths) == len(set(paths)) > 40
    for path in paths:
        assert [found for found, _ in walk(tree, path)] == [path]


def test_nothing_is_read_before_it_is_asked_for(connection: sqlite3.Connection) -> None:
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    tree = root(connection)
    assert len(asked) == 1
    assert "FROM applied" in asked.pop()
    assert tree.count() == len(list(tree.entries()))
    list(walk(tree, ("topics", "a", "partitions", "3")))
    list(walk(tree, ("topics", "*")))
    assert not any("FROM partitions" in sql and "LIMIT 1" not in sql for sql in asked)


def test_a_directory_is_listed_row_by_row() -> None:
    records = [topic("large", 1), *(partition(1, number) for number in range(9_999))]
    with closing(database(records, [partition(1, 10_000 + number) for number in range(10_000)])) as connection:
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        partitions = node_at(connection, "/topics/large/partitions")
        assert not isinstance(partitions, File)
        assert partitions.count() == 19_999
        connection.set_progress_handler(step, 100)
        entries = partitions.entries()
        assert [next(entries)[0] for _ in range(3)] == ["0", "1", "2"]
        assert partitions.entry("19000") is not None
        assert steps < 5


def test_a_read_transaction_sees_one_state(tmp_path: FilePath) -> None:
    with closing(filled(tmp_path / "metadata.db")) as store:
        store.reader.execute("BEGIN")
        tree = root(store.reader)
        before = list(everything(tree))
        add_topic(store)
        assert [path for path, _ in everything(tree)] == [path for path, _ in before]
        store.reader.execute("COMMIT")
        assert ("topics", "new") in [path for path, _ in everything(root(store.reader))]


def add_topic(store: MetadataStore) -> None:
    store.apply([batch(store.applied_end_offset, [topic("new", 77)])])
