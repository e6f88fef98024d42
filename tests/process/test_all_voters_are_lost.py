"""All voters are lost, and the cluster is restored from an old snapshot: no record of a topic in it is lost."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.sentinels import NO_LEADER
from kraftbase.types import NodeId
from kraftlog.cli.cluster.adoption import condition
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from kraftlog.offline.adoption.adopted_snapshot import OFFSET_JUMP, PRODUCER_ID_JUMP
from kraftlog.offline.adoption.moving import Fate
from kraftlog.offline.adoption.partition_choice import EPOCH_JUMP, choose
from tests.kraftlog.command_line import Run, command, environment, kraftlog
from tests.kraftlog.offline.adoption.builders import log
from tests.paths import ROOT
from tests.process.broker_process import WAIT_SECONDS, BrokerProcess
from tests.process.conftest import SESSION_TIMEOUT_MS, addresses, running
from tests.process.test_older_disk import leaders
from tests.process.test_operations_pages import shell
from tests.process.test_replication import ASKED_EVERY_SECONDS, Acknowledgements, await_in_sync, produce, read_back
from tests.process.test_up import up
from tests.shells import run_block
from tests.statemachine.partitions import a_partition

pytestmark = pytest.mark.process

BROKERS: Final = (71, 72, 73)
RECORDS: Final = 1_000
ELECTIONS: Final = 3
TOPICS: Final = ("three", "one")

PAGE: Final = (ROOT / "docs" / "operations" / "all-voters-are-lost.md").read_text()
BLOCKS: Final = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TERMINALS: Final = re.findall(r"^```\n(kraftlog .*?)^```", PAGE, re.MULTILINE | re.DOTALL)

Ask = Callable[..., Any]


def asking(run: Run, cluster: LocalCluster) -> Ask:
    def ask(*words: object) -> Any:
        return run(*words, "--bootstrap-server", addresses(cluster), "--output", "json").json()

    return ask


@pytest.fixture
def old(tmp_path: Path) -> LocalCluster:
    settings = {"broker.session.timeout.ms": SESSION_TIMEOUT_MS}
    return LocalCluster(open_or_create(tmp_path / "old", voters=1, observers=0, settings=settings))


def brokers_of(cluster: LocalCluster, base: Path) -> dict[int, BrokerProcess]:
    return {number: BrokerProcess(addresses(cluster), number, base / str(number)) for number in BROKERS}


def started(stack: ExitStack, brokers: dict[int, BrokerProcess]) -> None:
    for broker in brokers.values():
        stack.enter_context(broker.running())


def await_others(ask: Ask, topic: str, broker_id: int) -> list[int]:
    """Wait until a broker leads nothing of a topic; the leaders."""
    deadline = time.monotonic() + WAIT_SECONDS
    while broker_id in (found := leaders(ask, topic)) or NO_LEADER in found:
        assert time.monotonic() < deadline, found
        time.sleep(ASKED_EVERY_SECONDS)
    return found


def test_every_record_of_a_topic_in_the_snapshot_is_readable_again(run: Run, old: LocalCluster, tmp_path: Path) -> None:
    acknowledged = {topic: Acknowledgements() for topic in TOPICS}
    brokers, elected = brokers_of(old, tmp_path), []
    with running(old), ExitStack() as stack:
        ask = asking(run, old)
        started(stack, brokers)
        at = ("--bootstrap-server", addresses(old))
        three = ("--replica-assignment", "71:72:73,71:72:73,71:72:73", "--config", "min.insync.replicas=2")
        assert run("topics", "create", "three", *three, *at).code == 0
        assert run("topics", "create", "one", "--replica-assignment", "71,72,73", *at).code == 0
        for topic in TOPICS:
            produce(brokers, topic, 30, acknowledged[topic], "before")
        await_in_sync(run, old, "three")
        assert run("snapshot", "create", *at).code == 0
        saved = Path(ask("snapshot", "save", "--to", tmp_path)["Path"])
        for topic in TOPICS:  # from here on the snapshot knows of nothing
            produce(brokers, topic, RECORDS // 2, acknowledged[topic], "since")
        for _ in range(ELECTIONS):
            brokers[71].kill()
            elected.append(await_others(ask, "three", 71))
            produce({72: brokers[72]}, "three", RECORDS // 2, acknowledged["three"], f"without-{len(elected)}")
            brokers[71].start()
            await_in_sync(run, old, "three")
            ask("elect", "--type", "preferred", "--all-topic-partitions")
        brokers[71].kill()  # the snapshot has it as the leader, and it will lack these records
        await_others(ask, "three", 71)
        produce({72: brokers[72]}, "three", RECORDS, acknowledged["three"], "last")
        assert run("topics", "create", "late", "--replica-assignment", "72:73", *at).code == 0
        assert kraftlog("produce", "late", "--bootstrap-server", brokers[72].servers, given="kept\n").code == 0
        for number in (72, 73):
            brokers[number].kill()
    assert not [of.errors for of in acknowledged.values() if of.errors]
    shutil.rmtree(old.directory.path)

    reports = []
    for number, broker in brokers.items():
        report = tmp_path / f"{number}.json"
        assert run("brokers", "report", "--data-dir", broker.directory, "--to", report).code == 0
        reports += ["--broker-report", report]
    planned = run("restore", "--snapshot", saved, *reports, "--dry-run", "--output", "json").json()
    assert [row["Condition"] for row in planned["Partitions"]] == [""] * 6
    assert {(row["BrokerId"], row["Topic"]) for row in planned["Strays"]} == {(72, "late"), (73, "late")}
    restored = tmp_path / "new"
    said = run("restore", "--snapshot", saved, *reports, "--dir", restored, "--voters", 1, "--output", "json").json()
    new = LocalCluster(open_or_create(restored))
    (snapshot,) = (of for of in (restored / "node-1" / "snapshots").iterdir() if str(said["EndOffset"]) in of.name)
    for broker in brokers.values():
        move = ("brokers", "adopt", "--data-dir", broker.directory, "--snapshot", snapshot)
        assert not run(*move, "--output", "json").json()["Moved"]
        assert run(*move, "--execute", "--output", "json").json()["Moved"]
    brokers = brokers_of(new, tmp_path)
    with running(new), ExitStack() as stack:
        ask = asking(run, new)
        started(stack, brokers)
        await_in_sync(run, new, "three")
        for topic in TOPICS:
            values = acknowledged[topic].values
            assert values.items() <= read_back(brokers, topic, len(values)).items()
        (shown,) = ask("topics", "describe", "three")
        assert min(partition["LeaderEpoch"] for partition in shown["Partitions"]) > EPOCH_JUMP
        assert [topic["Topic"] for topic in ask("topics", "list")] == ["one", "three"]
        produce(brokers, "three", 30, acknowledged["three"], "after")
    for number in (72, 73):
        assert list(brokers[number].partitions.glob("late-0.*-stray"))


def test_ct39_with_the_old_cluster_id_a_broker_that_was_not_adopted_loses_nothing_either(
    run: Run, old: LocalCluster, tmp_path: Path
) -> None:
    """It runs on while the quorum is restored under it; then it is started again; then it is adopted."""
    broker, acknowledged = BrokerProcess(addresses(old), 71, tmp_path / "71"), Acknowledgements()
    node, at = old.directory.data_path(NodeId(1)), ("--bootstrap-server", addresses(old))
    with ExitStack() as nodes, ExitStack() as brokers:
        nodes.enter_context(running(old))
        brokers.enter_context(broker.running())
        assert run("topics", "create", "one", "--partitions", 3, *at).code == 0
        assert run("snapshot", "create", *at).code == 0
        saved = Path(asking(run, old)("snapshot", "save", "--to", tmp_path)["Path"])
        assert run("topics", "create", "late", *at).code == 0
        produce({71: broker}, "one", RECORDS, acknowledged, "since")
        assert kraftlog("produce", "late", "--bootstrap-server", broker.servers, given="kept\n").code == 0
        nodes.close()
        restore_with_the_id(run, old, saved)
        nodes.enter_context(running(old))
        assert broker.process.wait(WAIT_SECONDS) != 0
        assert "docs/operations/all-voters-are-lost.md" in broker.said.read_text()
        kept = sorted(of.name for of in broker.partitions.iterdir() if of.is_dir())
        assert kept == ["late-0", "one-0", "one-1", "one-2"]
        where = ("--endpoint", "PLAINTEXT://localhost:0", "--data-dir", broker.directory)
        again = kraftlog("brokers", "run", "--id", 71, *where, *at, timeout=WAIT_SECONDS)
        assert again.is_error(ErrorCode.INVALID_REGISTRATION, "broker 71 is not adopted")
        assert sorted(of.name for of in broker.partitions.iterdir() if of.is_dir()) == kept
    report = tmp_path / "71.json"
    assert run("brokers", "report", "--data-dir", broker.directory, "--to", report).code == 0
    restored = restore_with_the_id(run, old, saved, "--broker-report", report)
    (snapshot,) = (of for of in (node / "snapshots").iterdir() if str(restored["EndOffset"]) in of.name)
    assert run("brokers", "adopt", "--data-dir", broker.directory, "--snapshot", snapshot, "--execute").code == 0
    with running(old), broker.running():
        found = read_back({71: broker}, "one", RECORDS)
        assert acknowledged.values.items() <= found.items()
        assert len(list(broker.partitions.glob("late-0.*-stray"))) == 1
        assert broker.stop() == 0
        broker.start()  # as itself, whom the cluster knows by now
        assert broker.stop() == 0


def restore_with_the_id(run: Run, cluster: LocalCluster, saved: Path, *options: object) -> Any:
    """Make node 1 anew, at its old address and in a new directory; what the command prints."""
    shutil.rmtree(cluster.directory.data_path(NodeId(1)))
    (directory_id,) = run("random-uuid").lines()
    voter = f"1@{cluster.endpoint(NodeId(1))}:{directory_id}"
    config = cluster.directory.config_path(NodeId(1))
    keeping = ("--keep-cluster-id", "--lost-voter", 1, "--yes", "--initial-controllers", voter)
    return run("restore", "--snapshot", saved, "--config", config, *keeping, *options, "--output", "json").json()


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_commands_of_the_page_bring_every_record_back(run: Run, tmp_path: Path) -> None:
    cluster, directory = tmp_path / "cluster", tmp_path / "elsewhere"
    directory.mkdir()
    block = iter(BLOCKS)
    with up(cluster, "--voters", 1, "--brokers", 3) as (process, servers):
        for _ in range(2):
            shell(next(block), directory, servers, cluster)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 0
    shutil.rmtree(cluster / "node-1")
    reported = run_offline(next(block), directory, cluster)
    assert reported.count("Damaged") == 3
    planned = run_offline(next(block), directory, cluster)
    assert re.search(r"^orders +0 +101, 102, 103 +1100 ", planned, re.MULTILINE)
    assert re.search(r"^10[123] +later +0 +10$", planned, re.MULTILINE)
    assert "Start it: kraftlog up --dir restored" in run_offline(next(block), directory, cluster)
    assert TERMINALS[0] == "kraftlog up --dir restored\n"
    with up(directory / "restored") as (_, servers), ExitStack() as stack:
        shown = shell(next(block), directory, servers, cluster)
        assert shown.count("Nothing was changed.") == 3
        assert re.search(r"^orders +0 +1100 +in sync$", shown, re.MULTILINE)
        shell(next(block), directory, servers, cluster)
        for line in TERMINALS[1].splitlines():
            stack.enter_context(in_a_terminal(line, directory, servers, cluster))
        count, *described = shell(next(block), directory, servers, cluster).splitlines()
        assert count.strip() == "1100"
        assert any(row.startswith("orders") for row in described)
        assert "later-0." in run_offline(next(block), directory, cluster)
    with pytest.raises(StopIteration):
        next(block)


def run_offline(block: str, directory: Path, cluster: Path) -> str:
    """Run a block that asks no node; what it printed."""
    finished = run_block(block, directory, CLUSTER=str(cluster))
    assert (finished.returncode, finished.stderr) == (0, ""), finished
    return finished.stdout


@contextmanager
def in_a_terminal(line: str, directory: Path, servers: str, cluster: Path) -> Iterator[None]:
    """`kraftlog brokers run`, unfenced within the block."""
    program, *words = shlex.split(line.replace("$CLUSTER", str(cluster)))
    assert program == "kraftlog"
    its = environment(KRAFTLOG_BOOTSTRAP_SERVER=servers, PYTHONUNBUFFERED="1")
    with subprocess.Popen(command(*words), stdout=subprocess.PIPE, text=True, env=its, cwd=directory) as process:
        try:
            assert process.stdout is not None
            assert "is unfenced" in process.stdout.readline()
            yield
        finally:
            process.kill()


def test_the_numbers_on_the_page_are_the_codes() -> None:
    for number, what in (
        (EPOCH_JUMP, "above the highest that any adopted log knows"),
        (OFFSET_JUMP, "above what any adopted broker has seen"),
        (PRODUCER_ID_JUMP, "are passed over"),
    ):
        assert f"{number:,} {what}" in PAGE
    for fate in Fate:
        assert f"| `{fate}` |" in PAGE
    whole, damaged = log(30, 5), log(40, 5, is_damaged=True)
    partition = a_partition(replicas=[101, 102, 103], isr=[101], directories=[])
    for logs, reported in (
        ({101: whole, 102: whole}, (101, 102)),
        ({}, (101, 102)),
        ({}, (101, 102, 103)),
        ({101: whole, 102: damaged}, (101, 102, 103)),
        ({101: log(40, 5), 102: damaged}, (101, 102, 103)),
    ):
        shown = condition(choose(partition, logs, lambda broker_id, _, reported=reported: broker_id in reported))
        assert f"| `{shown}` |" in PAGE, shown
