"""`kraftlog restore`: what it refuses, and that nothing has changed then."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from raft.storage.batch import encode_body
from snapshot.names import snapshot_name
from tests.kraftlog.command_line import Finished, Run
from tests.kraftlog.node_directories import CLUSTER_ID, contents, flip
from tests.kraftlog.offline.restore.builders import FILES, NEW_ID, names_below, read, write_snapshot
from tests.snapshot.builders import an_id, overwrite


@pytest.fixture
def refused(run: Run, snapshot: Path, config: Path, work: Path):
    """Restores a node and a local cluster, both of which must be refused with the same words and change nothing."""

    def refused(code: ErrorCode, *words: str, snapshot: Path = snapshot) -> None:
        before = contents(work)
        for options in (("--config", config, "--cluster-id", NEW_ID), ("--dir", work / "cluster")):
            said = run("restore", "--snapshot", snapshot, *options)
            assert said.is_error(code, *words), said
            assert contents(work) == before

    return refused


def test_a_file_that_is_no_whole_snapshot_is_refused(refused, snapshot: Path, tmp_path: Path) -> None:
    data = snapshot.read_bytes()
    for damaged, words in (
        (b"", "is damaged: it ends at byte 0 without a footer"),
        (data[:-1], "is damaged"),
        (data + b"more", "is damaged: 4 bytes follow its footer"),
        (b"[node]\nid = 1\n" * 20, "is damaged"),
    ):
        overwrite(snapshot, damaged)
        refused(ErrorCode.KAFKA_STORAGE_ERROR, str(snapshot), words, "restore from another copy")
    for position in range(0, len(data), 101):
        overwrite(snapshot, data)
        flip(snapshot, position)
        refused(ErrorCode.KAFKA_STORAGE_ERROR, str(snapshot), "is damaged")


def test_a_file_that_is_not_named_like_a_snapshot_is_refused(refused, snapshot: Path, tmp_path: Path) -> None:
    renamed = snapshot.rename(snapshot.with_name("backup.checkpoint"))
    refused(ErrorCode.KAFKA_STORAGE_ERROR, str(renamed), "is not named like a snapshot", snapshot=renamed)
    refused(ErrorCode.KAFKA_STORAGE_ERROR, "is not named like a snapshot", snapshot=snapshot.parent)
    refused(ErrorCode.KAFKA_STORAGE_ERROR, str(snapshot), "No such file", snapshot=snapshot)
    other = renamed.rename(snapshot.with_name(snapshot_name(an_id(31, 3))))
    refused(ErrorCode.KAFKA_STORAGE_ERROR, str(other), "its digest is not that of its name", snapshot=other)
    directory = snapshot.with_name(snapshot_name(an_id(32, 3)))
    directory.mkdir()
    refused(ErrorCode.KAFKA_STORAGE_ERROR, str(directory), snapshot=directory)


def test_a_whole_snapshot_that_no_node_could_load_is_refused(refused, snapshot: Path, tmp_path: Path) -> None:
    batches = read(snapshot)[1]
    for snapshot_id, batches_of, words in (
        (an_id(30, 3), [(2, encode_body([b"abc", b"de"]))], "is no MetadataBatch"),
        (an_id(30, 3), [], "does not have the applied state of its state machine"),
        (an_id(30, 3), [*batches, *batches], "cannot be applied"),
        (an_id(0, 3), batches, "ends at offset 0"),
    ):
        path = write_snapshot(tmp_path / words.replace(" ", "-"), snapshot_id, batches_of)
        refused(ErrorCode.KAFKA_STORAGE_ERROR, str(path), words, "restore from another copy", snapshot=path)


def test_the_old_clusters_id_and_what_is_no_id_are_refused(run: Run, snapshot: Path, config: Path, work: Path) -> None:
    before = contents(work)
    for cluster_id, words in (
        (CLUSTER_ID, f"{CLUSTER_ID} is the id of the cluster that {snapshot} is from; use a new one"),
        ("nonsense", "'nonsense' is not an id"),
        ("A" * 22, "is zero"),
    ):
        said = run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", cluster_id)
        assert said.is_error(ErrorCode.INVALID_CONFIG, words)
        assert contents(work) == before


def test_a_directory_that_holds_anything_is_refused(run: Run, snapshot: Path, config: Path, work: Path) -> None:
    def restored(*options: object) -> Finished:
        return run("restore", "--snapshot", snapshot, *options)

    node = ("--config", config, "--cluster-id", NEW_ID)
    assert run("format", "--config", config, "--cluster-id", NEW_ID).code == 0
    before = contents(work)
    formatted = f"{work / 'node-1'} is formatted, for node 1 of cluster {NEW_ID}; name an empty directory or a new one"
    assert restored(*node).is_error(ErrorCode.KAFKA_STORAGE_ERROR, formatted)
    for directory in (work, work / "node-1"):
        said = restored("--dir", directory)
        assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} is not empty, it holds")
    said = restored("--dir", config)
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(config))
    assert contents(work) == before
    (work / "node-1" / "meta.properties").unlink()
    (work / "node-1" / "thesis.txt").write_text("mine")
    before = contents(work)
    assert restored(*node).is_error(ErrorCode.KAFKA_STORAGE_ERROR, "node-1 is not empty, it holds log, thesis.txt")
    assert contents(work) == before


def test_a_directory_that_is_in_use_is_refused(run: Run, snapshot: Path, config: Path, work: Path) -> None:
    FILES.make_directories(str(work / "node-1"))
    lock = FILES.try_lock(str(work / "node-1" / ".lock"))
    assert lock is not None
    with closing(lock):
        said = run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", NEW_ID)
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{work / 'node-1'} is in use by another process")
    assert names_below(work / "node-1") == {".lock"}
    assert run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", NEW_ID).code == 0


def test_counts_that_no_cluster_has_and_a_config_that_is_none_are_refused(
    run: Run, snapshot: Path, config: Path, work: Path
) -> None:
    before = contents(work)
    said = run("restore", "--snapshot", snapshot, "--dir", work / "cluster", "--voters", 0)
    assert said.is_error(ErrorCode.INVALID_CONFIG, "0 voters; a local cluster has from 1")
    said = run("restore", "--snapshot", snapshot, "--config", work / "none.toml", "--cluster-id", NEW_ID)
    assert said.is_error(ErrorCode.INVALID_CONFIG, "none.toml: there is no such file")
    assert contents(work) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--config / --dir"),
        (("--config", "a", "--dir", "b"), "--config / --dir"),
        (("--config", "a"), "kraftlog random-uuid"),
        (("--config", "a", "--cluster-id", NEW_ID, "--voters", 3), "--voters"),
        (("--config", "a", "--cluster-id", NEW_ID, "--observers", 3), "--observers"),
        (("--dir", "a", "--cluster-id", NEW_ID), "--cluster-id"),
        (("--dir", ""), "name a path"),
    ],
)
def test_options_that_do_not_go_together_are_usage_errors(run: Run, options: tuple[object, ...], words: str) -> None:
    said = run("restore", "--snapshot", "x.checkpoint", *options)
    assert (said.code, said.output, words in said.errors, said.errors.count("\n")) == (2, "", True, 1)
    assert run("restore", *options).code == 2
