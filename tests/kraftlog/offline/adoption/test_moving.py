"""`kraftlog brokers report` and `adopt`, and the restore between them, as an operator runs them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kraftbase.uuids import random_uuid, uuid_to_text
from kraftlog.broker.adopted_incarnation import adopted_incarnation, forget_adopted_incarnation
from kraftlog.offline.adoption import moving
from kraftlog.offline.adoption.moving import OLD_DATABASE_SUFFIX
from kraftlog.offline.snapshot_files import open_snapshot
from kraftlog.storage.registered_epoch import note_registration
from kraftpb.v1.metadata_pb2 import MetadataRecord, RegisterControllerRecord
from raft.storage.directory import METADATA_DATABASE_NAME, DataDirectory
from statemachine.store.store import MetadataStore
from statemachine.words.adopted_brokers import adopted_as
from tests.kraftlog.command_line import Finished, Run
from tests.kraftlog.node_directories import contents
from tests.kraftlog.offline.adoption.builders import FILES, make_broker, read, write_snapshot
from tests.kraftlog.offline.restore.builders import write_config
from tests.statemachine.builders import CLUSTER_ID, an_id, batch, broker, no_op, partition, topic


class Operator:
    """Has a snapshot, the disks of broker 1, and no voters."""

    def __init__(self, run: Run, path: Path) -> None:
        self.run, self.path = run, path
        self.snapshot = write_snapshot(path, broker(1, 2), topic("clicks", 1), partition(1))
        self.broker = make_broker(path / "b1", {1: [3, 3], 2: [4]})
        MetadataStore.open(self.broker / METADATA_DATABASE_NAME, CLUSTER_ID).close()
        self.cluster_id = ""

    def report(self, name: str = "1.json") -> Path:
        made = self.run("brokers", "report", "--data-dir", self.broker, "--to", self.path / name)
        assert made.code == 0, made
        return self.path / name

    def restore(self, *reports: Path, name: str = "new", extra: tuple[object, ...] = ()) -> Path:
        given = [word for report in reports for word in ("--broker-report", report)]
        to = ("--snapshot", self.snapshot, "--dir", self.path / name, "--voters", 1)
        said = self.run("restore", *to, *given, *extra, "--output", "json").json()
        self.cluster_id = said["ClusterId"]
        (made,) = (self.path / name / "node-1" / "snapshots").glob(f"*{said['EndOffset']}-*.checkpoint")
        return made

    def adopt(self, snapshot: Path, *options: object) -> Finished:
        return self.run("brokers", "adopt", "--data-dir", self.broker, "--snapshot", snapshot, *options)

    def adopted(self, snapshot: Path, *options: object) -> Any:
        return self.adopt(snapshot, *options, "--output", "json").json()

    def cluster_of_broker(self) -> str:
        with DataDirectory.open(FILES, str(self.broker)) as directory:
            return directory.identity.cluster_id


@pytest.fixture
def operator(run: Run, tmp_path: Path) -> Operator:
    return Operator(run, tmp_path)


def test_ct39_a_broker_is_moved_after_a_look(operator: Operator) -> None:
    restored = operator.restore(operator.report())
    before, disk_id = contents(operator.broker), read(operator.broker).disk_id
    shown = operator.adopted(restored)
    assert {(of["Topic"], of["Becomes"]) for of in shown["Logs"]} == {("clicks", "in sync"), ("late", "stray")}
    assert not shown["Moved"]
    assert {name: of[0] for name, of in contents(operator.broker).items()} == {
        name: of[0] for name, of in before.items()
    }
    assert operator.adopted(restored, "--execute")["Moved"]
    assert operator.cluster_of_broker() == operator.cluster_id
    assert operator.cluster_id in (operator.broker / "partitions" / "meta.properties").read_text()
    assert adopted_incarnation(FILES, str(operator.broker)) == UUID(bytes=adopted_as(disk_id))
    assert (operator.broker / (METADATA_DATABASE_NAME + OLD_DATABASE_SUFFIX)).exists()
    store = MetadataStore.open(operator.broker / METADATA_DATABASE_NAME, operator.cluster_id)
    assert store.applied_end_offset > 1_000_000
    store.close()
    again = operator.adopt(restored, "--execute")
    assert (again.code, "already" in again.output) == (0, True)


def test_ct39_a_cluster_that_does_not_know_the_disks_takes_no_broker(operator: Operator) -> None:
    report, other = operator.report(), operator.restore(name="without")
    for restored in (other, operator.restore(report)):
        if restored is not other:
            (operator.broker / "partitions" / "clicks-0" / "partition.metadata").unlink()  # or a record more
            (operator.broker / "partitions" / "kraftlog-inventory").unlink()
        before = contents(operator.broker)
        said = operator.adopt(restored, "--execute")
        assert said.code == 1, said
        assert "was restored without the present state of broker 1" in said.errors
        assert {name: of[0] for name, of in contents(operator.broker).items()} == {
            name: of[0] for name, of in before.items()
        }


@pytest.mark.parametrize("step", range(4))
def test_ct39_a_move_that_was_interrupted_is_done_again(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    restored = operator.restore(operator.report())
    steps = 0

    def interrupting(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal steps
            if steps == step:
                raise KeyboardInterrupt
            steps += 1
            return function(*arguments)

        return call

    with monkeypatch.context() as patch:
        for name in ("install", "write_new_file", "leave_adopted_incarnation"):
            patch.setattr(moving, name, interrupting(getattr(moving, name)))
        operator.adopt(restored, "--execute")
    assert steps == step
    assert operator.cluster_of_broker() == CLUSTER_ID
    assert operator.adopted(restored, "--execute")["Moved"]
    assert operator.cluster_of_broker() == operator.cluster_id
    with_old = operator.broker / (METADATA_DATABASE_NAME + OLD_DATABASE_SUFFIX)
    MetadataStore.open(with_old, CLUSTER_ID).close()


@pytest.mark.parametrize("step", range(3))
def test_ct39_a_move_of_a_broker_that_was_killed_is_interrupted_between_two_names(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Until its next start all that a killed broker knows is beside its database, in SQLite's log."""
    killed = operator.path / "killed"
    path = operator.broker / METADATA_DATABASE_NAME
    path.unlink()
    store = MetadataStore.open(path, CLUSTER_ID)
    store.apply([batch(0, [no_op()] * 7, epoch=3)])
    shutil.copytree(operator.broker, killed)
    store.close()
    operator.broker = killed
    assert (killed / (METADATA_DATABASE_NAME + "-wal")).stat().st_size
    restored = operator.restore(operator.report())
    steps, replace = 0, Path.replace

    def interrupting(source: Path, target: Path) -> Path:
        nonlocal steps
        if source.parent == killed:
            if steps == step:
                raise KeyboardInterrupt
            steps += 1
        return replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupting)
        operator.adopt(restored, "--execute")
    assert operator.adopted(restored, "--execute")["Moved"]
    kept = MetadataStore.open(killed / (METADATA_DATABASE_NAME + OLD_DATABASE_SUFFIX), CLUSTER_ID)
    assert kept.applied_end_offset == 7
    kept.close()


def test_ct39_the_snapshot_from_before_the_restore_moves_nothing_and_is_not_taken_for_the_new_clusters(
    operator: Operator,
) -> None:
    store = MetadataStore.open(operator.broker / METADATA_DATABASE_NAME, CLUSTER_ID)
    store.apply([batch(0, [no_op()] * 70, epoch=3)])
    store.close()
    operator.restore(operator.report())
    said = operator.adopt(operator.snapshot, "--execute")
    assert (said.code, said.output) == (1, ""), said
    assert "has seen the metadata up to 70" in said.errors
    assert adopted_incarnation(FILES, str(operator.broker)) is None


def test_ct39_a_broker_with_a_damaged_copy_of_the_metadata_is_reported_and_moved(operator: Operator) -> None:
    """Its records are whole; what it has seen is known by its last registration."""
    path = operator.broker / METADATA_DATABASE_NAME
    data = path.read_bytes()
    path.write_bytes(b"\xff" * 4096 + data[4096:])
    restored = operator.restore(operator.report())
    assert operator.adopted(restored, "--execute")["Moved"]
    assert (operator.broker / (METADATA_DATABASE_NAME + OLD_DATABASE_SUFFIX)).read_bytes()[:1] == b"\xff"
    MetadataStore.open(path, operator.cluster_id).close()


@pytest.mark.parametrize("keeps", [False, True])
def test_ct39_a_broker_that_has_come_and_has_more_since_is_not_to_be_moved_again(
    with_voters: Operator, keeps: bool
) -> None:
    """Nor is the operator told to restore again, from a snapshot that lacks what the cluster did since."""
    operator = with_voters
    restored = operator.restore(operator.report(), extra=KEEPING if keeps else ())
    assert operator.adopted(restored, "--execute")["Moved"]
    with open_snapshot(restored) as snapshot:
        broker_epoch = snapshot.snapshot_id.offset - 1
    forget_adopted_incarnation(FILES, str(operator.broker))
    note_registration(FILES, str(operator.broker / "partitions"), broker_epoch)
    (operator.broker / "partitions" / "late-0").rename(operator.broker / "partitions" / f"late-0.{'0' * 32}-stray")
    said = operator.adopt(restored, "--execute")
    assert (said.code, "already" in said.output) == (0, True), said
    assert adopted_incarnation(FILES, str(operator.broker)) is None


def test_what_is_given_up_is_shown_before_anything_is_made(operator: Operator) -> None:
    report = operator.report()
    given = ("restore", "--snapshot", operator.snapshot, "--broker-report", report, "--dry-run")
    shown = operator.run(*given, "--output", "json").json()
    assert (shown["Adopted"], shown["LeftOut"]) == ([1], [])
    (row,) = shown["Partitions"]
    assert (row["InSync"], row["LogEndOffset"], row["NotAdopted"]) == ([1], 20, [2])
    assert row["Condition"] == "loses the records that only 2 has"
    assert [of["Topic"] for of in shown["Strays"]] == ["late"]
    assert "stay on their brokers' disks" in operator.run(*given).output
    said = operator.run("restore", "--snapshot", operator.snapshot, "--dry-run")
    assert (said.code, "--broker-report" in said.errors) == (2, True)


def test_a_file_that_is_no_report_is_refused(operator: Operator, tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("{}")
    for given in ("no.json", "none.json"):
        asked = ("restore", "--snapshot", operator.snapshot, "--broker-report", tmp_path / given, "--dry-run")
        said = operator.run(*asked)
        assert (said.code, said.output) == (1, "")
        assert str(tmp_path / given) in said.errors


# --- a cluster that keeps its id --------------------------------------------------------------------------------------

KEEPING = ("--keep-cluster-id", "--lost-voter", 1, "--lost-voter", 2, "--yes")


@pytest.fixture
def with_voters(operator: Operator) -> Operator:
    """The snapshot has two former voters."""
    voters = [
        MetadataRecord(register_controller=RegisterControllerRecord(controller_id=number, incarnation_id=an_id(number)))
        for number in (1, 2)
    ]
    (operator.path / "known").mkdir()
    operator.snapshot = write_snapshot(operator.path / "known", *voters, broker(1, 2), topic("clicks", 1), partition(1))
    return operator


def test_ct39_a_broker_is_moved_to_a_cluster_that_has_kept_its_id(with_voters: Operator) -> None:
    operator = with_voters
    report = operator.report()
    restored = operator.restore(report, extra=KEEPING)
    assert operator.cluster_id == CLUSTER_ID
    disk_id = read(operator.broker).disk_id
    assert not operator.adopted(restored)["Moved"]
    assert adopted_incarnation(FILES, str(operator.broker)) is None
    assert operator.adopted(restored, "--execute")["Moved"]
    assert adopted_incarnation(FILES, str(operator.broker)) == UUID(bytes=adopted_as(disk_id))
    assert "already" in operator.adopt(restored, "--execute").output
    MetadataStore.open(operator.broker / (METADATA_DATABASE_NAME + OLD_DATABASE_SUFFIX), CLUSTER_ID).close()
    said = operator.adopt(operator.restore(name="without", extra=KEEPING), "--execute")
    assert "was restored without the present state of broker 1" in said.errors


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (KEEPING[:3], 2, "--yes"),
        ((*KEEPING[:3], "--yes"), 1, "add --lost-voter 2 if"),
        ((*KEEPING[:1], "--yes"), 1, "add --lost-voter 1 --lost-voter 2 if"),
        ((*KEEPING, "--lost-voter", 7), 1, "7 did not vote; the former voters are 1, 2"),
        (KEEPING[1:3], 2, "--lost-voter"),
    ],
)
def test_ct39_every_former_voter_must_be_said_to_be_lost(
    with_voters: Operator, options: tuple[object, ...], code: int, words: str
) -> None:
    to = with_voters.path / "new"
    said = with_voters.run("restore", "--snapshot", with_voters.snapshot, "--dir", to, *options)
    assert (said.code, said.output) == (code, "")
    assert words in said.errors
    assert not to.exists()


def test_ct39_without_known_voters_some_must_be_named(operator: Operator) -> None:
    given = ("restore", "--snapshot", operator.snapshot, "--dir", operator.path / "new", "--voters", 1)
    assert "add --lost-voter ID if" in operator.run(*given, "--keep-cluster-id").errors
    assert operator.run(*given, *KEEPING).code == 0


def test_ct39_a_node_that_keeps_the_id_must_know_the_new_voters_by_their_directories(with_voters: Operator) -> None:
    config = write_config(with_voters.path / "node-1.toml")
    given = ("restore", "--snapshot", with_voters.snapshot, "--config", config, *KEEPING)
    said = with_voters.run(*given)
    assert (said.code, "give --initial-controllers" in said.errors) == (1, True)
    ids = [uuid_to_text(random_uuid()) for _ in range(3)]
    voters = ",".join(f"{number}@localhost:{9090 + number}:{ids[number - 1]}" for number in (1, 2, 3))
    assert with_voters.run(*given, "--initial-controllers", voters).code == 0
    with DataDirectory.open(FILES, str(with_voters.path / "node-1")) as directory:
        assert directory.identity.cluster_id == CLUSTER_ID
